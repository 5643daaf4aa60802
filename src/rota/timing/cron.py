"""Cron lines: strict parsing into one canonical spelling, and their nominal times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from rota.errors import Invalid
from rota.timing.patterns import LAST_OF_MONTH, WEEK, ClockTimes, DayPattern, DaySet

MAX_EXPRESSION = 1_000

MACROS = MappingProxyType(
    {
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@hourly": "0 * * * *",
    }
)

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIVE, _SIX = 5, 6
_MAX_NTH = 5


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a cron line: its name in errors, its range, and names for its values."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    @property
    def advice(self) -> str:
        """What this field accepts, as the end of an error."""
        words = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return (
            f"the {self.name} field takes {self.low} to {self.high}{words}, "
            "with lists (1,3), ranges (1-5) and steps (*/10)"
        )


SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
MONTHDAY = Field("day of month", 1, 31)
MONTH = Field("month", 1, 12, _MONTH_NAMES)
WEEKDAY = Field("day of week", 0, 7, _DAY_NAMES)
FIELDS = (SECOND, MINUTE, HOUR, MONTHDAY, MONTH, WEEKDAY)

_RANGE = re.compile(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/([0-9]{1,4}))?")
_NTH = re.compile(r"([a-z0-9]+?)(?:#([0-9]{1,2})|(l))")


@dataclass(frozen=True, slots=True)
class CronField:
    """A parsed field: canonical text, selected values as a mask, and what a mask cannot express."""

    text: str
    mask: int
    last: bool = False
    nth: frozenset[tuple[int, int]] = frozenset()

    @property
    def star(self) -> bool:
        """Whether the field starts with `*`, which decides how the two day fields combine."""
        return self.text.startswith("*")


@dataclass(frozen=True, slots=True)
class CronLine:
    """A parsed cron line with six fields; the seconds are 0 if not given."""

    second: CronField
    minute: CronField
    hour: CronField
    monthday: CronField
    month: CronField
    weekday: CronField
    with_seconds: bool

    @property
    def fields(self) -> tuple[CronField, ...]:
        """The fields as written: seconds only if they were given."""
        rest = (self.minute, self.hour, self.monthday, self.month, self.weekday)
        return (self.second, *rest) if self.with_seconds else rest

    @property
    def expression(self) -> str:
        """The canonical text."""
        return " ".join(part.text for part in self.fields)

    @property
    def weekday_mask(self) -> int:
        """The weekdays with Monday as bit 0; in cron, Sunday is 0 or 7."""
        mask = self.weekday.mask
        sunday = (mask | mask >> WEEK) & 1
        return mask >> 1 & 0b11_1111 | sunday << WEEK - 1

    @property
    def elapsed(self) -> bool:
        """Whether the line follows elapsed time instead of the wall clock."""
        return self.minute.star or self.hour.star


@lru_cache(maxsize=4096)
def parse_cron(expression: str) -> CronLine:
    """Parse a cron line; raise Invalid, which names the wrong field."""
    if len(expression) > MAX_EXPRESSION:
        raise Invalid("cron", expression, f"use at most {MAX_EXPRESSION} characters")
    parts = expression.lower().split()
    if len(parts) == 1 and parts[0].startswith("@"):
        parts = _macro(expression.strip()).split()
    if len(parts) not in {_FIVE, _SIX}:
        raise Invalid(
            "cron",
            expression,
            "write five fields (minute, hour, day of month, month, day of week), "
            "or six with the seconds first",
        )
    texts = parts if len(parts) == _SIX else ["0", *parts]
    second, minute, hour, monthday, month, weekday = map(_parse_field, FIELDS, texts)
    line = CronLine(second, minute, hour, monthday, month, weekday, len(parts) == _SIX)
    if compile_cron(line).next(0) is None:
        raise Invalid("cron", expression, "no such day of month exists, so it never fires")
    return line


def compile_cron(line: CronLine) -> DayPattern:
    """Return the nominal times of a cron line."""
    days = DaySet(
        months=line.month.mask,
        monthdays=line.monthday.mask,
        last=line.monthday.last,
        weekdays=line.weekday_mask,
        nth=line.weekday.nth,
        either=not (line.monthday.star or line.weekday.star),
    )
    return DayPattern(days, ClockTimes(line.hour.mask, line.minute.mask, line.second.mask))


def _macro(word: str) -> str:
    found = MACROS.get(word.lower())
    if found is None:
        raise Invalid("cron", word, f"use one of {', '.join(MACROS)}, or five fields")
    return found


def _parse_field(field: Field, text: str) -> CronField:
    if text == "?" and field in {MONTHDAY, WEEKDAY}:
        text = "*"
    parsed = [_parse_term(field, term) for term in text.split(",")]
    mask = 0
    for term in parsed:
        mask |= term.mask
    if len(parsed) > 1 and any(term.text == "*" for term in parsed):
        raise Invalid("cron", text, f"in the {field.name} field, write * alone or leave it out")
    return CronField(
        ",".join(term.text for term in parsed),
        mask,
        any(term.last for term in parsed),
        frozenset().union(*(term.nth for term in parsed)),
    )


def _parse_term(field: Field, text: str) -> CronField:
    if field is MONTHDAY and text == "l":
        return CronField("L", 0, last=True)
    special = _NTH.fullmatch(text) if field is WEEKDAY else None
    if special and special[1] != "":
        return _parse_nth(text, special)
    found = _RANGE.fullmatch(text)
    if found is None:
        raise Invalid("cron", text, field.advice)
    first, last, step = found.groups()
    if first == "*":
        if last is not None:
            raise Invalid("cron", text, field.advice)
        low, high = field.low, field.high
    else:
        low = _value(field, first, text)
        high = _upper(field, low, last, step, text)
    stride = _stride(field, step, text)
    if high < low:
        return _wrapped(field, (low, high, stride), named=_is_named(first, last), text=text)
    head = "*" if first == "*" else f"{low}" if last is None else f"{low}-{high}"
    mask = sum(1 << n for n in range(low, high + 1, stride))
    canonical = head if step is None else f"{head}/{stride}"
    return CronField("0" if field is WEEKDAY and canonical == "7" else canonical, mask)


def _upper(field: Field, low: int, last: str | None, step: str | None, text: str) -> int:
    if last is not None:
        return _value(field, last, text)
    return low if step is None else field.high


def _stride(field: Field, step: str | None, text: str) -> int:
    if step is None:
        return 1
    stride, span = int(step), field.high - field.low + 1
    if not 1 <= stride <= span:
        raise Invalid("cron", text, f"in the {field.name} field, use a step from 1 to {span}")
    return stride


def _is_named(first: str, last: str | None) -> bool:
    return not first.isdigit() and last is not None and not last.isdigit()


def _wrapped(field: Field, bounds: tuple[int, int, int], *, named: bool, text: str) -> CronField:
    low, high, stride = bounds
    if not named:
        raise Invalid("cron", text, f"in the {field.name} field, begin the range with its low end")
    size = len(field.names)
    values = [field.low + n % size for n in range(low - field.low, high - field.low + size + 1)]
    chosen = sorted(values[::stride])
    return CronField(",".join(map(str, chosen)), sum(1 << n for n in chosen))


def _parse_nth(text: str, found: re.Match[str]) -> CronField:
    day = _value(WEEKDAY, found[1], text) % WEEK
    position = LAST_OF_MONTH if found[3] else int(found[2])
    if not (position == LAST_OF_MONTH or 1 <= position <= _MAX_NTH):
        raise Invalid("cron", text, "in the day of week field, use #1 to #5, or L for the last one")
    canonical = f"{day}L" if found[3] else f"{day}#{position}"
    return CronField(canonical, 0, nth=frozenset({((day - 1) % WEEK, position)}))


def _value(field: Field, word: str, text: str) -> int:
    if word in field.names:
        return field.names.index(word) + field.low
    if not word.isdigit() or len(word) > len("2199") or not field.low <= int(word) <= field.high:
        raise Invalid("cron", text, field.advice)
    return int(word)
