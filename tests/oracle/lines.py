"""Cron lines and calendars, read naively: each value is asked whether its field names it."""

from __future__ import annotations

from datetime import date, timedelta
from functools import lru_cache

Wanted = dict[int, tuple[int, ...]]
"""The seconds wanted in each wanted minute of a day."""

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
SUNDAY_FIRST = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
MONDAY_FIRST = [*SUNDAY_FIRST[1:], "sun"]
NICKNAMES = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0"}


def six_fields(text: str) -> list[str]:
    """Return the fields of a line, from the seconds to the weekdays."""
    fields = NICKNAMES.get(text, text).lower().replace("?", "*").split()
    return fields if len(fields) == 6 else ["0", *fields]


def follows_elapsed_time(text: str) -> bool:
    """Whether a line goes on with the time that passes: its minute or hour begins with a star."""
    _, minute, hour, *_ = six_fields(text)
    return minute.startswith("*") or hour.startswith("*")


@lru_cache(maxsize=100_000)
def cron_wants(text: str, day: date) -> Wanted:
    second, minute, hour, *days = six_fields(text)
    if not _is_day(day, *days):
        return {}
    seconds = tuple(n for n in range(60) if _has(second, n, 59))
    minutes = [n for n in range(60) if _has(minute, n, 59)]
    hours = [n for n in range(24) if _has(hour, n, 23)]
    return {hour * 60 + minute: seconds for hour in hours for minute in minutes}


@lru_cache(maxsize=100_000)
def calendar_wants(text: str, day: date) -> Wanted:
    times, _, weekdays = text.partition(" ")
    if weekdays and day.weekday() not in weekday_numbers(weekdays):
        return {}
    wanted: Wanted = {}
    for clock in sorted(times.split(",")):
        hour, minute, second = (int(part) for part in f"{clock}:00".split(":")[:3])
        at = hour * 60 + minute
        wanted[at] = (*wanted.get(at, ()), second)
    return wanted


@lru_cache(maxsize=1_000)
def weekday_numbers(text: str) -> frozenset[int]:
    """Return the weekdays of a text such as `sat,mon-wed`, Monday being 0."""
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        day = MONDAY_FIRST.index(first)
        found.add(day)
        while last and MONDAY_FIRST[day] != last:
            day = (day + 1) % 7
            found.add(day)
    return frozenset(found)


def _is_day(day: date, monthday: str, month: str, weekday: str) -> bool:
    if not _has(month, day.month, 12, MONTHS):
        return False
    by_date = _is_monthday(monthday, day)
    by_weekday = any(_is_weekday(part, day) for part in weekday.split(","))
    if monthday.startswith("*") or weekday.startswith("*"):
        return by_date and by_weekday
    return by_date or by_weekday


def _is_monthday(field: str, day: date) -> bool:
    is_last = (day + timedelta(days=1)).month != day.month
    plain = ",".join(part for part in field.split(",") if part != "l")
    return ("l" in field.split(",") and is_last) or (plain != "" and _has(plain, day.day, 31))


def _is_weekday(part: str, day: date) -> bool:
    if part.endswith("l"):
        in_a_week = (day + timedelta(days=7)).month
        return _is_weekday(part[:-1], day) and in_a_week != day.month
    if "#" in part:
        weekday, _, nth = part.partition("#")
        return _is_weekday(weekday, day) and (day.day + 6) // 7 == int(nth)
    sunday_first = day.isoweekday() % 7
    numbers = (0, 7) if sunday_first == 0 else (sunday_first,)
    return any(_has(part, number, 7, SUNDAY_FIRST) for number in numbers)


def _has(field: str, value: int, high: int, names: list[str] | None = None) -> bool:
    """Whether a field of lists, ranges and steps names a value."""
    return any(_part_has(part, value, high, names or []) for part in field.split(","))


def _part_has(part: str, value: int, high: int, names: list[str]) -> bool:
    span, stepped, step = part.partition("/")
    first, ranged, last = span.partition("-")
    low = _number(first, names, high)
    if span == "*":
        low = 0 if high in {59, 23, 7} else 1
    elif ranged:
        high = _number(last, names, high)
    elif not stepped:
        high = low
    return low <= value <= high and (value - low) % int(step or 1) == 0


def _number(text: str, names: list[str], high: int) -> int:
    if text in names:
        return names.index(text) + (1 if high == 12 else 0)
    return int(text) if text.isdigit() else 0
