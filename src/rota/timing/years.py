"""The days of a recurrence rule, year by year, as bit masks.

All day parts of a rule depend only on the shape of a year: the weekday it begins with, and which
of it and its predecessor are leap years. So there are at most 28 masks of matching days, and a
search goes from one matching day to the next without looking at those between.
"""

from __future__ import annotations

from datetime import date
from functools import lru_cache

from rota.timing.instants import LATEST, UNIX_DAY_ONE, calendar_day
from rota.timing.patterns import MONTHS, WEEK, is_leap, lowest, month_length, weekday_of
from rota.timing.recurrence import Frequency, Recurrence

_LEAP, _COMMON = 2000, 2001
_FIRST_WEEK = 3
"""A week belongs to the year that has at least four of its days."""

_SHAPES = 28


class YearDays:
    """The days that satisfy BYMONTH, BYWEEKNO, BYYEARDAY, BYMONTHDAY and BYDAY together."""

    __slots__ = ("_mask", "_rule", "unrestricted")

    def __init__(self, rule: Recurrence) -> None:
        self._rule = rule
        self._mask = lru_cache(_SHAPES)(self._mask_of_shape)
        self.unrestricted = not (
            rule.bymonth or rule.byweekno or rule.byyearday or rule.bymonthday or rule.byday
        )

    def next(self, number: int) -> int | None:
        """Return the first matching day on or after a day number, or None in Rota's years."""
        if self.unrestricted:
            return number
        year = calendar_day(number).year
        first = _new_year(year)
        while year <= LATEST.year:
            left = self._of_year(year) >> max(number - first, 0)
            if left:
                return max(number, first) + lowest(left)
            year += 1
            first = _new_year(year)
        return None

    def within(self, first: int, length: int) -> int:
        """Return the matching days of a stretch as a mask, bit 0 being its first day."""
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


def _positions(wanted: tuple[int, ...], spans: tuple[tuple[int, int], ...]) -> int:
    """Return the n-th day of each span, counted from its end when n is negative."""
    mask = 0
    for first, length in spans:
        for n in wanted:
            if abs(n) <= length:
                mask |= 1 << first + (n - 1 if n > 0 else length + n)
    return mask


def _weekdays(
    wanted: tuple[tuple[int, int], ...], new_year: int, spans: tuple[tuple[int, int], ...]
) -> int:
    """Return the wanted weekdays of each span: all of them, or the n-th only."""
    mask = 0
    for first, length in spans:
        for weekday, n in wanted:
            days = range(first + (weekday - new_year - first) % WEEK, first + length, WEEK)
            if n == 0:
                mask |= sum(1 << day for day in days)
            elif abs(n) <= len(days):
                mask |= 1 << days[n - 1 if n > 0 else n]
    return mask


def _weeks(rule: Recurrence, lead: int, length: int, length_before: int) -> int:
    """Return the days in the wanted weeks; `lead` days of the first week lie in the year before."""
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
