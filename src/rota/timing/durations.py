"""Durations: parsed from the notations of people and ISO 8601, and formatted."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from types import MappingProxyType

from rota.errors import Invalid

MAX_DURATION = timedelta(days=36_525)
"""A hundred years; longer values are taken for errors."""

MAX_TEXT = 100
ADVICE = 'write a length of time such as "30s", "10m", "1h30m", "1d" or "PT10M"'

_SECOND = 1_000_000
_UNITS = MappingProxyType(
    {
        "ms": 1_000,
        "s": _SECOND,
        "sec": _SECOND,
        "second": _SECOND,
        "m": 60 * _SECOND,
        "min": 60 * _SECOND,
        "minute": 60 * _SECOND,
        "h": 3_600 * _SECOND,
        "hr": 3_600 * _SECOND,
        "hour": 3_600 * _SECOND,
        "d": 86_400 * _SECOND,
        "day": 86_400 * _SECOND,
        "w": 604_800 * _SECOND,
        "wk": 604_800 * _SECOND,
        "week": 604_800 * _SECOND,
    }
)
_AMOUNT = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
TOO_MANY_DIGITS = re.compile(r"(?<![0-9.])[1-9][0-9]{15}")
AT_MOST = "use at most 100 years"
_PART = re.compile(rf"({_AMOUNT})\s*([a-z]+)(?:\s*,\s*|\s+and\s+|\s*)")
_ISO = re.compile(
    rf"p(?:(?P<w>{_AMOUNT})w)?(?:(?P<d>{_AMOUNT})d)?"
    rf"(?:t(?=[0-9])(?:(?P<h>{_AMOUNT})h)?(?:(?P<m>{_AMOUNT})m)?(?:(?P<s>{_AMOUNT})s)?)?"
)


def parse_duration(text: str, *, field: str = "duration") -> timedelta:
    """Parse a duration, above zero and at most a hundred years."""
    if len(text) > MAX_TEXT:
        raise Invalid(field, text, ADVICE)
    lowered = text.strip().lower()
    if TOO_MANY_DIGITS.search(lowered):
        raise Invalid(field, text, AT_MOST)
    total = _iso_parts(lowered) if lowered.startswith("p") else _worded_parts(lowered)
    if total is None:
        raise Invalid(field, text, ADVICE)
    microseconds = int(total.to_integral_value(ROUND_HALF_EVEN))
    if microseconds > MAX_DURATION / timedelta(microseconds=1):
        raise Invalid(field, text, AT_MOST)
    return check_duration(timedelta(microseconds=microseconds), field=field, shown=text)


def check_duration(delta: timedelta, *, field: str, shown: str = "") -> timedelta:
    """Return a duration unchanged; raise Invalid unless it is above zero and at most 100 years."""
    if delta <= timedelta():
        raise Invalid(field, shown or str(delta), "use a length of time above zero")
    if delta > MAX_DURATION:
        raise Invalid(field, shown or str(delta), AT_MOST)
    return delta


def from_milliseconds(n: int) -> timedelta:
    """Return a number of milliseconds as a duration, within the limits."""
    return _multiple(n, timedelta(milliseconds=1), "milliseconds")


def from_minutes(n: int) -> timedelta:
    """Return a number of minutes as a duration, within the limits."""
    return _multiple(n, timedelta(minutes=1), "minutes")


def format_duration(delta: timedelta) -> str:
    """Format a duration for people, largest unit first: `1h 30m`, `45s`, `1.5s`."""
    sign = "-" if delta < timedelta() else ""
    days, hours, minutes, rest = _split(abs(delta))
    parts = [f"{n}{unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if n]
    if rest or not parts:
        parts.append(f"{_decimal(rest)}s")
    return sign + " ".join(parts)


def iso_duration(delta: timedelta) -> str:
    """Format a duration in the canonical ISO 8601 notation that Rota stores."""
    sign = "-" if delta < timedelta() else ""
    days, hours, minutes, rest = _split(abs(delta))
    clock = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n)
    if rest or not (days or clock):
        clock += f"{_decimal(rest)}S"
    return f"{sign}P{f'{days}D' if days else ''}{f'T{clock}' if clock else ''}"


def _worded_parts(text: str) -> Decimal | None:
    total, position, used = Decimal(0), 0, set[int]()
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            return None
        unit = part[2] if part[2] in _UNITS else part[2].removesuffix("s")
        size = _UNITS.get(unit)
        if size is None or size in used:
            return None
        used.add(size)
        total += Decimal(part[1]) * size
        position = part.end()
    return total if used and text[-1].isalpha() else None


def _iso_parts(text: str) -> Decimal | None:
    found = _ISO.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    return sum(
        (Decimal(amount) * _UNITS[unit] for unit, amount in found.groupdict().items() if amount),
        Decimal(0),
    )


def _multiple(n: int, unit: timedelta, field: str) -> timedelta:
    if n > MAX_DURATION // unit:
        raise Invalid(field, n, AT_MOST)
    if n <= 0:
        raise Invalid(field, n, "use a number above zero")
    return n * unit


def _split(delta: timedelta) -> tuple[int, int, int, int]:
    hours, rest = divmod(delta.seconds, 3600)
    minutes, whole = divmod(rest, 60)
    return delta.days, hours, minutes, whole * _SECOND + delta.microseconds


def _decimal(microseconds: int) -> str:
    whole, fraction = divmod(microseconds, _SECOND)
    return f"{whole}.{fraction:06}".rstrip("0") if fraction else str(whole)
