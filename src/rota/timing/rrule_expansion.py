"""Nominal times of an RFC 5545 rule, within fixed budgets.

Which days match depends only on the shape of a year: the weekday it starts with, and whether it and
the year before are leap years. So at most 28 masks of matching days are needed, and a search goes
from one matching day to the next without examining the days between.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from datetime import date
from functools import lru_cache
from math import gcd
from types import MappingProxyType
from typing import TYPE_CHECKING

from rota.errors import Invalid
from rota.timing.patterns import (
    MONTHS,
    WEEK,
    ClockTimes,
    is_leap,
    lowest_bit,
    month_length,
    weekday_of,
)
from rota.timing.rrule import Frequency, Recurrence
from rota.timing.zones import DAY, LATEST, UNIX_DAY_ONE, calendar_day, day_number

if TYPE_CHECKING:
    from rota.timing.zones import Pattern

MAX_PERIODS = 6_000
MAX_DAYS = 4_000
"""Limits of one search: a hundred years of weeks, or ten years of days."""

MAX_COUNTED = 5_000
"""The largest COUNT that is resolved by counting; rules without BY parts need no counting."""

_FINAL_DAY = day_number(LATEST.date()) + 1
_UNITS = MappingProxyType({Frequency.HOURLY: 3600, Frequency.MINUTELY: 60, Frequency.SECONDLY: 1})


def compile_recurrence(rule: Recurrence) -> Pattern:
    """Return the nominal times of a recurrence; COUNT becomes a last time."""
    full = _with_defaults(rule)
    pattern: Pattern = SubdailyPattern(full) if rule.freq in _UNITS else PeriodPattern(full)
    if rule.count is not None:
        pattern = RecurrenceEnd(pattern, _last_counted(rule, pattern))
    elif rule.until is not None:
        pattern = RecurrenceEnd(pattern, rule.until)
    if rule.rdates or rule.exdates:
        pattern = BoundedPattern(pattern, rule.rdates, frozenset(rule.exdates))
    return pattern


class RecurrenceEnd:
    """A pattern up to and including a last time."""

    __slots__ = ("_last", "_pattern")

    def __init__(self, pattern: Pattern, last: int) -> None:
        self._pattern = pattern
        self._last = last

    def next(self, after: int) -> int | None:
        """Return the first nominal time strictly after one, or None if there is none."""
        if after >= self._last:
            return None
        found = self._pattern.next(after)
        return None if found is None or found > self._last else found


class BoundedPattern:
    """A pattern with some times added and some removed."""

    __slots__ = ("_added", "_pattern", "_removed")

    def __init__(self, pattern: Pattern, added: tuple[int, ...], removed: frozenset[int]) -> None:
        self._pattern = pattern
        self._added = added
        self._removed = removed

    def next(self, after: int) -> int | None:
        """Return the first nominal time strictly after one, or None if there is none."""
        while True:
            found = self._pattern.next(after)
            position = bisect_right(self._added, after)
            if position < len(self._added):
                added = self._added[position]
                found = added if found is None else min(found, added)
            if found is None or found not in self._removed:
                return found
            after = found


class PeriodPattern:
    """YEARLY to DAILY: matching days of every interval-th period, each with the same times."""

    __slots__ = ("_base", "_days", "_per_day", "_reachable", "_rule", "_times")

    def __init__(self, rule: Recurrence) -> None:
        self._rule = rule
        self._days = YearDays(rule)
        self._times = ClockTimes(_mask(rule.byhour), _mask(rule.byminute), _mask(rule.bysecond))
        self._per_day = len(rule.byhour) * len(rule.byminute) * len(rule.bysecond)
        self._base = self._period(rule.dtstart // DAY)
        limit = _max_days(rule) * self._per_day
        self._reachable = not rule.bysetpos or any(abs(n) <= limit for n in rule.bysetpos)

    def next(self, after: int) -> int | None:
        """Return the first nominal time strictly after one, or None if there is none."""
        if not self._reachable:
            return None
        after = max(after, self._rule.dtstart - 1)
        day: int | None = after // DAY
        if day is not None and self._rule.bysetpos:
            day = self._start(self._period(day))
        for _ in range(MAX_PERIODS):
            if day is None or day > _FINAL_DAY:
                return None
            day = self._days.next(day)
            if day is None:
                return None
            period = self._period(day)
            remainder = (period - self._base) % self._rule.interval
            if remainder == 0:
                found = self._within(period, day, after)
                if found is not None:
                    return found
            day = self._start(period + self._rule.interval - remainder)
        return None

    def _within(self, period: int, day: int, after: int) -> int | None:
        if self._rule.bysetpos:
            return self._picked(period, after)
        if day == after // DAY:
            found = self._times.next(after % DAY)
            if found >= 0:
                return day * DAY + found
            later = self._days.next(day + 1)
            if later is None or self._period(later) != period:
                return None
            day = later
        return day * DAY + self._times.next(-1)

    def _picked(self, period: int, after: int) -> int | None:
        """Return the first time after `after` that BYSETPOS selects from a period."""
        start = self._start(period)
        mask = self._days.within(start, self._start(period + 1) - start)
        days = [start + n for n in range(mask.bit_length()) if mask >> n & 1]
        total = len(days) * self._per_day
        best: int | None = None
        for position in self._rule.bysetpos:
            index = position - 1 if position > 0 else total + position
            if 0 <= index < total:
                day, time = divmod(index, self._per_day)
                found = days[day] * DAY + self._nth_time(time)
                if found > after and (best is None or found < best):
                    best = found
        return best

    def _nth_time(self, index: int) -> int:
        rule = self._rule
        rest, second = divmod(index, len(rule.bysecond))
        hour, minute = divmod(rest, len(rule.byminute))
        return rule.byhour[hour] * 3600 + rule.byminute[minute] * 60 + rule.bysecond[second]

    def _period(self, day: int) -> int:
        match self._rule.freq:
            case Frequency.YEARLY:
                return calendar_day(day).year
            case Frequency.MONTHLY:
                date = calendar_day(day)
                return date.year * MONTHS + date.month - 1
            case Frequency.WEEKLY:
                return (day - self._rule.wkst + weekday_of(0)) // WEEK
            case _:
                return day

    def _start(self, period: int) -> int:
        match self._rule.freq:
            case Frequency.YEARLY:
                return _first_of(period, 1)
            case Frequency.MONTHLY:
                return _first_of(period // MONTHS, period % MONTHS + 1)
            case Frequency.WEEKLY:
                return period * WEEK + self._rule.wkst - weekday_of(0)
            case _:
                return period


class SubdailyPattern:
    """HOURLY to SECONDLY: every interval-th unit whose day and position in the day match."""

    __slots__ = ("_allowed", "_days", "_in_unit", "_phase", "_rule", "_unit", "_units", "_units_on")

    def __init__(self, rule: Recurrence) -> None:
        self._rule = rule
        self._unit = _UNITS[rule.freq]
        self._units = DAY // self._unit
        self._days = YearDays(rule)
        self._phase = rule.dtstart // self._unit
        self._allowed = self._reachable(_allowed_units(rule))
        self._in_unit = _in_unit(rule)
        self._units_on = lru_cache(8)(self._aligned)

    def next(self, after: int) -> int | None:
        """Return the first nominal time strictly after one, or None if there is none."""
        if not (self._allowed and self._in_unit):
            return None
        after = max(after, self._rule.dtstart - 1)
        unit, second = divmod(after, self._unit)
        day, place = divmod(unit, self._units)
        if self._days.next(day) == day:
            units = self._units_on(self._residue(day))
            later = self._in_unit >> second + 1
            if units >> place & 1 and later:
                return after + lowest_bit(later) + 1
            units >>= place + 1
            if units:
                return self._begin(unit + 1 + lowest_bit(units))
        return self._from_day(day + 1)

    def _from_day(self, day: int) -> int | None:
        for _ in range(MAX_DAYS):
            found = self._days.next(day)
            if found is None or found > _FINAL_DAY:
                return None
            residue = self._residue(found)
            if residue >= self._units:
                day = found + residue // self._units
                continue
            units = self._units_on(residue)
            if units:
                return self._begin(found * self._units + lowest_bit(units))
            day = found + 1
        return None

    def _begin(self, unit: int) -> int:
        return unit * self._unit + lowest_bit(self._in_unit)

    def _residue(self, day: int) -> int:
        """Return the offset, in units, of the first aligned unit of a day."""
        return (self._phase - day * self._units) % self._rule.interval

    def _aligned(self, residue: int) -> int:
        if self._rule.interval == 1:
            return self._allowed
        return self._allowed & _every_nth(self._rule.interval, self._units) << residue

    def _reachable(self, allowed: int) -> int:
        """Remove units of the day that no interval is ever aligned with."""
        step = gcd(self._units, self._rule.interval)
        return allowed & _every_nth(step, self._units) << self._phase % step


def _max_days(rule: Recurrence) -> int:
    """Return the maximum number of matching days in one period."""
    if rule.freq is Frequency.WEEKLY:
        return len(rule.byday)
    return {Frequency.DAILY: 1, Frequency.MONTHLY: 31}.get(rule.freq, 366)


def _with_defaults(rule: Recurrence) -> Recurrence:
    """Fill missing parts from DTSTART, as RFC 5545 specifies."""
    day, clock = divmod(rule.dtstart, DAY)
    start = calendar_day(day)
    freq = rule.freq
    if freq < Frequency.HOURLY:
        rule = replace(rule, byhour=rule.byhour or (clock // 3600,))
    if freq < Frequency.MINUTELY:
        rule = replace(rule, byminute=rule.byminute or (clock // 60 % 60,))
    if freq < Frequency.SECONDLY:
        rule = replace(rule, bysecond=rule.bysecond or (clock % 60,))
    if rule.byday or rule.bymonthday or rule.byyearday:
        return rule
    if freq is Frequency.WEEKLY or rule.byweekno:
        return replace(rule, byday=((start.weekday(), 0),))
    if freq is Frequency.MONTHLY:
        return replace(rule, bymonthday=(start.day,))
    if freq is Frequency.YEARLY:
        return replace(rule, bymonth=rule.bymonth or (start.month,), bymonthday=(start.day,))
    return rule


def _last_counted(rule: Recurrence, pattern: Pattern) -> int:
    """Return the last time of a rule with COUNT."""
    count = rule.count or 1
    step = _plain_step(rule)
    if step:
        return rule.dtstart + (count - 1) * step
    if count > MAX_COUNTED:
        raise Invalid("rrule", f"COUNT={count}", f"use at most {MAX_COUNTED} here, or UNTIL")
    last = rule.dtstart - 1
    for _ in range(count):
        found = pattern.next(last)
        if found is None:
            break
        last = found
    return last


def _plain_step(rule: Recurrence) -> int:
    """Return the fixed interval of a rule without BY parts in seconds, or 0."""
    steps = {**_UNITS, Frequency.DAILY: DAY, Frequency.WEEKLY: WEEK * DAY}
    plain = not any(name.startswith("BY") for name, _ in rule.parts)
    return steps.get(rule.freq, 0) * rule.interval if plain else 0


def _allowed_units(rule: Recurrence) -> int:
    hours = rule.byhour or tuple(range(24))
    if rule.freq is Frequency.HOURLY:
        return _mask(hours)
    hour = _mask(rule.byminute or tuple(range(60)))
    if rule.freq is Frequency.MINUTELY:
        return _repeated(hour, 60, hours)
    minute = _mask(rule.bysecond or tuple(range(60)))
    return _repeated(_repeated(minute, 60, rule.byminute or tuple(range(60))), 3600, hours)


def _in_unit(rule: Recurrence) -> int:
    """Return a mask of the seconds of one unit that fire, after BYSETPOS."""
    if rule.freq is Frequency.SECONDLY:
        mask = 1
    elif rule.freq is Frequency.MINUTELY:
        mask = _mask(rule.bysecond)
    else:
        mask = _repeated(_mask(rule.bysecond), 60, rule.byminute)
    if not rule.bysetpos:
        return mask
    seconds = [n for n in range(mask.bit_length()) if mask >> n & 1]
    picked = {n - 1 if n > 0 else len(seconds) + n for n in rule.bysetpos}
    return _mask(tuple(seconds[n] for n in picked if 0 <= n < len(seconds)))


def _repeated(mask: int, width: int, places: tuple[int, ...]) -> int:
    repeated = 0
    for place in places:
        repeated |= mask << place * width
    return repeated


@lru_cache(maxsize=64)
def _every_nth(step: int, length: int) -> int:
    """Return a mask with every step-th bit set, from bit 0 to below `length`."""
    mask, width = 1, step
    while width < length:
        mask |= mask << width
        width *= 2
    return mask & ((1 << length) - 1)


def _mask(numbers: tuple[int, ...]) -> int:
    mask = 0
    for n in numbers:
        mask |= 1 << n
    return mask


def _first_of(year: int, month: int) -> int:
    # A period may start after the last year of `date`; any day after the end will do.
    if year > LATEST.year:
        return _FINAL_DAY + 1
    return day_number(LATEST.date().replace(year=year, month=month, day=1))


_LEAP, _COMMON = 2000, 2001
_FIRST_WEEK = 3
"""A week belongs to the year in which at least four of its days are."""

_SHAPES = 28


class YearDays:
    """The days that match BYMONTH, BYWEEKNO, BYYEARDAY, BYMONTHDAY and BYDAY together."""

    __slots__ = ("_mask", "_rule", "unrestricted")

    def __init__(self, rule: Recurrence) -> None:
        self._rule = rule
        self._mask = lru_cache(_SHAPES)(self._mask_of_shape)
        self.unrestricted = not (
            rule.bymonth or rule.byweekno or rule.byyearday or rule.bymonthday or rule.byday
        )

    def next(self, number: int) -> int | None:
        """Return the first matching day at or after a day number, or None if none up to LATEST."""
        if self.unrestricted:
            return number
        year = calendar_day(number).year
        first = _new_year(year)
        while year <= LATEST.year:
            left = self._of_year(year) >> max(number - first, 0)
            if left:
                return max(number, first) + lowest_bit(left)
            year += 1
            first = _new_year(year)
        return None

    def within(self, first: int, length: int) -> int:
        """Return the matching days of a range as a mask, bit 0 being its first day."""
        year = calendar_day(first).year
        start = _new_year(year)
        mask = self._of_year(year) >> (first - start)
        following = _new_year(year + 1)
        if first + length > following:
            mask |= self._of_year(year + 1) << (following - first)
        return mask & ((1 << length) - 1)

    def _of_year(self, year: int) -> int:
        return self._mask(weekday_of(_new_year(year)), is_leap(year), is_leap(year - 1))

    def _mask_of_shape(self, weekday: int, leap: bool, after_leap: bool) -> int:
        rule, length = self._rule, 365 + leap
        mask = (1 << length) - 1
        spans = _months(leap)
        if rule.bymonth:
            mask &= sum(_span(*spans[month - 1]) for month in rule.bymonth)
        if rule.bymonthday:
            mask &= _positions(rule.bymonthday, spans)
        if rule.byyearday:
            mask &= _positions(rule.byyearday, ((0, length),))
        if rule.byday:
            whole_year = rule.freq is Frequency.YEARLY and not rule.bymonth
            mask &= _weekdays(rule.byday, weekday, ((0, length),) if whole_year else spans)
        if rule.byweekno:
            mask &= _weeks(rule, (weekday - rule.wkst) % WEEK, length, 365 + after_leap)
        return mask


def _new_year(year: int) -> int:
    return date(year, 1, 1).toordinal() - UNIX_DAY_ONE


def _months(leap: bool) -> tuple[tuple[int, int], ...]:
    spans, first = [], 0
    for month in range(1, MONTHS + 1):
        length = month_length(_LEAP if leap else _COMMON, month)
        spans.append((first, length))
        first += length
    return tuple(spans)


def _span(first: int, length: int) -> int:
    return ((1 << length) - 1) << first


def _positions(numbers: tuple[int, ...], spans: tuple[tuple[int, int], ...]) -> int:
    """Return the n-th days of each span as a mask; negative n count from its end."""
    mask = 0
    for first, length in spans:
        for n in numbers:
            if abs(n) <= length:
                mask |= 1 << first + (n - 1 if n > 0 else length + n)
    return mask


def _weekdays(
    chosen: tuple[tuple[int, int], ...], new_year: int, spans: tuple[tuple[int, int], ...]
) -> int:
    """Return the chosen weekdays of each span as a mask: all of them, or only the n-th."""
    mask = 0
    for first, length in spans:
        for weekday, n in chosen:
            days = range(first + (weekday - new_year - first) % WEEK, first + length, WEEK)
            if n == 0:
                mask |= sum(1 << day for day in days)
            elif abs(n) <= len(days):
                mask |= 1 << days[n - 1 if n > 0 else n]
    return mask


def _weeks(rule: Recurrence, lead: int, length: int, length_before: int) -> int:
    """Return the days in BYWEEKNO; `lead` days of the first week belong to the year before."""
    first = _week_one(lead)
    following = length + _week_one((lead + length) % WEEK)
    weeks = (following - first) // WEEK
    mask = 0
    for n in rule.byweekno:
        week = n - 1 if n > 0 else weeks + n
        if 0 <= week < weeks:
            start = first + week * WEEK
            mask |= _span(start, WEEK) if start >= 0 else _span(0, WEEK + start)
    if 1 in rule.byweekno and following < length:
        mask |= _span(following, length - following)
    weeks_before = (first + length_before - _week_one((lead - length_before) % WEEK)) // WEEK
    if first > 0 and not {-1, weeks_before}.isdisjoint(rule.byweekno):
        mask |= _span(0, first)
    return mask & _span(0, length)


def _week_one(lead: int) -> int:
    return -lead if lead <= _FIRST_WEEK else WEEK - lead
