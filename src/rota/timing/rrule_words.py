"""Recurrence rules in English, where English is exact."""

from __future__ import annotations

from rota.timing.instants import DAY, instant
from rota.timing.patterns import LAST_OF_MONTH
from rota.timing.phrases import (
    MONTH_NAMES,
    MOST_TIMES,
    clock_times,
    counted,
    joined,
    nominal_date,
    ordinal,
    position,
)
from rota.timing.recurrence import Frequency, Recurrence
from rota.timing.texts import WEEKDAY_NAMES, WEEKDAYS

_UNITS = ("year", "month", "week", "day", "hour", "minute", "second")
_MOST_PLACES = 5


def describe_recurrence(rule: Recurrence, *, with_start: bool) -> str:
    """Return what a recurrence says; its own text, exactly, when no short sentence does."""
    said = _plain(rule) or f"rrule {';'.join(f'{k}={v}' for k, v in rule.parts)}"
    if with_start:
        said += f", from {nominal_date(rule.dtstart)}"
    if rule.count:
        said += ", once" if rule.count == 1 else f", {rule.count} times"
    if rule.until is not None:
        said += f", until {nominal_date(rule.until)}"
    if rule.rdates:
        said += f", plus {_times(len(rule.rdates))}"
    if rule.exdates:
        said += f", less {_times(len(rule.exdates))}"
    return said


def _plain(rule: Recurrence) -> str | None:
    if rule.byweekno or rule.byyearday or rule.bysetpos:
        return None
    pace = counted(rule.interval, _UNITS[rule.freq])
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
    return None if rule.bymonth else _day_of_month(rule)


def _weekdays(rule: Recurrence) -> str:
    days = [day for day, _ in rule.byday] or [instant(rule.dtstart).weekday()]
    return f"on {joined([WEEKDAYS[day] for day in days])}"


def _day_of_month(rule: Recurrence) -> str | None:
    if rule.byday and rule.bymonthday:
        return None
    if rule.byday:
        if not all(n == LAST_OF_MONTH or 0 < n <= _MOST_PLACES for _, n in rule.byday):
            return None
        names = [f"{position(n)} {WEEKDAY_NAMES[day].capitalize()}" for day, n in rule.byday]
        return f"on the {joined(names)}"
    days = rule.bymonthday or (instant(rule.dtstart).day,)
    if any(day < LAST_OF_MONTH for day in days):
        return None
    names = [ordinal(day) for day in days if day > 0]
    return f"on the {joined([*names, 'last day'] if LAST_OF_MONTH in days else names)}"


def _day_of_year(rule: Recurrence) -> str | None:
    start = instant(rule.dtstart)
    months = rule.bymonth or (start.month,)
    if len(months) > 1 or (rule.byday and not rule.bymonth):
        return None
    if rule.bymonthday and not rule.bymonth:
        return None
    month = MONTH_NAMES[months[0] - 1]
    if rule.byday or len(rule.bymonthday) > 1:
        day = _day_of_month(rule)
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
    return f"at {clock_times(times)}" if len(times) <= MOST_TIMES else None


def _times(n: int) -> str:
    return "1 time" if n == 1 else f"{n} times"
