"""Patterns of nominal times: days, and times within a day."""

from __future__ import annotations

from bisect import bisect_right
from datetime import date
from typing import TYPE_CHECKING, Protocol

from rota.timing.zones import DAY, LATEST, UNIX_DAY_ONE, calendar_day, day_number

if TYPE_CHECKING:
    from rota.timing.zones import Pattern

WEEK = 7
MONTHS = 12
EVERY_MONTH = ((1 << MONTHS) - 1) << 1
EVERY_MONTHDAY = ((1 << 31) - 1) << 1
EVERY_WEEKDAY = (1 << WEEK) - 1

MAX_SKIPS = 1_500
"""How many excluded or quiet slots in a row are skipped before a rule is considered ended."""

LAST_OF_MONTH = -1
"""Position of the last occurrence of a weekday in a month."""

_FINAL_DAY = day_number(LATEST.date()) + 1
_FEBRUARY = 2
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SHORTEST, _LONGEST = 28, 31


class TimeSet(Protocol):
    """Seconds of a day, ascending."""

    def next(self, after: int) -> int:
        """Return the first second strictly after one (-1: from midnight), or -1."""


class ClockTimes:
    """Every combination of some hours, minutes and seconds, each a bit mask."""

    __slots__ = ("_head", "_hours", "_minutes", "_second", "_seconds")

    def __init__(self, hours: int, minutes: int, seconds: int = 1) -> None:
        self._hours = hours
        self._minutes = minutes
        self._seconds = seconds
        self._second = lowest_bit(seconds)
        self._head = lowest_bit(minutes) * 60 + self._second

    def next(self, after: int) -> int:
        """Return the first second strictly after one (-1: from midnight), or -1."""
        hour, rest = divmod(after, 3600)
        if after >= 0 and self._hours >> hour & 1:
            minute, second = divmod(rest, 60)
            if self._minutes >> minute & 1:
                later = self._seconds >> second + 1
                if later:
                    return after + (later & -later).bit_length()
            later = self._minutes >> minute + 1
            if later:
                minute += (later & -later).bit_length()
                return hour * 3600 + minute * 60 + self._second
        later = self._hours >> hour + 1
        if not later:
            return -1
        return (hour + (later & -later).bit_length()) * 3600 + self._head


class ListedTimes:
    """Some seconds of a day, listed one by one."""

    __slots__ = ("_times",)

    def __init__(self, times: tuple[int, ...]) -> None:
        self._times = tuple(sorted(set(times)))

    def next(self, after: int) -> int:
        """Return the first second strictly after one (-1: from midnight), or -1."""
        position = bisect_right(self._times, after)
        return self._times[position] if position < len(self._times) else -1


class DaySet:
    """Days selected by month, day of the month and weekday.

    Masks: bit 1 is January or the first of a month, bit 0 is Monday. `nth` holds pairs of weekday
    and position in the month; `last` adds the last day of the month to the days of the month.
    `either` combines days of the month and weekdays with "or" instead of "and".
    """

    __slots__ = ("_months", "_tables", "_weekly")

    def __init__(
        self,
        *,
        months: int = EVERY_MONTH,
        monthdays: int = EVERY_MONTHDAY,
        last: bool = False,
        weekdays: int = EVERY_WEEKDAY,
        nth: frozenset[tuple[int, int]] = frozenset(),
        either: bool = False,
    ) -> None:
        self._months = months
        by_weekday_alone = months == EVERY_MONTH and not (nth or last or either)
        self._weekly = 0
        if by_weekday_alone and monthdays == EVERY_MONTHDAY:
            self._weekly = weekdays | weekdays << WEEK
        self._tables = tuple(
            tuple(
                _combine(
                    _by_date(monthdays, last, length),
                    _by_week(weekdays, nth, first, length),
                    either,
                )
                for length in range(_SHORTEST, _LONGEST + 1)
            )
            for first in range(WEEK)
        )

    def next(self, number: int) -> int | None:
        """Return the first day at or after a day number, or None if there is none up to LATEST."""
        if self._weekly:
            found = number + lowest_bit(self._weekly >> weekday_of(number))
            return found if found <= _FINAL_DAY else None
        day = calendar_day(number)
        year, month, floor = day.year, day.month, day.day
        while year <= LATEST.year:
            if self._months >> month & 1:
                first = date(year, month, 1)
                mask = self._tables[first.weekday()][month_length(year, month) - _SHORTEST]
                mask >>= floor
                if mask:
                    return first.toordinal() - UNIX_DAY_ONE + floor - 1 + lowest_bit(mask)
            month, floor = month + 1, 1
            if month > MONTHS:
                year, month = year + 1, 1
        return None


