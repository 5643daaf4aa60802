"""RFC 5545 rules: strict parsing into one canonical spelling.

Deliberate differences from the RFC: DTSTART is a slot only if the rule matches it; a DATE as UNTIL
includes that whole day; BYSECOND=60 is rejected; COUNT counts nominal times, so that the second
pass of a repeated hour does not count; UNTIL in UTC is converted to local time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from rota.errors import Invalid
from rota.timing.zones import DAY, EARLIEST, LATEST, as_utc, instant, out_of_range, seconds, zone

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

MAX_TEXT = 16 * 1024
CODES = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
MAX_INTERVAL = 1_000_000_000

_STAMP = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z?))?")
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")
_BYDAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_LINE = re.compile(r"(DTSTART|RRULE|RDATE|EXDATE)((?:;[A-Z-]+=[^:;]*)*):(.*)", re.IGNORECASE)
_MAX_NTH = 53
_UTC_NAMES = frozenset({"UTC", "Etc/UTC"})


class Frequency(IntEnum):
    """Frequency of a rule, from coarse to fine."""

    YEARLY = 0
    MONTHLY = 1
    WEEKLY = 2
    DAILY = 3
    HOURLY = 4
    MINUTELY = 5
    SECONDLY = 6


_RANGES = MappingProxyType(
    {
        "BYMONTH": (1, 12),
        "BYWEEKNO": (-53, 53),
        "BYYEARDAY": (-366, 366),
        "BYMONTHDAY": (-31, 31),
        "BYHOUR": (0, 23),
        "BYMINUTE": (0, 59),
        "BYSECOND": (0, 59),
        "BYSETPOS": (-366, 366),
    }
)
_ORDER = (
    "FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYMONTH", "BYWEEKNO", "BYYEARDAY",
    "BYMONTHDAY", "BYDAY", "BYHOUR", "BYMINUTE", "BYSECOND", "BYSETPOS",
)  # fmt: skip
_BARRED = MappingProxyType(
    {
        "BYWEEKNO": frozenset(Frequency) - {Frequency.YEARLY},
        "BYYEARDAY": frozenset({Frequency.DAILY, Frequency.WEEKLY, Frequency.MONTHLY}),
        "BYMONTHDAY": frozenset({Frequency.WEEKLY}),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A parsed recurrence rule; times are nominal seconds in its zone.

    `byday` holds pairs of weekday (Monday 0) and position (0: every one). Empty tuples mean that
    the part was not given.
    """

    zone: str
    dtstart: int
    freq: Frequency
    interval: int = 1
    count: int | None = None
    until: int | None = None
    wkst: int = 0
    bymonth: tuple[int, ...] = ()
    byweekno: tuple[int, ...] = ()
    byyearday: tuple[int, ...] = ()
    bymonthday: tuple[int, ...] = ()
    byday: tuple[tuple[int, int], ...] = ()
    byhour: tuple[int, ...] = ()
    byminute: tuple[int, ...] = ()
    bysecond: tuple[int, ...] = ()
    bysetpos: tuple[int, ...] = ()
    rdates: tuple[int, ...] = ()
    exdates: tuple[int, ...] = ()
    parts: tuple[tuple[str, str], ...] = ()

    @property
    def elapsed(self) -> bool:
        """Whether the rule follows elapsed time instead of the wall clock."""
        return self.freq >= Frequency.HOURLY

    @property
    def expression(self) -> str:
        """The canonical text."""
        given = dict(self.parts)
        rule = ";".join(f"{name}={given[name]}" for name in _ORDER if name in given)
        lines = [f"DTSTART{_stamp(self.zone, (self.dtstart,))}", f"RRULE:{rule}"]
        if self.rdates:
            lines.append(f"RDATE{_stamp(self.zone, self.rdates)}")
        if self.exdates:
            lines.append(f"EXDATE{_stamp(self.zone, self.exdates)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RecurrenceLines:
    """The lines of a recurrence text by name."""

    rule: str
    start: tuple[str, str] | None
    rdates: tuple[tuple[str, str], ...]
    exdates: tuple[tuple[str, str], ...]

    @property
    def zone(self) -> str | None:
        """The zone of DTSTART, or None if it has none or is missing."""
        if self.start is None:
            return None
        return "UTC" if self.start[1].endswith("Z") else self.start[0] or None


@lru_cache(maxsize=1024)
def parse_recurrence(text: str, where: ZoneInfo, created_at: datetime | None = None) -> Recurrence:
    """Parse a recurrence; without a DTSTART it starts at `created_at`."""
    lines = split_lines(text)
    if lines.start is not None:
        dtstart = _nominal(lines.start, where, "DTSTART")
    elif created_at is not None:
        dtstart = seconds(as_utc(created_at, "created_at").astimezone(where).replace(tzinfo=UTC))
    else:
        raise Invalid("rrule", text, "add a DTSTART line")
    rule = _parse_rule(lines.rule, where, dtstart)
    return replace(
        rule,
        rdates=_nominals(lines.rdates, where, "RDATE"),
        exdates=_nominals(lines.exdates, where, "EXDATE"),
    )


def split_lines(text: str) -> RecurrenceLines:
    """Unfold a recurrence text and sort its lines by name."""
    if len(text) > MAX_TEXT:
        raise Invalid("rrule", text, "use at most 16 KiB of text")
    found: dict[str, list[tuple[str, str]]] = {}
    unfolded = re.sub(r"\r?\n[ \t]", "", text.strip())
    for line in re.split(r"[\r\n]+", unfolded):
        name, zone_name, value = _split_line(line.strip())
        found.setdefault(name, []).append((zone_name, value))
    for name in ("DTSTART", "RRULE"):
        if len(found.get(name, ())) > 1:
            raise Invalid("rrule", text, f"write one {name} line only")
    if "RRULE" not in found:
        raise Invalid("rrule", text, "write a rule such as FREQ=WEEKLY;BYDAY=MO,WE")
    return RecurrenceLines(
        found["RRULE"][0][1],
        found["DTSTART"][0] if "DTSTART" in found else None,
        tuple(found.get("RDATE", ())),
        tuple(found.get("EXDATE", ())),
    )


def _split_line(line: str) -> tuple[str, str, str]:
    if re.match(r"FREQ=", line, re.IGNORECASE) or (";FREQ=" in line.upper() and ":" not in line):
        return "RRULE", "", line
    found = _LINE.fullmatch(line)
    if found is None:
        raise Invalid("rrule", line, "use DTSTART, RRULE, RDATE and EXDATE lines only")
    name, parameters, value = found[1].upper(), found[2], found[3].strip()
    zone_name = ""
    for parameter in parameters.split(";")[1:]:
        key, _, setting = parameter.partition("=")
        if key.upper() == "TZID":
            zone_name = setting.strip('"')
        elif key.upper() != "VALUE" or setting.upper() != "DATE-TIME":
            raise Invalid("rrule", line, f"{name} takes TZID only, and times instead of dates")
    return name, zone_name, value


def _parse_rule(text: str, where: ZoneInfo, dtstart: int) -> Recurrence:
    given: dict[str, str] = {}
    for part in text.upper().rstrip(";").split(";"):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in _ORDER or not equals:
            raise Invalid("rrule", part, f"use the parts {', '.join(_ORDER)}")
        if name in given:
            raise Invalid("rrule", part, f"write {name} once")
        given[name] = value
    if given.get("FREQ") not in Frequency.__members__:
        names = ", ".join(Frequency.__members__)
        raise Invalid("rrule", text, f"begin with FREQ= and one of {names}")
    freq = Frequency[given["FREQ"]]
    rule = Recurrence(
        zone=where.key,
        dtstart=dtstart,
        freq=freq,
        interval=_count(given, "INTERVAL") or 1,
        count=_count(given, "COUNT"),
        until=_until(given["UNTIL"], where) if "UNTIL" in given else None,
        wkst=_weekday(given.get("WKST", "MO")),
        bymonth=_numbers(given, "BYMONTH"),
        byweekno=_numbers(given, "BYWEEKNO"),
        byyearday=_numbers(given, "BYYEARDAY"),
        bymonthday=_numbers(given, "BYMONTHDAY"),
        byday=_bydays(given),
        byhour=_numbers(given, "BYHOUR"),
        byminute=_numbers(given, "BYMINUTE"),
        bysecond=_numbers(given, "BYSECOND"),
        bysetpos=_numbers(given, "BYSETPOS"),
        parts=tuple(given.items()),
    )
    _check_parts(rule, given)
    return rule


def _check_parts(rule: Recurrence, given: dict[str, str]) -> None:
    for name, frequencies in _BARRED.items():
        if name in given and rule.freq in frequencies:
            part = f"{name}={given[name]}"
            raise Invalid("rrule", part, f"does not go with FREQ={rule.freq.name}")
    if rule.count and rule.until is not None:
        raise Invalid("rrule", f"COUNT={rule.count}", "give COUNT or UNTIL, not both")
    if any(position for _, position in rule.byday):
        if rule.freq > Frequency.MONTHLY:
            raise Invalid(
                "rrule", f"BYDAY={given['BYDAY']}", "numbered days need FREQ=MONTHLY or YEARLY"
            )
        if rule.byweekno:
            raise Invalid("rrule", f"BYDAY={given['BYDAY']}", "numbered days exclude BYWEEKNO")
    if rule.bysetpos and not any(name.startswith("BY") and name != "BYSETPOS" for name in given):
        part = f"BYSETPOS={given['BYSETPOS']}"
        raise Invalid("rrule", part, "needs another BY part to pick from")


def _count(given: dict[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INTERVAL))):
        raise Invalid("rrule", f"{name}={text}", f"use a whole number from 1 to {MAX_INTERVAL}")
    number = int(text)
    if not 1 <= number <= MAX_INTERVAL:
        raise Invalid("rrule", f"{name}={text}", f"use a whole number from 1 to {MAX_INTERVAL}")
    given[name] = str(number)
    return number


