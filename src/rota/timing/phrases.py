"""Pieces of English for times: lists, ordinals, weekdays, dates and how often."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rota.timing.durations import format_duration
from rota.timing.instants import instant
from rota.timing.patterns import EVERY_WEEKDAY, LAST_OF_MONTH, WEEK
from rota.timing.texts import WEEKDAY_NAMES, WEEKDAYS, WEEKEND, WORKDAYS, format_clock

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_TIMES = 24
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


def joined(items: Sequence[str]) -> str:
    """Return items as a list in a sentence: `a`, `a and b`, `a, b and c`."""
    *head, last = items
    return f"{', '.join(head)} and {last}" if head else last


def counted(n: int, unit: str) -> str:
    """Return how often something comes: `every hour`, `every 2 hours`."""
    return f"every {unit}" if n == 1 else f"every {n} {unit}s"


def every_length(delta: timedelta) -> str:
    """Return how often an interval comes, in its largest whole unit."""
    for size, unit in _UNITS:
        if delta % size == timedelta():
            return counted(delta // size, unit)
    return f"every {format_duration(delta)}"


def ordinal(n: int) -> str:
    """Return a number with its ending: `1st`, `22nd`, `13th`."""
    last = n % 10
    plain = n % 100 in _TEENS or last >= len(_SUFFIXES)
    return f"{n}{'th' if plain else _SUFFIXES[last]}"


def position(n: int) -> str:
    """Return the place of a weekday in its month as a word."""
    return "last" if n == LAST_OF_MONTH else _POSITIONS[n]


def clock_times(seconds: Sequence[int]) -> str:
    """Return times of day as a list."""
    return joined([format_clock(second) for second in seconds])


def on_weekdays(mask: int, when: str) -> str:
    """Return "at 09:00" or the like bound to weekdays, as one says it."""
    if mask == EVERY_WEEKDAY:
        return f"every day {when}"
    if mask in {WORKDAYS, WEEKEND}:
        return f"{'weekdays' if mask == WORKDAYS else 'weekends'} {when}"
    chosen = [day for day in range(WEEK) if mask >> day & 1]
    if len(chosen) == 1:
        return f"every {WEEKDAY_NAMES[chosen[0]].capitalize()} {when}"
    return f"{when} on {weekday_list(mask)}"


def during_weekdays(mask: int, pace: str) -> str:
    """Return "every 15 minutes" or the like bound to weekdays, as one says it."""
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
