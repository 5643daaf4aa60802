"""The words of a spoken rule: times of day, weekdays and days of the month."""

from __future__ import annotations

import re
from types import MappingProxyType

from rota.timing.instants import DAY
from rota.timing.patterns import WEEK
from rota.timing.texts import WEEKDAY_NUMBERS, WEEKEND, WORKDAYS

_NOON = 12
_HOURS = 24
_TIME = re.compile(
    r"(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?)?"
    r"\s?(?P<half>am|pm|a\.m\.|p\.m\.)?(?: o'?clock)?"
)
_NAMED_TIMES = MappingProxyType({"noon": DAY // 2, "midday": DAY // 2, "midnight": 0})
_SEPARATOR = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+|\s*&\s*")
_RANGE = re.compile(r"(\w+)\s*(?:-|\u2013|\bto\b|\bthrough\b)\s*(\w+)")
_DATE = re.compile(r"([0-9]{1,2})(?:st|nd|rd|th)")

_GROUPS = MappingProxyType(
    {
        "weekday": WORKDAYS,
        "weekdays": WORKDAYS,
        "workday": WORKDAYS,
        "workdays": WORKDAYS,
        "working day": WORKDAYS,
        "weekend": WEEKEND,
        "weekends": WEEKEND,
    }
)
_POSITIONS = MappingProxyType(
    {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "last": -1}
)
_MOST_DAYS = 31


def parse_times(text: str) -> list[int] | None:
    """Return a list of times as seconds of the day, or None if one of them is none."""
    found = [_time(item) for item in _SEPARATOR.split(text.strip())]
    times = [time for time in found if time is not None]
    return times if len(times) == len(found) else None


def split_times(text: str) -> tuple[str, list[int] | None]:
    """Return what stands before the times of a phrase, and the times.

    After "at" any time will do; without it only what cannot be anything else (17:00, 5pm, noon).
    """
    head, at, tail = (" " + text).rpartition(" at ")
    if at:
        return head.strip(), parse_times(tail)
    words = text.split(" ")
    for length in range(min(len(words), 6), 0, -1):
        tail = " ".join(words[-length:])
        times = parse_times(tail)
        if times and not re.search(r"(?<![:0-9])[0-9]{1,2}(?![0-9:]|\s?[ap]\.?m)", tail):
            return " ".join(words[:-length]).removesuffix(",").strip(), times
    return text, None


def parse_days(text: str) -> int | None:
    """Return a list of weekdays as a mask, bit 0 being Monday, or None if it is none."""
    mask = 0
    for item in _SEPARATOR.split(text):
        found = _days(item.strip())
        if found is None:
            return None
        mask |= found
    return mask


def parse_weekday(text: str) -> int | None:
    """Return a single weekday, Monday being 0, also in the plural."""
    found = WEEKDAY_NUMBERS.get(text)
    return found if found is not None else WEEKDAY_NUMBERS.get(text.removesuffix("s"))


def parse_monthday(text: str) -> tuple[str, str] | None:
    """Return a day of the month as two cron fields, day of month and day of week."""
    words = text.removeprefix("the ").removesuffix(" day").split(" ")
    place = _place(words[0])
    if place is None or len(words) > len(("last", "friday")):
        return None
    if len(words) == 1:
        return ("L" if place < 0 else str(place)), "*"
    weekday = parse_weekday(words[1])
    if weekday is None or place > max(_POSITIONS.values()):
        return None
    day = (weekday + 1) % WEEK
    return "*", f"{day}L" if place < 0 else f"{day}#{place}"


def _place(word: str) -> int | None:
    found = _DATE.fullmatch(word)
    if found is None:
        return _POSITIONS.get(word)
    return int(found[1]) if 1 <= int(found[1]) <= _MOST_DAYS else None


def _time(text: str) -> int | None:
    if text in _NAMED_TIMES:
        return _NAMED_TIMES[text]
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    hour, minute, second = int(found["hour"]), int(found["minute"] or 0), int(found["second"] or 0)
    if found["half"]:
        if not 1 <= hour <= _NOON:
            return None
        hour = hour % _NOON + (_NOON if found["half"].startswith("p") else 0)
    count = hour * 3600 + minute * 60 + second
    return count if hour < _HOURS and max(minute, second) < 60 else None  # noqa: PLR2004 - a minute


def _days(text: str) -> int | None:
    if text in _GROUPS:
        return _GROUPS[text]
    single = parse_weekday(text)
    if single is not None:
        return 1 << single
    found = _RANGE.fullmatch(text)
    low, high = (parse_weekday(found[1]), parse_weekday(found[2])) if found else (None, None)
    if low is None or high is None:
        return None
    return sum(1 << (low + n) % WEEK for n in range((high - low) % WEEK + 1))
