"""How fast one caller may ask: a burst, then so many a second."""

from __future__ import annotations

import time
from collections.abc import Callable

from rota.errors import Busy

BURST = 200.0
A_SECOND = 20.0
MOST_KNOWN = 10_000


class TooFast(Busy):
    """A program asks faster than it may."""

    code = "too_fast"


class Pace:
    """Counts what callers have left; one that has rested is forgotten."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._left: dict[str, tuple[float, float]] = {}

    def spend(self, caller: str) -> None:
        """Count one more; refuse it if the caller has none left."""
        now = self._monotonic()
        left, at = self._left.get(caller, (BURST, now))
        left = min(BURST, left + (now - at) * A_SECOND)
        if left < 1.0:
            raise TooFast(f"too many requests of one run: at most {A_SECOND:g} a second, wait")
        if len(self._left) >= MOST_KNOWN:
            self._forget(now)
        self._left[caller] = (left - 1.0, now)

    def _forget(self, now: float) -> None:
        """Forget who has everything left again."""
        rested = now - BURST / A_SECOND
        self._left = {name: had for name, had in self._left.items() if had[1] > rested}
