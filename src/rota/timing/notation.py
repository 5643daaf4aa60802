"""Parse and format clock times, weekdays, dates and moments."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from rota.errors import Invalid
from rota.timing.patterns import EVERY_WEEKDAY, WEEK
from rota.timing.zones import DAY, EARLIEST, LATEST, as_utc, out_of_range, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WEEKDAY_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
WEEKDAY_NUMBERS = MappingProxyType(
    {name: n % WEEK for n, name in enumerate((*WEEKDAYS, *WEEKDAY_NAMES))}
    | {"tues": 1, "weds": 2, "thur": 3, "thurs": 3}
)
WORKDAYS, WEEKEND = 0b001_1111, 0b110_0000
WEEKDAY_GROUPS = MappingProxyType({"weekdays": WORKDAYS, "weekends": WEEKEND})
WEEKDAY_ADVICE = "name weekdays as mon to sun, single (mon), listed (mon,wed) or as mon-fri"

MAX_ENTRIES = 1_000
MAX_ENTRY = 1_000
_SHORT_RUN = 2

_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,6})?)?)"
    r"( ?[Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)


def split_entries(value: Sequence[str] | str, field: str, separator: str = ",") -> list[str]:
    """Return a list of trimmed texts; a single text is split at its separators."""
    if isinstance(value, str):
        if len(value) > MAX_ENTRIES * MAX_ENTRY // 10:
            raise Invalid(field, value, f"use at most {MAX_ENTRIES} entries")
        value = value.split(separator) if value.strip() else []
    if len(value) > MAX_ENTRIES:
        raise Invalid(field, f"{len(value)} entries", f"use at most {MAX_ENTRIES}")
    return [_entry(item, field) for item in value]


def parse_clock(text: str, field: str, *, end_of_day: bool = False) -> int:
    """Parse HH:MM or HH:MM:SS as a second of the day; 24:00 only if `end_of_day`."""
    found = _CLOCK.fullmatch(text.strip())
    if found:
        hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
        count = hour * 3600 + minute * 60 + second
        if minute < 60 and second < 60 and (count < DAY or (count == DAY and end_of_day)):  # noqa: PLR2004 - minutes and seconds
            return count
    raise Invalid(field, text, "write a time of day such as 07:00 or 17:30:15")


def format_clock(count: int) -> str:
    """Format a second of the day as HH:MM, or HH:MM:SS if it has seconds."""
    hour, rest = divmod(count, 3600)
    minute, second = divmod(rest, 60)
    return f"{hour:02}:{minute:02}:{second:02}" if second else f"{hour:02}:{minute:02}"


def parse_weekdays(text: str, field: str) -> int:
    """Parse weekdays and ranges of them as a mask, bit 0 being Monday."""
    mask = 0
    for item in text.lower().split(","):
        word = item.strip()
        group = WEEKDAY_GROUPS.get(word)
        if group is not None:
            mask |= group
            continue
        first, dash, last = (part.strip() for part in word.partition("-"))
        low, high = WEEKDAY_NUMBERS.get(first), WEEKDAY_NUMBERS.get(last if dash else first)
        if low is None or high is None:
            raise Invalid(field, item, WEEKDAY_ADVICE)
        for step in range((high - low) % WEEK + 1):
            mask |= 1 << (low + step) % WEEK
    return mask


def format_weekdays(mask: int) -> str:
    """Format a mask of weekdays: `mon-fri`, `sat,sun`, `mon,wed`."""
    runs: list[list[int]] = []
    for day in range(WEEK):
        if mask >> day & 1:
            if runs and runs[-1][-1] == day - 1:
                runs[-1].append(day)
            else:
                runs.append([day])
    return ",".join(
        ",".join(WEEKDAYS[day] for day in run)
        if len(run) <= _SHORT_RUN
        else f"{WEEKDAYS[run[0]]}-{WEEKDAYS[run[-1]]}"
        for run in runs
    )


def parse_date(text: str, field: str) -> date:
    """Parse a YYYY-MM-DD."""
    plain = text.strip()
    if not _DATE.fullmatch(plain):
        raise Invalid(field, text, "write a date as YYYY-MM-DD")
    try:
        day = date.fromisoformat(plain)
    except ValueError:
        raise Invalid(field, text, "there is no such date") from None
    if not EARLIEST.date() <= day <= LATEST.date():
        raise out_of_range(field, text)
    return day


def parse_moment(value: str | datetime, field: str) -> tuple[datetime, bool]:
    """Return a moment and whether it is absolute.

    An absolute moment is an instant in UTC; otherwise it is a wall time without a zone.
    """
    moment = _moment_of_text(value, field) if isinstance(value, str) else value
    if moment.tzinfo is not None:
        return as_utc(moment, field), True
    wall = moment.replace(tzinfo=UTC, fold=0)
    if not EARLIEST <= wall <= LATEST:
        raise out_of_range(field, str(value))
    return wall, False


def instant_in(value: str | datetime, zone: ZoneInfo, field: str) -> datetime:
    """Return a moment as an instant; a wall time is in `zone`, in its first pass if it repeats."""
    moment, absolute = parse_moment(value, field)
    return moment if absolute else moment.replace(tzinfo=zone).astimezone(UTC)


def format_wall(wall: datetime) -> str:
    """Format a wall time as ISO text, with seconds only if it has any."""
    text = wall.replace(tzinfo=None).isoformat()
    return text.removesuffix(":00") if seconds(wall) % 60 == 0 and not wall.microsecond else text


def format_instant(moment: datetime) -> str:
    """Format an instant as ISO text in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def is_every_weekday(mask: int) -> bool:
    """Whether a mask holds all weekdays."""
    return mask == EVERY_WEEKDAY


def _entry(item: str, field: str) -> str:
    if len(item) > MAX_ENTRY:
        raise Invalid(field, item, f"use at most {MAX_ENTRY} characters")
    return item.strip()


def _moment_of_text(text: str, field: str) -> datetime:
    plain = text.strip() if len(text) <= MAX_ENTRY else ""
    if _DATE.fullmatch(plain):
        raise Invalid(field, text, "add a time of day, for example T09:00")
    found = _MOMENT.fullmatch(plain)
    if found is None:
        raise Invalid(field, text, "write a time as 2026-12-24T09:00, with Z or +01:00 if absolute")
    day, clock, offset = found[1], found[2].replace(",", "."), (found[3] or "").strip().upper()
    try:
        return datetime.fromisoformat(f"{day}T{clock}{offset}")
    except ValueError:
        raise Invalid(field, text, "there is no such date or time") from None
