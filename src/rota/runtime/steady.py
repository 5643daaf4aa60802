"""Distrusts a clock that leaps: nothing is planned, expired or pruned until it has kept still.

A clock that is wrong for a minute would otherwise fire or pass over every slot up to the wrong
time, and a cursor never moves back.
"""

from __future__ import annotations

import logging

from rota.model.leaps import Leap
from rota.ports.clock import Clock
from rota.rules.catch_up import GRACE
from rota.runtime.lease_clock import TOLERANCE_SECONDS

log = logging.getLogger(__name__)

LARGEST_LEAP_SECONDS = 600.0
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
        if self._offset is None or offset - self._offset <= LARGEST_LEAP_SECONDS:
            self._offset, self._probation_ends = offset, None
            return True
        if self._probation_ends is None or abs(offset - self._new_offset) > LARGEST_LEAP_SECONDS:
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
