"""Clocks: the system clock, detection of jumps, a clock for leases, and a hash of zone data.

After a jump forward every lease looks expired although its holder still works, and a process that
has just started cannot know about an earlier jump. Since a live holder renews its lease within its
length, leases are only judged after the store's time was observed to run evenly for that long.

Planning waits as well after a large jump: a clock that is wrong for a minute would otherwise fire
or skip all slots up to the wrong time, and cursors never move back.
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


def _boot_seconds() -> float:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the current instant in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since boot, with sleep if the system counts it."""
        return _boot_seconds()


log = logging.getLogger(__name__)

MAX_LEAP_SECONDS = 600.0
PROBATION_SECONDS = 60.0


class SteadyClock:
    """Detects jumps of the store's time, by comparing it with this machine's boot time.

    Jumps forward by up to ten minutes are accepted. After a larger jump the time is not trusted
    until it has run evenly for a minute, or has jumped back. `leap` and `returned` report a jump
    forward and a jump back until the caller has recorded them.
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
        """Whether an instant of the store is consistent with earlier ones."""
        counted = self._clock.monotonic()
        offset = now / 1_000_000 - counted
        self._detect_jump(now, offset)
        if self._offset is None or offset - self._offset <= MAX_LEAP_SECONDS:
            self._offset, self._probation_ends = offset, None
            return True
        if self._probation_ends is None or abs(offset - self._new_offset) > MAX_LEAP_SECONDS:
            log.error("clock.jumped", extra={"seconds": round(offset - self._offset)})
            self._new_offset = offset
            self._probation_ends = counted + PROBATION_SECONDS
        if counted < self._probation_ends:
            return False
        log.warning("clock.trusted_again", extra={"seconds": round(offset - self._offset)})
        self._offset, self._probation_ends = offset, None
        return True

    def _detect_jump(self, now: int, offset: float) -> None:
        """Detect jumps forward that make slots look missed, and all jumps back."""
        previous_now, previous = self._seen or (now, offset)
        jumped, grace = offset - previous, GRACE.total_seconds()
        self._seen = now, offset
        if jumped > grace:
            # It jumped after the previous call; after sleep its start is known to a minute at best.
            self.leap = Leap(max(previous_now, now - int((jumped + grace) * 1_000_000)), now)
        elif jumped < -TOLERANCE_SECONDS:
            self.leap, self.returned = None, True


@lru_cache(maxsize=1)
def zone_data_mark() -> str:
    """Return a hash of all zone data.

    A process loads each zone once, so the hash is constant for its life.
    """
    digest = sha256()
    for name in sorted(zoneinfo.available_timezones()):
        digest.update(name.encode())
        digest.update(_zone_data(name))
    return digest.hexdigest()


def _zone_data(name: str) -> bytes:
    for folder in zoneinfo.TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return path.read_bytes()
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


TOLERANCE_SECONDS = 1.0
"""Tolerance of a comparison: the store's time is read over a network."""
PROPAGATION_SECONDS = 6.0
"""How long others may renew by the old time after a jump; they read it every five seconds."""


class LeaseClock:
    """Tells for how long the store's time has run evenly, compared with the boot time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset: float | None = None
        self._since = 0.0

    def watched(self, now: int) -> int:
        """Return for how many microseconds all processes have certainly seen even store time."""
        counted = self._clock.monotonic()
        offset = now / 1_000_000 - counted
        if self._offset is None or abs(offset - self._offset) > TOLERANCE_SECONDS:
            self._offset, self._since = offset, counted
        return int((counted - self._since - PROPAGATION_SECONDS) * 1_000_000)
