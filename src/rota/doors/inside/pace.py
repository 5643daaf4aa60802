"""How fast one caller may ask: a burst, then so many a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rota.errors import Busy

BURST = 200.0
A_SECOND = 20.0
MOST_KNOWN = 10_000
SLACK = 0.001
"""Seconds that a wait is longer: what was waited for is surely there then."""


class TooFast(Busy):
    """A program asks faster than it may."""

    code = "too_fast"


class Pace:
    """Counts what callers have left; one that has rested is forgotten."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        burst: float = BURST,
        rate: float = A_SECOND,
    ) -> None:
        self._monotonic = monotonic
        self._burst = burst
        self._rate = rate
        self._left: dict[str, tuple[float, float]] = {}

    def spend(self, caller: str) -> None:
        """Count one more; refuse it if the caller has none left."""
        if self._refilled(caller) < 1.0:
            raise TooFast(f"too many requests of one run: at most {self._rate:g} a second, wait")
        self.charge(caller, 1.0)

    def charge(self, caller: str, cost: float) -> None:
        """Count what is done already; what was too much is waited for afterwards."""
        left, now = self._refilled(caller), self._monotonic()
        if len(self._left) >= MOST_KNOWN:
            self._forget(now)
        self._left[caller] = (left - cost, now)

    async def wait(self, caller: str) -> None:
        """Wait until the caller has one left; it is not counted yet."""
        lacking = 1.0 - self._refilled(caller)
        if lacking > 0.0:
            await asyncio.sleep(lacking / self._rate + SLACK)

    def _refilled(self, caller: str) -> float:
        now = self._monotonic()
        left, at = self._left.get(caller, (self._burst, now))
        return min(self._burst, left + (now - at) * self._rate)

    def _forget(self, now: float) -> None:
        """Forget who has everything left again."""
        self._left = {
            name: (left, at)
            for name, (left, at) in self._left.items()
            if left + (now - at) * self._rate < self._burst
        }
