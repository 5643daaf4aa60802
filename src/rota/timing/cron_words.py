"""Cron lines in English, where English is exact."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rota.timing.patterns import EVERY_MONTH, EVERY_WEEKDAY, MONTHS
from rota.timing.phrases import (
    MONTH_NAMES,
    MOST_TIMES,
    clock_times,
    counted,
    during_weekdays,
    joined,
    on_weekdays,
    ordinal,
    position,
)
from rota.timing.texts import WEEKDAY_NAMES, format_clock

if TYPE_CHECKING:
    from rota.timing.cron import CronLine

_LISTED = re.compile(r"[0-9]+(?:,[0-9]+)*")
_SPAN = re.compile(r"([0-9]+)-([0-9]+)")
_STEP = re.compile(r"\*/([0-9]+)")
_HOURS, _MINUTES = 24, 60


def describe_cron(line: CronLine) -> str | None:
    """Return what a cron line says, or None when no short sentence is exact."""
    often, times = _often(line), _times(line)
    when = often or times
    if when is None:
        return None
    months = [MONTH_NAMES[n - 1] for n in range(1, MONTHS + 1) if line.month.mask >> n & 1]
    every_month = line.month.mask == EVERY_MONTH
    if line.monthday.text == "*" and not line.weekday.nth:
        mask = line.weekday_mask
        said = on_weekdays(mask, when) if often is None else during_weekdays(mask, when)
        return said if every_month else f"{said} in {joined(months)}"
    day = _day_of_month(line)
    if day is None:
        return None
    within = "the month" if every_month else joined(months)
    return f"{when} on {day} of {within}" if often else f"on {day} of {within} {when}"


def _often(line: CronLine) -> str | None:
    """Return how often a line comes within the day, if it does so evenly."""
    second, minute, hour = line.second.text, line.minute.text, line.hour.text
    if line.with_seconds and second != "0":
        pace = _pace(second, _MINUTES, "second")
        return pace if (minute, hour) == ("*", "*") else None
    pace = _pace(minute, _MINUTES, "minute")
    if pace is not None:
        return _through(line, pace)
    if minute != "0":
        return f"every hour at {int(minute)} past" if minute.isdigit() and hour == "*" else None
    pace = _pace(hour, _HOURS, "hour")
    return pace or _through(line, "every hour")


def _through(line: CronLine, pace: str) -> str | None:
    """Return a pace held through all hours, or through one stretch of them."""
    if line.hour.text == "*":
        return pace
    span = _SPAN.fullmatch(line.hour.text)
    if span is None:
        return None
    last = int(span[2]) * 3600 + (line.minute.mask.bit_length() - 1) * 60
    return f"{pace} from {int(span[1]):02}:00 to {format_clock(last)}"


def _pace(text: str, size: int, unit: str) -> str | None:
    if text == "*":
        return counted(1, unit)
    step = _STEP.fullmatch(text)
    if step is None or size % int(step[1]):
        return None
    return counted(int(step[1]), unit)


def _times(line: CronLine) -> str | None:
    """Return the times of day a line names one by one."""
    fields = (line.hour, line.minute, line.second)
    if not all(_LISTED.fullmatch(field.text) for field in fields):
        return None
    hours, minutes, seconds = (_bits(field.mask) for field in fields)
    times = [h * 3600 + m * 60 + s for h in hours for m in minutes for s in seconds]
    return f"at {clock_times(times)}" if len(times) <= MOST_TIMES else None


def _day_of_month(line: CronLine) -> str | None:
    """Return the days of the month a line names one by one, or by a place in it."""
    if line.monthday.text == "*":
        if line.weekday.mask:
            return None
        places = sorted(line.weekday.nth, key=lambda nth: (nth[1] < 0, nth[1], nth[0]))
        names = [f"{position(n)} {WEEKDAY_NAMES[day].capitalize()}" for day, n in places]
        return f"the {joined(names)}"
    if line.weekday_mask != EVERY_WEEKDAY or not line.weekday.star:
        return None
    if not (line.monthday.last or _LISTED.fullmatch(line.monthday.text)):
        return None
    if not all(part == "L" or part.isdigit() for part in line.monthday.text.split(",")):
        return None
    days = [ordinal(day) for day in _bits(line.monthday.mask)]
    return f"the {joined([*days, 'last day'] if line.monthday.last else days)}"


def _bits(mask: int) -> list[int]:
    return [n for n in range(mask.bit_length()) if mask >> n & 1]