class DayPattern:
    """The same times on every selected day."""

    __slots__ = ("_days", "_times")

    def __init__(self, days: DaySet, times: TimeSet) -> None:
        self._days = days
        self._times = times

    def next(self, after: int) -> int | None:
        """Return the first nominal time strictly after one, or None if there is none."""
        today, second = divmod(after, DAY)
        found = self._times.next(second)
        day = self._days.next(today if found >= 0 else today + 1)
        if day == today:
            return today * DAY + found
        return None if day is None else day * DAY + self._times.next(-1)


class Exclusions:
    """Calendar days without slots: weekdays and ranges of dates."""

    __slots__ = ("_ends", "_starts", "_weekdays")

    def __init__(self, weekdays: int, ranges: tuple[tuple[date, date], ...]) -> None:
        self._weekdays = weekdays
        merged: list[tuple[int, int]] = []
        for first, last in sorted((day_number(a), day_number(b)) for a, b in ranges):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        self._starts = tuple(first for first, _ in merged)
        self._ends = tuple(last for _, last in merged)

    @property
    def everything(self) -> bool:
        """Whether all seven weekdays are excluded."""
        return self._weekdays == EVERY_WEEKDAY

    def resume(self, number: int) -> int:
        """Return the first day at or after a day number that is not excluded."""
        while True:
            if self._weekdays >> weekday_of(number) & 1:
                number += 1
                continue
            position = bisect_right(self._starts, number) - 1
            if position < 0 or self._ends[position] < number:
                return number
            number = self._ends[position] + 1


class ExcludingPattern:
    """A pattern without its times on excluded days."""

    __slots__ = ("_exclusions", "_pattern")

    def __init__(self, pattern: Pattern, exclusions: Exclusions) -> None:
        self._pattern = pattern
        self._exclusions = exclusions

    def next(self, after: int) -> int | None:
        """Return the first nominal time strictly after one, or None if there is none."""
        if self._exclusions.everything:
            return None
        found = self._pattern.next(after)
        for _ in range(MAX_SKIPS):
            if found is None:
                return None
            day = found // DAY
            resumed = self._exclusions.resume(day)
            if resumed == day:
                return found
            found = self._pattern.next(resumed * DAY - 1)
        return None


def lowest_bit(mask: int) -> int:
    """Return the position of the lowest bit set; the mask must not be zero."""
    return (mask & -mask).bit_length() - 1


def weekday_of(number: int) -> int:
    """Return the weekday of a day number, Monday being 0."""
    return (number + 3) % WEEK


def month_length(year: int, month: int) -> int:
    """Return the number of days of a month."""
    return _LENGTHS[month] + (month == _FEBRUARY and is_leap(year))


def is_leap(year: int) -> bool:
    """Whether a year has a 29 February."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _by_date(monthdays: int, last: bool, length: int) -> int:
    inside = ((1 << length) - 1) << 1
    return monthdays & inside | (1 << length if last else 0)


def _by_week(weekdays: int, nth: frozenset[tuple[int, int]], first: int, length: int) -> int:
    found = 0
    for day in range(1, length + 1):
        weekday = (first + day - 1) % WEEK
        position = (day - 1) // WEEK + 1
        named = (weekday, position) in nth
        final = day + WEEK > length and (weekday, LAST_OF_MONTH) in nth
        if weekdays >> weekday & 1 or named or final:
            found |= 1 << day
    return found


def _combine(by_date: int, by_week: int, either: bool) -> int:
    return by_date | by_week if either else by_date & by_week
