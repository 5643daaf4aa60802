"""Options that all rules share: zone, gaps and folds, bounds, exclusions, quiet windows, jitter."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

from rota.errors import Invalid
from rota.model.schedules import Fold, Gap, QuietMode, Rule, RuleKind
from rota.timing.durations import check_duration, parse_duration
from rota.timing.notation import (
    WEEKDAY_ADVICE,
    format_clock,
    format_weekdays,
    instant_in,
    is_every_weekday,
    parse_clock,
    parse_date,
    parse_weekdays,
    split_entries,
)
from rota.timing.patterns import WEEK, Exclusions, weekday_of
from rota.timing.zones import DAY, zone, zone_clock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

    from rota.timing.zones import ZoneClock

MAX_JITTER = timedelta(days=7)
MAX_WINDOWS = 100

_Choice = TypeVar("_Choice", bound=StrEnum)


class RuleOptions(TypedDict, total=False):
    """The options of a rule as callers may write them."""

    timezone: str
    gap: Gap | str
    fold: Fold | str
    starts_at: datetime | str | None
    ends_at: datetime | str | None
    excluded: Sequence[str] | str
    quiet: Sequence[str] | str
    quiet_mode: QuietMode | str
    jitter: timedelta | str | None


def build(
    kind: RuleKind,
    expression: str,
    *,
    anchor: datetime | None = None,
    **options: Unpack[RuleOptions],
) -> Rule:
    """Return a rule with every option validated and in canonical form."""
    where = zone(options.get("timezone", "UTC"))
    starts_at = _bound(options.get("starts_at"), where, "starts_at")
    ends_at = _bound(options.get("ends_at"), where, "ends_at")
    if starts_at and ends_at and ends_at < starts_at:
        raise Invalid("ends_at", ends_at.isoformat(), "must not be before starts_at")
    return Rule(
        kind=kind,
        expression=expression,
        timezone=where.key,
        anchor=anchor,
        gap=choice(Gap, options.get("gap", Gap.SHIFT), "gap"),
        fold=choice(Fold, options.get("fold", Fold.FIRST), "fold"),
        starts_at=starts_at,
        ends_at=ends_at,
        excluded=_canonical_excluded(options.get("excluded", ())),
        quiet=_canonical_quiet(options.get("quiet", ()), where),
        quiet_mode=choice(QuietMode, options.get("quiet_mode", QuietMode.POSTPONE), "quiet_mode"),
        jitter=_jitter(options.get("jitter")),
    )


def choice(kind: type[_Choice], value: _Choice | str, field: str) -> _Choice:
    """Return the member of an enum for a text; the error lists all members."""
    try:
        return kind(str(value).strip().lower())
    except ValueError:
        raise Invalid(field, value, f"use one of {', '.join(kind)}") from None


def compile_exclusions(excluded: tuple[str, ...]) -> Exclusions | None:
    """Return the excluded days of a rule, or None if there are none."""
    if not excluded:
        return None
    weekdays, ranges = 0, list[tuple[date, date]]()
    for text in excluded:
        if text[:1].isdigit():
            ranges.append(_range(text))
        else:
            weekdays |= parse_weekdays(text, "excluded")
    return Exclusions(weekdays, tuple(ranges))


def compile_quiet_windows(quiet: tuple[str, ...], where: ZoneInfo) -> QuietWindows | None:
    """Return the quiet windows of a rule, or None if there are none."""
    if not quiet:
        return None
    windows = [window for text in quiet for window in _windows(text)]
    return QuietWindows(zone_clock(where), tuple(windows))


def _bound(value: datetime | str | None, where: ZoneInfo, field: str) -> datetime | None:
    return None if value is None else instant_in(value, where, field)


def _jitter(value: timedelta | str | None) -> timedelta:
    if value is None or value == timedelta():
        return timedelta()
    if isinstance(value, str):
        if value.strip() in {"", "0"}:
            return timedelta()
        value = parse_duration(value, field="jitter")
    delta = check_duration(value, field="jitter")
    if not timedelta(milliseconds=1) <= delta <= MAX_JITTER:
        raise Invalid("jitter", str(delta), "use 1 ms to 7 days")
    return delta // timedelta(milliseconds=1) * timedelta(milliseconds=1)


def _canonical_excluded(value: Sequence[str] | str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for text in split_entries(value, "excluded"):
        if text[:1].isdigit():
            first, last = _range(text)
            found[str(first) if first == last else f"{first}..{last}"] = None
        else:
            for part in format_weekdays(parse_weekdays(text, "excluded")).split(","):
                found[part] = None
    return tuple(found)


def _range(text: str) -> tuple[date, date]:
    first_text, dots, last_text = text.partition("..")
    first = parse_date(first_text, "excluded")
    last = parse_date(last_text, "excluded") if dots else first
    if last < first:
        raise Invalid("excluded", text, "begin the range with its earlier date")
    return first, last


def _canonical_quiet(value: Sequence[str] | str, where: ZoneInfo) -> tuple[str, ...]:
    # A comma may list weekdays inside a window, so semicolons separate windows.
    texts = split_entries(value, "quiet", ";")
    if len(texts) > MAX_WINDOWS:
        raise Invalid("quiet", f"{len(texts)} windows", f"use at most {MAX_WINDOWS}")
    canonical = tuple(dict.fromkeys(_canonical_window(text) for text in texts))
    windows = compile_quiet_windows(canonical, where)
    if windows and windows.endless:
        raise Invalid("quiet", "; ".join(canonical), "leave some time of the week free")
    return canonical


def _canonical_window(text: str) -> str:
    days, start, end = _window(text)
    hours = f"{format_clock(start)}-{format_clock(end)}"
    return hours if is_every_weekday(days) else f"{format_weekdays(days)} {hours}"


def _windows(text: str) -> list[tuple[int, int]]:
    days, start, end = _window(text)
    length = end - start if end > start else end + DAY - start
    return [(day * DAY + start, length) for day in range(WEEK) if days >> day & 1]


def _window(text: str) -> tuple[int, int, int]:
    days_text, _, hours = text.strip().rpartition(" ")
    first, dash, last = hours.partition("-")
    if not dash:
        raise Invalid("quiet", text, "write a window such as 22:00-07:00 or sat,sun 00:00-24:00")
    start = parse_clock(first, "quiet")
    end = parse_clock(last, "quiet", end_of_day=True)
    if start == end:
        raise Invalid("quiet", text, "a whole day is written 00:00-24:00")
    try:
        days = parse_weekdays(days_text or "mon-sun", "quiet")
    except Invalid:
        raise Invalid("quiet", text, WEEKDAY_ADVICE) from None
    return days, start, end


_WEEK = WEEK * DAY
_ROUNDS = 64
"""More than the offset changes in any week, so that the search ends."""


class QuietWindows:
    """The union of weekly windows in one zone, each a start and a length in seconds."""

    __slots__ = ("_clock", "_stretches")

    def __init__(self, wall: ZoneClock, windows: tuple[tuple[int, int], ...]) -> None:
        self._clock = wall
        self._stretches = _merged(windows)

    @property
    def endless(self) -> bool:
        """Whether the windows cover the whole week."""
        return any(end - start >= _WEEK for start, end in self._stretches)

    def until(self, at: int) -> int:
        """Return the first instant at or after `at` that is in no window."""
        if self.endless:
            return at
        for _ in range(_ROUNDS):
            offset = self._clock.offset(at)
            left = self._left(at + offset)
            if left == 0:
                return at
            if self._clock.offset(at + left) == offset:
                return at + left
            at = self._clock.change(at, at + left)
        return at

    def _left(self, nominal: int) -> int:
        day, second = divmod(nominal, DAY)
        moment = weekday_of(day) * DAY + second
        for start, end in self._stretches:
            for shifted in (moment, moment + _WEEK):
                if start <= shifted < end:
                    return end - shifted
        return 0


def _merged(windows: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Merge windows that touch, also across the end of the week; ends may exceed one week."""
    spans = sorted((start, start + length) for start, length in windows)
    # The second copy merges windows that cross Sunday night with those of Monday.
    doubled = spans + [(start + _WEEK, end + _WEEK) for start, end in spans]
    merged: list[list[int]] = []
    for start, end in doubled:
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([start, end])
    return tuple((start, end) for start, end in merged if start < _WEEK)
