"""Descriptions of rules in English.

A rule for which no short sentence is exact is shown as it is written.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from rota.model.schedules import QuietMode, Rule, RuleKind
from rota.timing.cron import parse_cron
from rota.timing.durations import format_duration, parse_duration
from rota.timing.notation import (
    WEEKDAY_NAMES,
    WEEKDAYS,
    WEEKEND,
    WORKDAYS,
    format_clock,
    parse_clock,
    parse_moment,
    parse_weekdays,
)
from rota.timing.patterns import EVERY_MONTH, EVERY_WEEKDAY, LAST_OF_MONTH, MONTHS, WEEK
from rota.timing.rrule import Frequency, Recurrence, parse_recurrence
from rota.timing.timetable import once_instant
from rota.timing.zones import DAY, instant, zone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

    from rota.timing.cron import CronLine

_MAX_EXCLUDED = 6


def describe(rule: Rule) -> str:
    """Return a description of a rule with its zone, bounds, exclusions and quiet windows."""
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
            text = describe_recurrence(recurrence, with_start=rule.anchor is None)
            return f"{text}, {where.key}"
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
    text = describe_cron(line)
    if text is None:
        return f"cron {rule.expression}, {rule.timezone}"
    # Every few minutes, all day and every day, is the same in all zones.
    anywhere = line.hour.text == "*" and line.expression.endswith(" * * *")
    return text if anywhere else f"{text}, {rule.timezone}"


def _calendar(rule: Rule) -> str:
    times, _, weekdays = rule.expression.partition(" ")
    seconds = [parse_clock(text, "times") for text in times.split(",")]
    if len(seconds) > MAX_TIMES:
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
        remarks.append(f"{fate} while quiet ({join_items(rule.quiet)})")
    if rule.jitter:
        remarks.append(f"up to {format_duration(rule.jitter)} later")
    return remarks


def _excluded(excluded: tuple[str, ...]) -> str:
    if len(excluded) > _MAX_EXCLUDED:
        return f"{len(excluded)} excluded days or ranges"
    return join_items([_excluded_item(item) for item in excluded])


def _excluded_item(item: str) -> str:
    if not item[0].isdigit():
        return item
    first, dots, last = item.partition("..")
    return f"{_day(first)} to {_day(last)}" if dots else _day(first)


def _day(text: str) -> str:
    day = date.fromisoformat(text)
    return calendar_date(datetime(day.year, day.month, day.day, tzinfo=UTC))


MAX_TIMES = 24
MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_UNITS = (
    (timedelta(days=7), "week"),
    (timedelta(days=1), "day"),
    (timedelta(hours=1), "hour"),
    (timedelta(minutes=1), "minute"),
    (timedelta(seconds=1), "second"),
)
_POSITIONS = ("", "first", "second", "third", "fourth", "fifth")
_TEENS = range(11, 14)
_SUFFIXES = ("th", "st", "nd", "rd")


def join_items(items: Sequence[str]) -> str:
    """Return items as a list: `a`, `a and b`, `a, b and c`."""
    *head, last = items
    return f"{', '.join(head)} and {last}" if head else last


def every_count(n: int, unit: str) -> str:
    """Return a repetition: `every hour`, `every 2 hours`."""
    return f"every {unit}" if n == 1 else f"every {n} {unit}s"


def every_length(delta: timedelta) -> str:
    """Return the repetition of an interval in its largest whole unit."""
    for size, unit in _UNITS:
        if delta % size == timedelta():
            return every_count(delta // size, unit)
    return f"every {format_duration(delta)}"


def ordinal(n: int) -> str:
    """Return an ordinal number: `1st`, `22nd`, `13th`."""
    last = n % 10
    plain = n % 100 in _TEENS or last >= len(_SUFFIXES)
    return f"{n}{'th' if plain else _SUFFIXES[last]}"


def position(n: int) -> str:
    """Return the position of a weekday in its month as a word."""
    return "last" if n == LAST_OF_MONTH else _POSITIONS[n]


def clock_times(seconds: Sequence[int]) -> str:
    """Return a list of times of day."""
    return join_items([format_clock(second) for second in seconds])


def on_weekdays(mask: int, when: str) -> str:
    """Return a time such as "at 09:00" with its weekdays."""
    if mask == EVERY_WEEKDAY:
        return f"every day {when}"
    if mask in {WORKDAYS, WEEKEND}:
        return f"{'weekdays' if mask == WORKDAYS else 'weekends'} {when}"
    chosen = [day for day in range(WEEK) if mask >> day & 1]
    if len(chosen) == 1:
        return f"every {WEEKDAY_NAMES[chosen[0]].capitalize()} {when}"
    return f"{when} on {weekday_list(mask)}"


def during_weekdays(mask: int, pace: str) -> str:
    """Return a repetition such as "every 15 minutes" with its weekdays."""
    if mask == EVERY_WEEKDAY:
        return pace
    if mask in {WORKDAYS, WEEKEND}:
        return f"{pace} on {'weekdays' if mask == WORKDAYS else 'weekends'}"
    return f"{pace} on {weekday_list(mask)}"


def weekday_list(mask: int) -> str:
    """Return the short names of weekdays, separated by commas."""
    return ", ".join(WEEKDAYS[day] for day in range(WEEK) if mask >> day & 1)


def calendar_date(moment: datetime) -> str:
    """Return the date of a wall time: `24 December 2026`."""
    return f"{moment.day} {MONTH_NAMES[moment.month - 1]} {moment.year}"


def date_and_time(moment: datetime) -> str:
    """Return a wall time: `24 December 2026 at 09:00`."""
    clock = format_clock(moment.hour * 3600 + moment.minute * 60 + moment.second)
    return f"{calendar_date(moment)} at {clock}"


def nominal_date(nominal: int) -> str:
    """Return the date of a nominal time."""
    return calendar_date(instant(nominal))


_LISTED = re.compile(r"[0-9]+(?:,[0-9]+)*")
_SPAN = re.compile(r"([0-9]+)-([0-9]+)")
_STEP = re.compile(r"\*/([0-9]+)")
_HOURS, _MINUTES = 24, 60


def describe_cron(line: CronLine) -> str | None:
    """Return the description of a cron line, or None if no short sentence is exact."""
    often, times = _pace_of_line(line), _cron_times(line)
    when = often or times
    if when is None:
        return None
    months = [MONTH_NAMES[n - 1] for n in range(1, MONTHS + 1) if line.month.mask >> n & 1]
    every_month = line.month.mask == EVERY_MONTH
    if line.monthday.text == "*" and not line.weekday.nth:
        mask = line.weekday_mask
        text = on_weekdays(mask, when) if often is None else during_weekdays(mask, when)
        return text if every_month else f"{text} in {join_items(months)}"
    day = _cron_day_of_month(line)
    if day is None:
        return None
    within = "the month" if every_month else join_items(months)
    return f"{when} on {day} of {within}" if often else f"on {day} of {within} {when}"


def _pace_of_line(line: CronLine) -> str | None:
    """Return how often a line fires within the day, if the intervals are even."""
    second, minute, hour = line.second.text, line.minute.text, line.hour.text
    if line.with_seconds and second != "0":
        pace = _pace(second, _MINUTES, "second")
        return pace if (minute, hour) == ("*", "*") else None
    pace = _pace(minute, _MINUTES, "minute")
    if pace is not None:
        return _during_hours(line, pace)
    if minute != "0":
        return f"every hour at {int(minute)} past" if minute.isdigit() and hour == "*" else None
    pace = _pace(hour, _HOURS, "hour")
    return pace or _during_hours(line, "every hour")


def _during_hours(line: CronLine, pace: str) -> str | None:
    """Return a repetition for all hours, or for one range of hours."""
    if line.hour.text == "*":
        return pace
    span = _SPAN.fullmatch(line.hour.text)
    if span is None:
        return None
    last = int(span[2]) * 3600 + (line.minute.mask.bit_length() - 1) * 60
    return f"{pace} from {int(span[1]):02}:00 to {format_clock(last)}"


def _pace(text: str, size: int, unit: str) -> str | None:
    if text == "*":
        return every_count(1, unit)
    step = _STEP.fullmatch(text)
    if step is None or size % int(step[1]):
        return None
    return every_count(int(step[1]), unit)


def _cron_times(line: CronLine) -> str | None:
    """Return the times of day of a line that lists them."""
    fields = (line.hour, line.minute, line.second)
    if not all(_LISTED.fullmatch(field.text) for field in fields):
        return None
    hours, minutes, seconds = (_bits(field.mask) for field in fields)
    times = [h * 3600 + m * 60 + s for h in hours for m in minutes for s in seconds]
    return f"at {clock_times(times)}" if len(times) <= MAX_TIMES else None


def _cron_day_of_month(line: CronLine) -> str | None:
    """Return the days of the month that a line lists, or their positions in it."""
    if line.monthday.text == "*":
        if line.weekday.mask:
            return None
        places = sorted(line.weekday.nth, key=lambda nth: (nth[1] < 0, nth[1], nth[0]))
        names = [f"{position(n)} {WEEKDAY_NAMES[day].capitalize()}" for day, n in places]
        return f"the {join_items(names)}"
    if line.weekday_mask != EVERY_WEEKDAY or not line.weekday.star:
        return None
    if not (line.monthday.last or _LISTED.fullmatch(line.monthday.text)):
        return None
    if not all(part == "L" or part.isdigit() for part in line.monthday.text.split(",")):
        return None
    days = [ordinal(day) for day in _bits(line.monthday.mask)]
    return f"the {join_items([*days, 'last day'] if line.monthday.last else days)}"


def _bits(mask: int) -> list[int]:
    return [n for n in range(mask.bit_length()) if mask >> n & 1]


_FREQUENCY_UNITS = ("year", "month", "week", "day", "hour", "minute", "second")
_MAX_POSITION = 5


def describe_recurrence(rule: Recurrence, *, with_start: bool) -> str:
    """Return the description of a recurrence, or its text if no short sentence is exact."""
    text = _plain(rule) or f"rrule {';'.join(f'{k}={v}' for k, v in rule.parts)}"
    if with_start:
        text += f", from {nominal_date(rule.dtstart)}"
    if rule.count:
        text += ", once" if rule.count == 1 else f", {rule.count} times"
    if rule.until is not None:
        text += f", until {nominal_date(rule.until)}"
    if rule.rdates:
        text += f", plus {_count_of_times(len(rule.rdates))}"
    if rule.exdates:
        text += f", less {_count_of_times(len(rule.exdates))}"
    return text


def _plain(rule: Recurrence) -> str | None:
    if rule.byweekno or rule.byyearday or rule.bysetpos:
        return None
    pace = every_count(rule.interval, _FREQUENCY_UNITS[rule.freq])
    if rule.elapsed:
        by_parts = rule.bymonth or rule.bymonthday or rule.byday or rule.byhour
        return None if by_parts or rule.byminute or rule.bysecond else pace
    days, times = _days(rule), _clock(rule)
    if days is None or times is None:
        return None
    return " ".join(part for part in (pace, days, times) if part)


def _days(rule: Recurrence) -> str | None:
    if rule.freq is Frequency.WEEKLY or (rule.freq is Frequency.DAILY and rule.byday):
        return None if rule.bymonth or rule.bymonthday else _weekdays(rule)
    if rule.freq is Frequency.DAILY:
        return None if rule.bymonth or rule.bymonthday else ""
    if rule.freq is Frequency.YEARLY:
        return _day_of_year(rule)
    return None if rule.bymonth else _rrule_day_of_month(rule)


def _weekdays(rule: Recurrence) -> str:
    days = [day for day, _ in rule.byday] or [instant(rule.dtstart).weekday()]
    return f"on {join_items([WEEKDAYS[day] for day in days])}"


def _rrule_day_of_month(rule: Recurrence) -> str | None:
    if rule.byday and rule.bymonthday:
        return None
    if rule.byday:
        if not all(n == LAST_OF_MONTH or 0 < n <= _MAX_POSITION for _, n in rule.byday):
            return None
        names = [f"{position(n)} {WEEKDAY_NAMES[day].capitalize()}" for day, n in rule.byday]
        return f"on the {join_items(names)}"
    days = rule.bymonthday or (instant(rule.dtstart).day,)
    if any(day < LAST_OF_MONTH for day in days):
        return None
    names = [ordinal(day) for day in days if day > 0]
    return f"on the {join_items([*names, 'last day'] if LAST_OF_MONTH in days else names)}"


def _day_of_year(rule: Recurrence) -> str | None:
    start = instant(rule.dtstart)
    months = rule.bymonth or (start.month,)
    if len(months) > 1 or (rule.byday and not rule.bymonth):
        return None
    if rule.bymonthday and not rule.bymonth:
        return None
    month = MONTH_NAMES[months[0] - 1]
    if rule.byday or len(rule.bymonthday) > 1:
        day = _rrule_day_of_month(rule)
        return None if day is None else f"{day} of {month}"
    monthday = rule.bymonthday[0] if rule.bymonthday else start.day
    if monthday < LAST_OF_MONTH:
        return None
    return f"on the last day of {month}" if monthday < 0 else f"on {monthday} {month}"


def _clock(rule: Recurrence) -> str | None:
    clock = rule.dtstart % DAY
    times = [
        hour * 3600 + minute * 60 + second
        for hour in rule.byhour or (clock // 3600,)
        for minute in rule.byminute or (clock // 60 % 60,)
        for second in rule.bysecond or (clock % 60,)
    ]
    return f"at {clock_times(times)}" if len(times) <= MAX_TIMES else None


def _count_of_times(n: int) -> str:
    return "1 time" if n == 1 else f"{n} times"