def _numbers(given: dict[str, str], name: str) -> tuple[int, ...]:
    text = given.get(name)
    if text is None:
        return ()
    low, high = _RANGES[name]
    numbers = set[int]()
    for item in text.split(","):
        number = int(item) if _NUMBER.fullmatch(item.strip()) else high + 1
        if not low <= number <= high or (number == 0 and low < 0):
            span = f"{low} to {high}" if low >= 0 else f"1 to {high}, or -1 to {low} from the end"
            raise Invalid("rrule", f"{name}={item}", f"{name} takes {span}")
        numbers.add(number)
    given[name] = ",".join(map(str, sorted(numbers)))
    return tuple(sorted(numbers))


def _bydays(given: dict[str, str]) -> tuple[tuple[int, int], ...]:
    text = given.get("BYDAY")
    if text is None:
        return ()
    days = set[tuple[int, int]]()
    for item in text.split(","):
        found = _BYDAY.fullmatch(item.strip())
        position = int(found[1] or 0) if found else 0
        if found is None or abs(position) > _MAX_NTH or (found[1] and not position):
            raise Invalid("rrule", f"BYDAY={item}", "BYDAY takes MO to SU, or 1MO, -1FR and so on")
        days.add((CODES.index(found[2]), position))
    given["BYDAY"] = ",".join(f"{n or ''}{CODES[day]}" for day, n in sorted(days))
    return tuple(sorted(days))


