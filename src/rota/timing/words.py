"""Rules in words: a short sentence where one is exact, the rule's own text where none is."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from rota.model.schedules import QuietMode, Rule, RuleKind
from rota.timing.courses import once_instant
from rota.timing.cron import parse_cron
from rota.timing.cron_words import describe_cron
from rota.timing.durations import format_duration, parse_duration
from rota.timing.patterns import EVERY_WEEKDAY
from rota.timing.phrases import (
    MOST_TIMES,
    calendar_date,
    clock_times,
    date_and_time,
    every_length,
    joined,
    on_weekdays,
)
from rota.timing.recurrence import parse_recurrence
from rota.timing.rrule_words import describe_recurrence
from rota.timing.texts import parse_clock, parse_moment, parse_weekdays
from rota.timing.zones import zone

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_MOST_EXCLUDED = 6


def describe(rule: Rule) -> str:
    """Return a rule as a person would say it, with its zone, bounds, exclusions and quiet times."""
    where = zone(rule.timezone)
    return "; ".join([_core(rule, where), *_remarks(rule, where)])


def _core(rule: Rule, where: ZoneInfo) -> str:
    match rule.kind:
        case RuleKind.ONCE:
            return f"once on {date_and_time(_wall_time(rule, where))}, {where.key}"
        case RuleKind.INTERVAL:
            return every_length(parse_duration(rule.expression))
        case RuleKind.CRON:
            return _cron(rule)
        case RuleKind.RRULE:
            recurrence = parse_recurrence(rule.expression, where)
            said = describe_recurrence(recurrence, with_start=rule.anchor is None)
            return f"{said}, {where.key}"
        case RuleKind.CALENDAR:
            return _calendar(rule)


def _wall_time(rule: Rule, where: ZoneInfo) -> datetime:
    moment, absolute = parse_moment(rule.expression, "at")
    planned = once_instant(rule, where)
    if not absolute or planned is None:
        return moment
    return planned.astimezone(where)


def _cron(rule: Rule) -> str:
    line = parse_cron(rule.expression)
    said = describe_cron(line)
    if said is None:
        return f"cron {rule.expression}, {rule.timezone}"
    # Every few minutes, all day and every day, is the same in all zones.
    anywhere = line.hour.text == "*" and line.expression.endswith(" * * *")
    return said if anywhere else f"{said}, {rule.timezone}"


def _calendar(rule: Rule) -> str:
    times, _, weekdays = rule.expression.partition(" ")
    seconds = [parse_clock(text, "times") for text in times.split(",")]
    if len(seconds) > MOST_TIMES:
        return f"calendar {rule.expression}, {rule.timezone}"
    mask = parse_weekdays(weekdays, "weekdays") if weekdays else EVERY_WEEKDAY
    return f"{on_weekdays(mask, f'at {clock_times(seconds)}')}, {rule.timezone}"


def _remarks(rule: Rule, where: ZoneInfo) -> list[str]:
    remarks = []
    if rule.starts_at:
        remarks.append(f"from {date_and_time(rule.starts_at.astimezone(where))}")
    if rule.ends_at:
        remarks.append(f"until {date_and_time(rule.ends_at.astimezone(where))}")
    if rule.excluded:
        remarks.append(f"not on {_excluded(rule.excluded)}")
    if rule.quiet:
        fate = "skipped" if rule.quiet_mode is QuietMode.SKIP else "postponed"
        remarks.append(f"{fate} while quiet ({joined(rule.quiet)})")
    if rule.jitter:
        remarks.append(f"up to {format_duration(rule.jitter)} later")
    return remarks


def _excluded(excluded: tuple[str, ...]) -> str:
    if len(excluded) > _MOST_EXCLUDED:
        return f"{len(excluded)} excluded days or ranges"
    return joined([_excluded_item(item) for item in excluded])


def _excluded_item(item: str) -> str:
    if not item[0].isdigit():
        return item
    first, dots, last = item.partition("..")
    return f"{_day(first)} to {_day(last)}" if dots else _day(first)


def _day(text: str) -> str:
    day = date.fromisoformat(text)
    return calendar_date(datetime(day.year, day.month, day.day, tzinfo=UTC))
