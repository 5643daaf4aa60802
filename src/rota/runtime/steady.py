"""Distrusts a clock that leaps: nothing is planned, expired or pruned until it has kept still.

A clock that is wrong for a minute would otherwise fire or pass over every slot up to the wrong
time, and a cursor never moves back.
"""

from __future__ import annotations

import logging

from rota.ports.clock import Clock

log = logging.getLogger(__name__)

LARGEST_LEAP_SECONDS = 600.0
PROBATION_SECONDS = 60.0


class SteadyClock:
    """Compares the store's time with this machine's count of seconds, which includes sleep.

    Time may leap forward by ten minutes at most. After a larger leap it is trusted again when it
    has gone on evenly for a minute, or at once when it has leapt back to where it should be.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset: float | None = None
        self._probation_ends: float | None = None
        self._new_offset = 0.0

    def trusts(self, now: int) -> bool:
        """Return whether an instant of the store fits what came before."""
        counted = self._clock.monotonic()
        offset = now / 1_000_000 - counted
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
