"""IANA zones: local time to UTC and back, with gaps and folds.

Instants and nominal local times are counted in whole seconds since 1970-01-01T00:00, in UTC and in
local time. A nominal time in a datetime is tagged as UTC, which then only means that no zone has
been applied to it yet.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol
from zoneinfo import ZoneInfo, available_timezones

from rota.errors import Invalid
from rota.model.schedules import Fold, Gap

if TYPE_CHECKING:
    from collections.abc import Callable

CACHED_DAYS = 2048

_NO_OFFSET = timedelta()


class Pattern(Protocol):
    """Nominal local times, ascending, independent of zones."""

    def next(self, after: int) -> int | None:
        """Return the first nominal time strictly after one, or None if there is none."""


class ZonedTime(NamedTuple):
    """A nominal time in its zone: its instant, and its pass (0 or 1)."""

    at: int
    nominal: int
    fold: int


@lru_cache(maxsize=1024)
def zone_clock(zone: ZoneInfo) -> ZoneClock:
    """Return the clock of a zone; all rules of a zone share one and its caches."""
    return ZoneClock(zone)


class ZoneClock:
    """Conversion between UTC and the local time of one zone."""

    __slots__ = ("_at_midnight", "steady", "zone")

    def __init__(self, zone: ZoneInfo) -> None:
        self.zone = zone
        self._at_midnight = lru_cache(CACHED_DAYS)(lambda day: self.offset(day * DAY))
        self.steady: Callable[[int], int | None] = lru_cache(CACHED_DAYS)(self._steady)

    def _steady(self, day: int) -> int | None:
        """Return the offset of a day if it does not change on it and its neighbours, else None.

        For all but a few days a year this cached number is sufficient.
        """
        offset = self._at_midnight(day)
        for other in (day + 2, day + 1, day - 1):
            if self._at_midnight(other) != offset:
                return None
        return offset

    def local(self, at: int) -> tuple[int, int, int]:
        """Return the nominal time of an instant, and the offsets of its first and second pass.

        The offsets differ only while local time repeats.
        """
        moment = (EPOCH + timedelta(0, at)).astimezone(self.zone)
        offset = _offset(moment)
        other = _offset(moment.replace(fold=1 - moment.fold))
        return (at + offset, other, offset) if moment.fold else (at + offset, offset, other)

    def offsets(self, nominal: int) -> tuple[int, int]:
        """Return the offsets of a nominal time in its first and second pass.

        Equal: it occurs once. First larger: it occurs twice. First smaller: it does not exist.
        """
        moment = (EPOCH + timedelta(0, nominal)).replace(tzinfo=self.zone)
        return _offset(moment), _offset(moment.replace(fold=1))

    def offset(self, at: int) -> int:
        """Return the offset of local time from UTC at an instant, in seconds."""
        return _offset((EPOCH + timedelta(0, at)).astimezone(self.zone))

    def change(self, low: int, high: int) -> int:
        """Return the instant at which the offset changes after `low`, at the latest `high`."""
        before = self.offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset(middle) == before:
                low = middle
            else:
                high = middle
        return high

    def place(self, nominal: int, gap: Gap, fold: Fold) -> int | None:
        """Return the instant of a nominal time, or None if it is in a gap and gaps are skipped."""
        first, second = self.offsets(nominal)
        if first < second:
            return self.change(nominal - second, nominal - first) if gap is Gap.SHIFT else None
        return nominal - (second if fold is Fold.SECOND else first)


class ZoneClockCursor:
    """A pattern in a zone: its slots in the order of their instants.

    `elapsed` patterns follow elapsed time: they run in both passes of a repeated hour and not in a
    skipped one, unless that would skip all of a day's slots. Other patterns follow local time: a
    nominal time that does not exist moves to the first instant after the gap, and one that occurs
    twice runs in the pass that `fold` selects. A gap moves at most one slot, and none if the
    pattern has a slot at the end of the gap anyway.
    """

    __slots__ = ("_clock", "_elapsed", "_first", "_pattern", "_second", "_shift")

    def __init__(
        self, wall: ZoneClock, pattern: Pattern, *, elapsed: bool, gap: Gap, fold: Fold
    ) -> None:
        self._clock = wall
        self._pattern = pattern
        self._elapsed = elapsed
        self._shift = gap is Gap.SHIFT
        self._first = elapsed or fold is not Fold.SECOND
        self._second = elapsed or fold is not Fold.FIRST

    def next(self, at: int) -> ZonedTime | None:
        """Return the first slot strictly after an instant."""
        offset = self._clock.steady(at // DAY)
        if offset is not None:
            return self._place(self._pattern.next(at + offset))
        nominal, first, second = self._clock.local(at)
        if first > second:
            return self._next_within_fold(at, first, second)
        return self._place(self._pattern.next(nominal))

    def _place(self, nominal: int | None) -> ZonedTime | None:
        """Return a nominal time that is not past, or the next one that exists, with its instant."""
        while nominal is not None and nominal <= LAST_SECOND + DAY:
            offset = self._clock.steady(nominal // DAY)
            if offset is not None:
                return ZonedTime(nominal - offset, nominal, 0)
            first, second = self._clock.offsets(nominal)
            if first == second:
                return ZonedTime(nominal - first, nominal, 0)
            if first > second:
                return self._place_repeated(nominal, first, second)
            change = self._clock.change(nominal - second, nominal - first)
            resumed = change + second
            regular = self._pattern.next(resumed - 1)
            if self._shift and regular != resumed:
                moved = (
                    self._only_time_of_day(nominal, resumed, regular) if self._elapsed else nominal
                )
                if moved is not None:
                    return ZonedTime(change, moved, 0)
            nominal = regular
        return None

    def _only_time_of_day(
        self, nominal: int | None, resumed: int, regular: int | None
    ) -> int | None:
        """Return the first time in the gap on a day that has no times outside it, if any."""
        while nominal is not None and nominal < resumed:
            midnight = nominal - nominal % DAY
            none_after = regular is None or regular >= midnight + DAY
            if none_after and self._pattern.next(midnight - 1) == nominal:
                return nominal
            nominal = self._pattern.next(midnight + DAY - 1)
        return None

    def _place_repeated(self, nominal: int, first: int, second: int) -> ZonedTime:
        if self._first:
            return ZonedTime(nominal - first, nominal, 0)
        return ZonedTime(nominal - second, nominal, 1)

    def _next_within_fold(self, at: int, first: int, second: int) -> ZonedTime | None:
        """Continue from an instant whose local time occurs twice."""
        nominal = at + first
        change = self._change_of(at, first, second)
        in_first_pass = at < change
        if not in_first_pass:
            nominal = at + second
        begins, ends = change + second, change + first
        if in_first_pass and self._first:
            found = self._pattern.next(nominal)
            if found is not None and found < ends:
                return ZonedTime(found - first, found, 0)
        if self._second:
            found = self._pattern.next(begins - 1 if in_first_pass else nominal)
            if found is not None and found < ends:
                return ZonedTime(found - second, found, 1)
        return self._place(self._pattern.next(ends - 1))

    def _change_of(self, at: int, first: int, second: int) -> int:
        length = first - second
        if self._clock.offset(at) == first:
            return self._clock.change(at, at + length)
        return self._clock.change(at - length, at)


def _offset(moment: datetime) -> int:
    offset = moment.utcoffset() or _NO_OFFSET
    return offset.days * DAY + offset.seconds


MAX_NAME = 64

_SHAPE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}")


def zone(name: str, *, field: str = "timezone") -> ZoneInfo:
    """Return the zone of an IANA name, case-sensitive; the error suggests a similar name."""
    found = _find(name) if _SHAPE.fullmatch(name) and len(name) <= MAX_NAME else None
    if found is None:
        raise Invalid(field, name, _advice(name))
    return found


@lru_cache(maxsize=1024)
def _find(name: str) -> ZoneInfo | None:
    # Only known names: the zone folder also holds files that are not zones, and "localtime"
    # would make a schedule depend on the machine.
    return ZoneInfo(name) if name in _names() else None


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(available_timezones() - {"localtime", "Factory", "posixrules"})


def _advice(name: str) -> str:
    if len(name) <= MAX_NAME:
        typed = name.strip().replace(" ", "_").casefold()
        by_fold = {known.casefold(): known for known in _names()}
        by_city = {known.rsplit("/", 1)[-1].casefold(): known for known in sorted(_names())}
        known = by_fold | {city: full for city, full in by_city.items() if city not in by_fold}
        close = get_close_matches(typed, known, n=1, cutoff=0.7)
        if close:
            return f"did you mean {known[close[0]]}?"
    return "use an IANA name such as Europe/Berlin or UTC"


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(2199, 12, 31, 23, 59, 59, tzinfo=UTC)
"""Bounds of rules and slots, so that every search ends."""

DAY = 86_400
UNIX_DAY_ONE = EPOCH.toordinal()
TICK = timedelta(microseconds=1)


def seconds(moment: datetime) -> int:
    """Return an aware instant in whole seconds since 1970, rounded down."""
    since = moment - EPOCH
    return since.days * DAY + since.seconds


LAST_SECOND = seconds(LATEST)


def instant(count: int) -> datetime:
    """Return a count of seconds as a UTC instant, or as a nominal time."""
    return EPOCH + timedelta(0, count)


def day_number(day: date) -> int:
    """Return a date as days since 1970-01-01."""
    return day.toordinal() - UNIX_DAY_ONE


def calendar_day(number: int) -> date:
    """Return the date of a number of days after 1970-01-01."""
    return date.fromordinal(number + UNIX_DAY_ONE)


def as_utc(moment: datetime, field: str) -> datetime:
    """Return an aware datetime in UTC; raise Invalid unless it is between EARLIEST and LATEST."""
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise Invalid(field, moment.isoformat(), "give it a time zone, for example +00:00")
    try:
        placed = moment.astimezone(UTC)
    except OverflowError:
        raise out_of_range(field, moment.isoformat()) from None
    if not EARLIEST <= placed <= LATEST:
        raise out_of_range(field, moment.isoformat())
    return placed


def out_of_range(field: str, value: str) -> Invalid:
    """Return the error for a time outside EARLIEST and LATEST."""
    return Invalid(field, value, "use a time between the years 1900 and 2199")