def _weekday(text: str) -> int:
    if text not in CODES:
        raise Invalid("rrule", f"WKST={text}", "WKST takes MO to SU")
    return CODES.index(text)


def _until(text: str, where: ZoneInfo) -> int:
    stamp, absolute = _read_stamp(text, "UNTIL")
    if absolute:
        return seconds(stamp.astimezone(where).replace(tzinfo=UTC))
    return seconds(stamp) + (0 if "T" in text else DAY - 1)


def _nominals(lines: tuple[tuple[str, str], ...], where: ZoneInfo, name: str) -> tuple[int, ...]:
    found = {
        _nominal((zone_name, item.strip()), where, name)
        for zone_name, value in lines
        for item in value.split(",")
    }
    return tuple(sorted(found))


def _nominal(line: tuple[str, str], where: ZoneInfo, name: str) -> int:
    zone_name, text = line
    stamp, absolute = _read_stamp(text.upper(), name)
    if "T" not in text.upper():
        raise Invalid("rrule", f"{name}:{text}", "write a date and a time, as 20261224T090000")
    named = zone(zone_name, field="rrule").key if zone_name else "UTC" if absolute else where.key
    same = named == where.key or {named, where.key} <= _UTC_NAMES
    if not same and (name == "DTSTART" or not absolute):
        raise Invalid("rrule", f"{name}:{text}", f"is in {named}, but the rule is in {where.key}")
    if absolute:
        return seconds(stamp.astimezone(where).replace(tzinfo=UTC))
    return seconds(stamp)


def _read_stamp(text: str, name: str) -> tuple[datetime, bool]:
    found = _STAMP.fullmatch(text)
    if found is None:
        raise Invalid("rrule", f"{name}:{text}", "write a time as 20261224T090000, or with a Z")
    year, month, day, hour, minute, second = (int(group or 0) for group in found.groups()[:6])
    try:
        stamp = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise Invalid("rrule", f"{name}:{text}", "there is no such date or time") from None
    if name == "UNTIL":
        stamp = min(stamp, LATEST)
    if not EARLIEST <= stamp <= LATEST:
        raise out_of_range("rrule", f"{name}:{text}")
    return stamp, bool(found[7])


def _stamp(zone_name: str, nominals: tuple[int, ...]) -> str:
    absolute = zone_name == "UTC"
    head = ":" if absolute else f";TZID={zone_name}:"
    return head + ",".join(
        instant(nominal).strftime("%Y%m%dT%H%M%S") + ("Z" if absolute else "")
        for nominal in nominals
    )
