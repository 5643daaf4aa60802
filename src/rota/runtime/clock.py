"""Clocks: the system's, a steady one, one for leases; marks of zone data.

A clock that leaps forward makes every lease look as if it had run out while its holder still works,
and whoever has just started cannot know whether it has leapt. Who lives renews within the length of
its lease. So a lease is judged only by a clock that was seen to go evenly for that long.

A clock that is wrong for a minute would otherwise fire or pass over every slot up to the wrong
time, and a cursor never moves back.
"""

from __future__ import annotations

import logging
import time
import zoneinfo
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from importlib import resources
from pathlib import Path

from rota.model.clock_jumps import Leap
from rota.ports.clock import Clock
from rota.rules.plans import GRACE


def _count() -> float:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class SystemClock:
    """This machine's time."""

    def now(self) -> datetime:
        """Return the current instant in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since this machine started, sleep included where the system counts it."""
        return _count()


log = logging.getLogger(__name__)

MAX_LEAP_SECONDS = 600.0
PROBATION_SECONDS = 60.0


class SteadyClock:
    """Compares the store's time with this machine's count of seconds, which includes sleep.

    Time may leap forward by ten minutes at most. After a larger leap it is trusted again when it
    has gone on evenly for a minute, or at once when it has leapt back to where it should be. `leap`
    and `returned` tell that it leapt forward, and that it leapt back, until that is noted.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset: float | None = None
        self._probation_ends: float | None = None
        self._new_offset = 0.0
        self._seen: tuple[int, float] | None = None
        self.leap: Leap | None = None
        self.returned = False

    def trusts(self, now: int) -> bool:
        """Return whether an instant of the store fits what came before."""
        counted = self._clock.monotonic()
        offset = now / 1_000_000 - counted
        self._watch(now, offset)
        if self._offset is None or offset - self._offset <= MAX_LEAP_SECONDS:
            self._offset, self._probation_ends = offset, None
            return True
        if self._probation_ends is None or abs(offset - self._new_offset) > MAX_LEAP_SECONDS:
            log.error("clock.leapt", extra={"seconds": round(offset - self._offset)})
            self._new_offset = offset
            self._probation_ends = counted + PROBATION_SECONDS
        if counted < self._probation_ends:
            return False
        log.warning("clock.trusted_again", extra={"seconds": round(offset - self._offset)})
        self._offset, self._probation_ends = offset, None
        return True

    def _watch(self, now: int, offset: float) -> None:
        """Notice leaps: those that make slots look missed, and any back."""
        before, was = self._seen or (now, offset)
        leapt, grace = offset - was, GRACE.total_seconds()
        self._seen = now, offset
        if leapt > grace:
            # It leapt since the last look; who slept since then knows no better than a minute.
            self.leap = Leap(max(before, now - int((leapt + grace) * 1_000_000)), now)
        elif leapt < -TOLERANCE_SECONDS:
            self.leap, self.returned = None, True


@lru_cache(maxsize=1)
def zone_data_mark() -> str:
    """Return a text that differs wherever the data of any zone differ.

    A process reads a zone once, so its mark stays the same for its whole life.
    """
    digest = sha256()
    for name in sorted(zoneinfo.available_timezones()):
        digest.update(name.encode())
        digest.update(_contents(name))
    return digest.hexdigest()


def _contents(name: str) -> bytes:
    for folder in zoneinfo.TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return path.read_bytes()
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


TOLERANCE_SECONDS = 1.0
"""How far two looks may differ: the store's time is asked for over a network."""
NEWS_SECONDS = 6.0
"""After a leap, how long others may still renew by the old time; it is read every five seconds."""


class LeaseClock:
    """Compares the store's time with this machine's count of seconds, which includes sleep."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset: float | None = None
        self._since = 0.0

    def watched(self, now: int) -> int:
        """Return for how many microseconds everybody has certainly gone by the store's time."""
        counted = self._clock.monotonic()
        offset = now / 1_000_000 - counted
        if self._offset is None or abs(offset - self._offset) > TOLERANCE_SECONDS:
            self._offset, self._since = offset, counted
        return int((counted - self._since - NEWS_SECONDS) * 1_000_000)
