"""Recurrence rules, read naively: a period is written out whole, and a day looks for itself in it.

Only the parts that the oracle's rules use are understood; any other is an error.
"""

from __future__ import annotations

from calendar import isleap, monthrange
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache

DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
UNITS = {"HOURLY": 3600, "MINUTELY": 60, "SECONDLY": 1}
KNOWN = frozenset({
    "FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYMONTH", "BYWEEKNO", "BYYEARDAY",
    "BYMONTHDAY", "BYDAY", "BYHOUR", "BYMINUTE", "BYSECOND", "BYSETPOS",
})  # fmt: skip
ONE_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Recurrence:
    """The lines of a text; times are nominal."""

    start: datetime
    parts: dict[str, str]
    added: frozenset[datetime]
    removed: frozenset[datetime]

    def numbers(self, name: str) -> list[int]:
        return [int(n) for n in self.parts.get(name, "").split(",") if n]

    @property
    def freq(self) -> str:
        return self.parts["FREQ"]

    @property
    def interval(self) -> int:
        return int(self.parts.get("INTERVAL", 1))


@lru_cache(maxsize=10_000)
def read(text: str) -> Recurrence:
    found: dict[str, list[str]] = {"RDATE": [], "EXDATE": []}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name, []).extend(value.split(","))
    rule = ",".join(found.pop("RRULE"))
    parts = dict(part.split("=") for part in rule.split(";"))
    if unknown := parts.keys() - KNOWN:
        raise ValueError(f"the oracle cannot read {unknown} of {text}")
    added, removed = (frozenset(map(_stamp, found.pop(name))) for name in ("RDATE", "EXDATE"))
    (start,) = found.pop("DTSTART")
    if found:
        raise ValueError(f"the oracle cannot read {found} of {text}")
    return Recurrence(_stamp(start), parts, added, removed)


def follows_elapsed_time(text: str) -> bool:
    """Whether a rule goes on with the time that passes."""
    return read(text).freq in UNITS


@lru_cache(maxsize=100_000)
def recurrence_wants(text: str, day: date) -> dict[int, tuple[int, ...]]:
    """Return the seconds wanted in each wanted minute of a day."""
    rule = read(text)
    times = set(_within_bounds(text, day)) | {t for t in rule.added if t.date() == day}
    wanted: dict[int, tuple[int, ...]] = {}
    for time in sorted(times - rule.removed):
        clock = time.hour * 60 + time.minute
        wanted[clock] = (*wanted.get(clock, ()), time.second)
    return wanted


def _within_bounds(text: str, day: date) -> list[datetime]:
    rule = read(text)
    times = [time for time in _regular(text, day) if time >= rule.start]
    if until := rule.parts.get("UNTIL"):
        times = [time for time in times if time <= _stamp(until)]
    if count := rule.parts.get("COUNT"):
        times = [time for time in times if time in _counted(text, int(count))]
    return times


@lru_cache(maxsize=1_000)
def _counted(text: str, count: int) -> frozenset[datetime]:
    rule, found = read(text), list[datetime]()
    day = rule.start.date()
    while len(found) < count:
        found += [time for time in _regular(text, day) if time >= rule.start]
        day += ONE_DAY
    return frozenset(found[:count])


@lru_cache(maxsize=100_000)
def _regular(text: str, day: date) -> list[datetime]:
    """Return the times of a day by FREQ, INTERVAL and the BY parts alone."""
    rule = read(text)
    if rule.freq in UNITS:
        return _units(rule, day)
    number, first, last = _period(rule, day)
    if (number - _period(rule, rule.start.date())[0]) % rule.interval:
        return []
    days = [first + n * ONE_DAY for n in range((last - first).days + 1)]
    times = [
        datetime(d.year, d.month, d.day, hour, minute, second)
        for d in days
        if _is_day(rule, d)
        for hour in rule.numbers("BYHOUR") or [rule.start.hour]
        for minute in rule.numbers("BYMINUTE") or [rule.start.minute]
        for second in rule.numbers("BYSECOND") or [rule.start.second]
    ]
    if places := rule.numbers("BYSETPOS"):
        picked = {n - 1 if n > 0 else len(times) + n for n in places}
        times = [time for n, time in enumerate(times) if n in picked]
    return [time for time in times if time.date() == day]


