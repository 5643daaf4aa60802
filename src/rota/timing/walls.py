"""Wall clocks: where nominal local times lie in UTC, and what daylight saving does to them."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rota.model.schedules import Fold, Gap
from rota.timing.instants import DAY, EPOCH, LAST_SECOND

if TYPE_CHECKING:
    from collections.abc import Callable
    from zoneinfo import ZoneInfo

REMEMBERED_DAYS = 2048

_NO_OFFSET = timedelta()


class Pattern(Protocol):
    """Nominal local times, ascending, without regard to any zone."""

    def next(self, after: int) -> int | None:
        """Return the first nominal time strictly after one, or None when there is none left."""


class Placed(NamedTuple):
    """A nominal time in its zone: the instant, the nominal time and the pass (0 or 1)."""

    at: int
    nominal: int
    fold: int


@lru_cache(maxsize=1024)
def wall_of(zone: ZoneInfo) -> Wall:
    """Return the wall clock of a zone; all rules of a zone share one, and what it remembers."""
    return Wall(zone)


class Wall:
    """The clock on the wall of one zone."""

    __slots__ = ("_at_midnight", "steady", "zone")

    def __init__(self, zone: ZoneInfo) -> None:
        self.zone = zone
        self._at_midnight = lru_cache(REMEMBERED_DAYS)(lambda day: self.offset(day * DAY))
        self.steady: Callable[[int], int | None] = lru_cache(REMEMBERED_DAYS)(self._steady)

    def _steady(self, day: int) -> int | None:
        """Return the offset of a day if neither it nor its neighbours see a change, else None.

        Near every slot but a few a year this one remembered number is all that is needed.
        """
        offset = self._at_midnight(day)
        for other in (day + 2, day + 1, day - 1):
            if self._at_midnight(other) != offset:
                return None
        return offset

    def local(self, at: int) -> tuple[int, int, int]:
        """Return the nominal time of an instant, and the offsets of its first and second pass.

        They differ only while a stretch of the day is repeated.
        """
        moment = (EPOCH + timedelta(0, at)).astimezone(self.zone)
        offset = _offset(moment)
        other = _offset(moment.replace(fold=1 - moment.fold))
        return (at + offset, other, offset) if moment.fold else (at + offset, offset, other)

    def offsets(self, nominal: int) -> tuple[int, int]:
        """Return the offsets of a nominal time for its first and its second pass.

        Equal: it happens once. First larger: it happens twice. First smaller: it does not exist.
        """
        moment = (EPOCH + timedelta(0, nominal)).replace(tzinfo=self.zone)
        return _offset(moment), _offset(moment.replace(fold=1))

    def offset(self, at: int) -> int:
        """Return how far the wall is ahead of UTC at an instant."""
        return _offset((EPOCH + timedelta(0, at)).astimezone(self.zone))

    def change(self, low: int, high: int) -> int:
        """Return the instant of the one change of offset after `low`, at the latest at `high`."""
        before = self.offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset(middle) == before:
                low = middle
            else:
                high = middle
        return high

    def place(self, nominal: int, gap: Gap, fold: Fold) -> int | None:
        """Return the instant of one nominal time, or None if it does not exist and gaps skip."""
        first, second = self.offsets(nominal)
        if first < second:
            return self.change(nominal - second, nominal - first) if gap is Gap.SHIFT else None
        return nominal - (second if fold is Fold.SECOND else first)


class Walk:
    """A pattern on a wall: its slots in the order of their instants.

    `elapsed` patterns follow the time that passes: they run in both passes of a repeated stretch
    and not at all in one that is left out, unless it takes all that they have of a day. The others
    keep to the wall: a nominal time that does not exist moves to the first instant after the gap,
    and one that happens twice runs in the pass `fold` names. A gap moves at most one slot, and none
    if the pattern has the instant after it anyway.
    """

    __slots__ = ("_elapsed", "_first", "_pattern", "_second", "_shift", "_wall")

    def __init__(
        self, wall: Wall, pattern: Pattern, *, elapsed: bool, gap: Gap, fold: Fold
    ) -> None:
        self._wall = wall
        self._pattern = pattern
        self._elapsed = elapsed
        self._shift = gap is Gap.SHIFT
        self._first = elapsed or fold is not Fold.SECOND
        self._second = elapsed or fold is not Fold.FIRST

    def next(self, at: int) -> Placed | None:
        """Return the first slot strictly after an instant."""
        offset = self._wall.steady(at // DAY)
        if offset is not None:
            return self._place(self._pattern.next(at + offset))
        nominal, first, second = self._wall.local(at)
        if first > second:
            return self._next_within_fold(at, first, second)
        return self._place(self._pattern.next(nominal))

    def _place(self, nominal: int | None) -> Placed | None:
        """Place a nominal time that is not behind us, or the next one that exists."""
        while nominal is not None and nominal <= LAST_SECOND + DAY:
            offset = self._wall.steady(nominal // DAY)
            if offset is not None:
                return Placed(nominal - offset, nominal, 0)
            first, second = self._wall.offsets(nominal)
            if first == second:
                return Placed(nominal - first, nominal, 0)
            if first > second:
                return self._twice(nominal, first, second)
            change = self._wall.change(nominal - second, nominal - first)
            resumed = change + second
            regular = self._pattern.next(resumed - 1)
            if self._shift and regular != resumed:
                moved = self._alone(nominal, resumed, regular) if self._elapsed else nominal
                if moved is not None:
                    return Placed(change, moved, 0)
            nominal = regular
        return None

    def _alone(self, nominal: int | None, resumed: int, regular: int | None) -> int | None:
        """Return the first of a gap's times on a day that has no time outside it, if any."""
        while nominal is not None and nominal < resumed:
            midnight = nominal - nominal % DAY
            none_after = regular is None or regular >= midnight + DAY
            if none_after and self._pattern.next(midnight - 1) == nominal:
                return nominal
            nominal = self._pattern.next(midnight + DAY - 1)
        return None

    def _twice(self, nominal: int, first: int, second: int) -> Placed:
        if self._first:
            return Placed(nominal - first, nominal, 0)
        return Placed(nominal - second, nominal, 1)

    def _next_within_fold(self, at: int, first: int, second: int) -> Placed | None:
        """Go on from an instant whose wall time happens twice."""
        nominal = at + first
        change = self._change_of(at, first, second)
        in_first_pass = at < change
        if not in_first_pass:
            nominal = at + second
        begins, ends = change + second, change + first
        if in_first_pass and self._first:
            found = self._pattern.next(nominal)
            if found is not None and found < ends:
                return Placed(found - first, found, 0)
        if self._second:
            found = self._pattern.next(begins - 1 if in_first_pass else nominal)
            if found is not None and found < ends:
                return Placed(found - second, found, 1)
        return self._place(self._pattern.next(ends - 1))

    def _change_of(self, at: int, first: int, second: int) -> int:
        length = first - second
        if self._wall.offset(at) == first:
            return self._wall.change(at, at + length)
        return self._wall.change(at - length, at)


def _offset(moment: datetime) -> int:
    offset = moment.utcoffset() or _NO_OFFSET
    return offset.days * DAY + offset.seconds
