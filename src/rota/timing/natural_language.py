"""Rules from English phrases, such as "weekdays at 9".

Only phrases with one meaning are accepted; the error for others says what to write instead. A bare
"30m" could mean "in 30m" or "every 30m", so it is rejected.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from rota.errors import Invalid
from rota.timing import rule_builders
from rota.timing.cron import MACROS
from rota.timing.durations import parse_duration
from rota.timing.notation import (
    WEEKDAY_NUMBERS,
    WEEKEND,
    WORKDAYS,
    format_clock,
    format_wall,
    format_weekdays,
)
from rota.timing.patterns import EVERY_WEEKDAY, WEEK
from rota.timing.rrule import CODES
from rota.timing.timetable import timetable
from rota.timing.zones import DAY, as_utc, zone

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from rota.model.schedules import Rule

FIELD = "when"
MAX_TEXT = 1_000
EXAMPLES = (
    '"every weekday at 7:00", "every 30 minutes", "tomorrow at 9:00", "in 20 minutes", '
    'or a cron line such as "0 7 * * 1-5"'
)

_EVERY = re.compile(r"(?:every|each)\s+")
_SEVERAL = re.compile(r"([0-9]{1,4}) (day|week)s?(?: on (.+))?")
_MONTHLY = re.compile(r"(?:(?:on )?(.+?) of (?:the|each|every) month|(?:month|monthly) on (.+))")
_CRON = re.compile(r"[0-9a-zA-Z*?/,#-]+")
_CRON_SIZES = frozenset({5, 6})
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DAILY = frozenset({"day", "daily", "everyday"})
_WEEKLY_ON = re.compile(r"(?:week|weekly) on (.+)")
_TIMELESS = frozenset({"weekly", "monthly", "week", "month", "yearly", "year", "annually"})


def read(text: str, *, now: datetime, timezone: str = "UTC") -> Rule:
    """Return the rule for a phrase in a zone; the error says what to write instead."""
    if len(text) > MAX_TEXT:
        raise Invalid(FIELD, text, f"use at most {MAX_TEXT} characters")
    return _Reader(text, as_utc(now, "now"), zone(timezone)).read()


class _Reader:
    """A parser of one phrase, relative to an instant in a zone."""

    def __init__(self, text: str, now: datetime, where: ZoneInfo) -> None:
        self._text = text
        self._now = now
        self._zone = where
        self._local_now = now.astimezone(where).replace(tzinfo=UTC, fold=0)
        self._phrase = " ".join(text.lower().split()).rstrip(".!;, ")

    def read(self) -> Rule:
        """Try each grammar in turn; at most one matches."""
        if not self._phrase:
            raise self._refusal(f"say when, for example {EXAMPLES}")
        for reading in (self._formal, self._recurring, self._single):
            rule = reading()
            if rule is not None:
                return rule
        self._refuse_ambiguous()
        raise self._refusal(f"not understood; write for example {EXAMPLES}")

    def _formal(self) -> Rule | None:
        """Read a cron line or an RFC 5545 text."""
        if "freq=" in self._phrase:
            return self._rrule(self._text, self._now)
        words = self._phrase.split(" ")
        starry = self._phrase[0] in "*@" or (self._phrase[0].isdigit() and "*" in self._phrase)
        fields = len(words) in _CRON_SIZES and all(map(_CRON.fullmatch, words))
        if self._phrase in MACROS or (fields and (starry or words[0].isdigit())):
            return rule_builders.cron(self._text, timezone=self._zone.key)
        return None

    def _recurring(self) -> Rule | None:
        every = _EVERY.match(self._phrase)
        phrase = self._phrase[every.end() :] if every else self._phrase
        if phrase == "hourly":
            return rule_builders.cron("@hourly", timezone=self._zone.key)
        head, times = split_times(phrase)
        monthly = _MONTHLY.fullmatch(head)
        if monthly:
            return self._monthly(monthly[1] or monthly[2], times)
        several = _SEVERAL.fullmatch(head) if every else None
        if several and times:
            return self._several(several, times)
        if every:
            return self._every(head, times)
        return self._adverbial(head, times)

    def _every(self, head: str, times: list[int] | None) -> Rule:
        days = self._days(head)
        if days is not None:
            return self._calendar(days, times)
        if head in _TIMELESS:
            raise self._refusal('say which day and time, for example "every monday at 9:00"')
        if times is not None:
            raise self._refusal(f"not understood; write for example {EXAMPLES}")
        length = head if head[:1].isdigit() or head.startswith("p") else f"1 {head}"
        try:
            interval = parse_duration(length)
        except Invalid:
            raise self._refusal(f"not understood; write for example {EXAMPLES}") from None
        return rule_builders.every(interval, anchor=self._now, timezone=self._zone.key)

    def _adverbial(self, head: str, times: list[int] | None) -> Rule | None:
        """Read "daily at noon", "weekends at 10", "mondays at 9"."""
        plural = head.endswith("s") and parse_weekday(head) is not None and len(head) > len("thurs")
        if head in _TIMELESS:
            raise self._refusal('say which day and time, for example "every monday at 9:00"')
        several = parse_weekday(head) is None and self._days(head) is not None
        if plural or (several and not head.startswith("on ")):
            return self._calendar(self._days(head) or 0, times)
        return None

    def _days(self, head: str) -> int | None:
        if head in _DAILY:
            return EVERY_WEEKDAY
        weekly = _WEEKLY_ON.fullmatch(head)
        return parse_days(weekly[1] if weekly else head)

    def _calendar(self, days: int, times: list[int] | None) -> Rule:
        if not times:
            raise self._untimed("at 7:00")
        return rule_builders.calendar(
            [format_clock(time) for time in times],
            weekdays=format_weekdays(days),
            timezone=self._zone.key,
        )

    def _untimed(self, example: str) -> Invalid:
        _, at, words = self._phrase.rpartition(" at ")
        if at:
            return self._refusal(f'"{words}" is no time of day; write for example "{example}"')
        return self._refusal(f'add a time of day, for example "{example}"')

    def _several(self, several: re.Match[str], times: list[int]) -> Rule:
        """Read "every 2 weeks on tuesday at 9"."""
        unit, days = several[2], several[3]
        mask = parse_days(days) if days else None
        if len(times) > 1 or (days and (mask is None or unit == "day")):
            raise self._refusal('write it as "every 2 weeks on tuesday at 9:00", with one time')
        if int(several[1]) == 0:
            raise self._refusal("use a number above zero")
        hour, rest = divmod(times[0], 3600)
        parts = f"FREQ={'DAILY' if unit == 'day' else 'WEEKLY'};INTERVAL={{}}"
        if mask:
            parts += f";BYDAY={','.join(c for n, c in enumerate(CODES) if mask >> n & 1)}"
        parts += f";BYHOUR={hour};BYMINUTE={rest // 60};BYSECOND={rest % 60}"
        # Count from the first occurrence: otherwise it could start the week after next.
        soonest = self._rrule(parts.format(1), self._now)
        first = timetable(soonest).next(self._now)
        return self._rrule(parts.format(several[1]), first.at if first else self._now)

    def _rrule(self, text: str, start: datetime) -> Rule:
        return rule_builders.rrule(text, created_at=start, timezone=self._zone.key)

    def _monthly(self, day: str, times: list[int] | None) -> Rule:
        """Read "first of the month at 9", "last friday of the month at 17:00"."""
        fields = parse_monthday(day)
        if fields is None:
            raise self._refusal('write "first of the month" or "last friday of the month"')
        if not times:
            raise self._untimed("at 9:00")
        if len(times) > 1 or times[0] % 60:
            raise self._refusal("use one time, in whole minutes, for days of the month")
        monthday, weekday = fields
        hour, minute = divmod(times[0] // 60, 60)
        expression = f"{minute} {hour} {monthday} * {weekday}"
        return rule_builders.cron(expression, timezone=self._zone.key)

    def _single(self) -> Rule | None:
        if self._phrase.startswith("in "):
            return self._later(self._phrase.removeprefix("in "))
        if self._phrase.startswith("at "):
            return self._next_time(self._phrase.removeprefix("at "))
        head, times = split_times(self._phrase)
        if _ISO_DATE.match(self._phrase):
            return self._dated(head, times)
        day = self._day(head.removeprefix("on ").removesuffix(","))
        if day is None:
            return None
        if not times or len(times) > 1:
            raise self._refusal('add one time of day, for example "at 9:00"')
        moment = _midnight(self._local_now) + timedelta(days=day, seconds=times[0])
        if head.removeprefix("on ") in {"today", "tomorrow"} or moment > self._local_now:
            return self._once(format_wall(moment))
        return self._once(format_wall(moment + timedelta(days=WEEK)))

    def _day(self, head: str) -> int | None:
        """Return how many days ahead a day is."""
        if head in {"today", "tomorrow"}:
            return int(head == "tomorrow")
        weekday = parse_weekday(head.removeprefix("next ").removeprefix("this "))
        if weekday is None:
            return None
        ahead = (weekday - self._local_now.weekday()) % WEEK
        return ahead or (WEEK if head.startswith("next ") else 0)

    def _later(self, length: str) -> Rule:
        if length == "half an hour":
            length = "30 minutes"
        delta = parse_duration(re.sub(r"^an? ", "1 ", length), field=FIELD)
        return self._once(self._now + delta)

    def _next_time(self, clock: str) -> Rule:
        times = parse_times(clock)
        if not times or len(times) > 1 or clock.isdigit():
            raise self._refusal(
                'write one time such as "at 18:30" for once, or "every day at 18:30"'
            )
        moment = _midnight(self._local_now) + timedelta(seconds=times[0])
        if moment <= self._local_now:
            moment += timedelta(days=1)
        return self._once(format_wall(moment))

    def _dated(self, head: str, times: list[int] | None) -> Rule:
        if _ISO_DATE.fullmatch(head) and times and len(times) == 1:
            return self._once(f"{head}T{format_clock(times[0])}")
        return self._once(self._text.strip())

    def _once(self, at: str | datetime) -> Rule:
        return rule_builders.once(at, now=self._now, timezone=self._zone.key)

    def _refuse_ambiguous(self) -> None:
        if parse_times(self._phrase) and not self._phrase.isdigit():
            raise self._refusal(
                f'write "at {self._phrase}" for once, or "every day at {self._phrase}"'
            )
        if re.fullmatch(r"p?t?[0-9][0-9a-z. ]*[a-z]", self._phrase):
            raise self._refusal(f'write "in {self._phrase}" for once, or "every {self._phrase}"')

    def _refusal(self, advice: str) -> Invalid:
        return Invalid(FIELD, self._text, advice)


def _midnight(wall: datetime) -> datetime:
    return wall.replace(hour=0, minute=0, second=0, microsecond=0)


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
_MAX_MONTHDAY = 31


def parse_times(text: str) -> list[int] | None:
    """Return times as seconds of the day, or None if one of them is not a time."""
    found = [_time(item) for item in _SEPARATOR.split(text.strip())]
    times = [time for time in found if time is not None]
    return times if len(times) == len(found) else None


def split_times(text: str) -> tuple[str, list[int] | None]:
    """Split a phrase into the part before its times, and the times.

    After "at" any time is accepted; without it only what cannot mean anything else (17:00, 5pm,
    noon).
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
    """Return weekdays as a mask, bit 0 being Monday, or None if one of them is not a weekday."""
    mask = 0
    for item in _SEPARATOR.split(text):
        found = _days(item.strip())
        if found is None:
            return None
        mask |= found
    return mask


def parse_weekday(text: str) -> int | None:
    """Return the number of a weekday, Monday being 0; plurals are accepted."""
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
    return int(found[1]) if 1 <= int(found[1]) <= _MAX_MONTHDAY else None


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