def _units(rule: Recurrence, day: date) -> list[datetime]:
    if not _is_day(rule, day):
        return []
    unit = UNITS[rule.freq]
    midnight = datetime(day.year, day.month, day.day)
    since_start = int((midnight - rule.start.replace(minute=0, second=0)).total_seconds())
    if unit < UNITS["HOURLY"]:
        since_start -= rule.start.minute * 60
    if unit < UNITS["MINUTELY"]:
        since_start -= rule.start.second
    step = unit * rule.interval
    begins = [n for n in range(0, 24 * 3600, unit) if (since_start + n) % step == 0]
    return [
        time
        for n in begins
        for time in _inside(rule, midnight + timedelta(seconds=n), unit)
        if _is_time(rule, time)
    ]


def _inside(rule: Recurrence, begin: datetime, unit: int) -> list[datetime]:
    minutes = rule.numbers("BYMINUTE") or [rule.start.minute]
    seconds = rule.numbers("BYSECOND") or [rule.start.second]
    return [
        begin.replace(minute=minute, second=second)
        for minute in (minutes if unit == UNITS["HOURLY"] else [begin.minute])
        for second in (seconds if unit > UNITS["SECONDLY"] else [begin.second])
    ]


def _is_time(rule: Recurrence, time: datetime) -> bool:
    return all(
        value in (rule.numbers(name) or [value])
        for name, value in (
            ("BYHOUR", time.hour),
            ("BYMINUTE", time.minute),
            ("BYSECOND", time.second),
        )
    )


def _period(rule: Recurrence, day: date) -> tuple[int, date, date]:
    """Return the number of the period a day lies in, its first day and its last."""
    match rule.freq:
        case "YEARLY":
            return day.year, date(day.year, 1, 1), date(day.year, 12, 31)
        case "MONTHLY":
            length = monthrange(day.year, day.month)[1]
            return day.year * 12 + day.month, day.replace(day=1), day.replace(day=length)
        case "WEEKLY":
            first = day
            while DAYS[first.weekday()] != rule.parts.get("WKST", "MO"):
                first -= ONE_DAY
            return first.toordinal() // 7, first, first + 6 * ONE_DAY
        case "DAILY":
            return day.toordinal(), day, day
    raise ValueError(rule.freq)


def _is_day(rule: Recurrence, day: date) -> bool:
    length = monthrange(day.year, day.month)[1]
    year_length = 365 + isleap(day.year)
    year_day = day.timetuple().tm_yday
    chosen = {
        "BYMONTH": {day.month},
        "BYMONTHDAY": {day.day, day.day - length - 1},
        "BYYEARDAY": {year_day, year_day - year_length - 1},
        "BYWEEKNO": {day.isocalendar().week},
    }
    if any(
        name in rule.parts and not wanted.intersection(rule.numbers(name))
        for name, wanted in chosen.items()
    ):
        return False
    if by_day := rule.parts.get("BYDAY"):
        return any(_is_weekday(rule, item, day) for item in by_day.split(","))
    return _is_by_default(rule, day)


def _is_weekday(rule: Recurrence, item: str, day: date) -> bool:
    if DAYS[day.weekday()] != item[-2:]:
        return False
    if len(item) == 2:
        return True
    if rule.freq == "YEARLY" and "BYMONTH" not in rule.parts:
        first, last = date(day.year, 1, 1), date(day.year, 12, 31)
    else:
        first, last = day.replace(day=1), day.replace(day=monthrange(day.year, day.month)[1])
    from_start, from_end = (day - first).days // 7 + 1, -((last - day).days // 7 + 1)
    return int(item[:-2]) in {from_start, from_end}


def _is_by_default(rule: Recurrence, day: date) -> bool:
    """What a rule without days takes from its start."""
    if {"BYMONTHDAY", "BYYEARDAY"} & rule.parts.keys():
        return True
    if rule.freq == "WEEKLY" or "BYWEEKNO" in rule.parts:
        return day.weekday() == rule.start.weekday()
    if rule.freq == "MONTHLY":
        return day.day == rule.start.day
    if rule.freq == "YEARLY":
        in_month = "BYMONTH" in rule.parts or day.month == rule.start.month
        return in_month and day.day == rule.start.day
    return True


def _stamp(text: str) -> datetime:
    return datetime.fromisoformat(text)
