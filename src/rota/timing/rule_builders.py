"""One validating constructor for each kind of rule, and rules as JSON records.

Constructors take the options of `rota.timing.options.RuleOptions`, return canonical rules, and
raise only Invalid for wrong input.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias, Unpack

from rota.errors import Invalid
from rota.model.schedules import Fold, Rule, RuleKind
from rota.timing.cron import parse_cron
from rota.timing.durations import check_duration, iso_duration, parse_duration
from rota.timing.notation import (
    format_clock,
    format_instant,
    format_wall,
    format_weekdays,
    is_every_weekday,
    parse_clock,
    parse_moment,
    parse_weekdays,
    split_entries,
)
from rota.timing.options import RuleOptions, build, choice
from rota.timing.rrule import parse_recurrence, split_lines
from rota.timing.rrule_expansion import compile_recurrence
from rota.timing.timetable import once_instant, timetable
from rota.timing.zones import EARLIEST, as_utc, zone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JSON: TypeAlias = "str | int | float | bool | list[JSON] | dict[str, JSON] | None"

MIN_INTERVAL = timedelta(milliseconds=1)


def once(
    at: str | datetime, *, now: datetime, allow_past: bool = False, **options: Unpack[RuleOptions]
) -> Rule:
    """Return the rule for a single instant, or for one local time in the rule's zone.

    A moment before `now` is rejected unless `allow_past`. A local time that occurs twice follows
    `fold`; one that does not exist moves to the end of the gap, or is rejected if `gap` is skip.
    """
    moment, absolute = parse_moment(at, "at")
    expression = format_instant(moment) if absolute else format_wall(moment)
    rule = build(RuleKind.ONCE, expression, **options)
    if rule.fold is Fold.BOTH:
        raise Invalid("fold", rule.fold, "a rule that fires once takes first or second")
    planned = once_instant(rule, zone(rule.timezone))
    if planned is None:
        raise Invalid("at", expression, f"the clocks in {rule.timezone} skip this time")
    if not allow_past and planned < as_utc(now, "now"):
        raise Invalid("at", expression, "is in the past; give a future time")
    return _able_to_fire(rule, "at")


def cron(expression: str, **options: Unpack[RuleOptions]) -> Rule:
    """Return the rule for a cron line with five fields, or six with the seconds first."""
    line = parse_cron(expression)
    return _able_to_fire(build(RuleKind.CRON, line.expression, **options), "cron")


def every(interval: str | timedelta, *, anchor: datetime, **options: Unpack[RuleOptions]) -> Rule:
    """Return the rule for the exact instants anchor + interval, anchor + 2 * interval, ..."""
    if isinstance(interval, str):
        interval = parse_duration(interval, field="every")
    length = check_duration(interval, field="every")
    if length < MIN_INTERVAL:
        raise Invalid("every", str(length), "use at least 1 ms")
    begun = as_utc(anchor, "anchor")
    rule = build(RuleKind.INTERVAL, iso_duration(length), anchor=begun, **options)
    return _able_to_fire(rule, "every")


def rrule(text: str, *, created_at: datetime, **options: Unpack[RuleOptions]) -> Rule:
    """Return the rule for an RFC 5545 text: `FREQ=...` or lines with DTSTART, RDATE, EXDATE.

    Without a DTSTART the rule starts at `created_at`, which becomes its anchor. Without a timezone
    option its zone is that of its DTSTART.
    """
    lines = split_lines(text)
    if "timezone" not in options:
        options["timezone"] = zone(lines.zone or "UTC", field="rrule").key
    where = zone(options["timezone"])
    begun = as_utc(created_at, "created_at").replace(microsecond=0)
    parsed = parse_recurrence(text, where, None if lines.start else begun)
    rule = build(
        RuleKind.RRULE, parsed.expression, anchor=None if lines.start else begun, **options
    )
    return _able_to_fire(rule, "rrule", lines.rule)


def calendar(
    times: Sequence[str] | str,
    *,
    weekdays: Sequence[str] | str = (),
    **options: Unpack[RuleOptions],
) -> Rule:
    """Return the rule for several times of day, on some weekdays or on all if none is given."""
    seconds_of_day = sorted({parse_clock(text, "times") for text in split_entries(times, "times")})
    if not seconds_of_day:
        raise Invalid("times", times, "give at least one time of day such as 07:00")
    mask = 0
    for text in split_entries(weekdays, "weekdays"):
        mask |= parse_weekdays(text, "weekdays")
    expression = ",".join(map(format_clock, seconds_of_day))
    if mask and not is_every_weekday(mask):
        expression += f" {format_weekdays(mask)}"
    return _able_to_fire(build(RuleKind.CALENDAR, expression, **options), "times")


def to_record(rule: Rule) -> dict[str, JSON]:
    """Return a rule as JSON values, the inverse of `from_record`."""
    return {
        "kind": rule.kind.value,
        "expression": rule.expression,
        "timezone": rule.timezone,
        "anchor": _stored(rule.anchor),
        "gap": rule.gap.value,
        "fold": rule.fold.value,
        "starts_at": _stored(rule.starts_at),
        "ends_at": _stored(rule.ends_at),
        "excluded": list(rule.excluded),
        "quiet": list(rule.quiet),
        "quiet_mode": rule.quiet_mode.value,
        "jitter": iso_duration(rule.jitter) if rule.jitter else None,
    }


def from_record(mapping: Mapping[str, object]) -> Rule:
    """Return the rule of a record; optional keys may be missing, unknown ones are ignored.

    Whether the rule still fires is not checked, so that stored rules stay readable.
    """
    kind = choice(RuleKind, _text(mapping, "kind", ""), "kind")
    expression = _text(mapping, "expression", "")
    options = RuleOptions(
        timezone=_text(mapping, "timezone", "UTC"),
        gap=_text(mapping, "gap", "shift"),
        fold=_text(mapping, "fold", "first"),
        starts_at=_text(mapping, "starts_at", "") or None,
        ends_at=_text(mapping, "ends_at", "") or None,
        excluded=_texts(mapping, "excluded"),
        quiet=_texts(mapping, "quiet"),
        quiet_mode=_text(mapping, "quiet_mode", "postpone"),
        jitter=_text(mapping, "jitter", "") or None,
    )
    anchor = _anchor(_text(mapping, "anchor", ""))
    if kind is RuleKind.INTERVAL and anchor is None:
        raise Invalid("anchor", "", "an interval needs the instant it counts from")
    return build(kind, _canonical(kind, expression, options), anchor=anchor, **options)


def _canonical(kind: RuleKind, expression: str, options: RuleOptions) -> str:
    match kind:
        case RuleKind.ONCE:
            moment, absolute = parse_moment(expression, "expression")
            return format_instant(moment) if absolute else format_wall(moment)
        case RuleKind.CRON:
            return parse_cron(expression).expression
        case RuleKind.INTERVAL:
            return every(expression, anchor=EARLIEST).expression
        case RuleKind.RRULE:
            where = zone(options["timezone"])
            recurrence = parse_recurrence(expression, where)
            compile_recurrence(recurrence)
            return recurrence.expression
        case RuleKind.CALENDAR:
            times, _, weekdays = expression.partition(" ")
            return calendar(times, weekdays=weekdays).expression


def _able_to_fire(rule: Rule, field: str, shown: str = "") -> Rule:
    if timetable(rule).next(EARLIEST - timedelta(seconds=1)) is None:
        raise Invalid(
            field,
            shown or rule.expression,
            "never fires: look at its dates, bounds, exclusions and quiet windows",
        )
    return rule


def _anchor(text: str) -> datetime | None:
    if not text:
        return None
    moment, absolute = parse_moment(text, "anchor")
    return as_utc(moment if absolute else moment.replace(tzinfo=None), "anchor")


def _stored(moment: datetime | None) -> str | None:
    return None if moment is None else format_instant(moment)


def _text(mapping: Mapping[str, object], key: str, default: str) -> str:
    value = mapping.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise Invalid(key, value, "must be text")
    return value


def _texts(mapping: Mapping[str, object], key: str) -> list[str]:
    value = mapping.get(key)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise Invalid(key, value, "must be a list of texts")
    if not all(isinstance(item, str) for item in value):
        raise Invalid(key, value, "must be a list of texts")
    return [item for item in value if isinstance(item, str)]
