"""Tells whether the store's time may be used to judge the leases of others.

A clock that leaps forward makes every lease look as if it had run out while its holder still works,
and whoever has just started cannot know whether it has leapt. Who lives renews within the length of
its lease. So a lease is judged only by a clock that was seen to go evenly for that long.
"""

from __future__ import annotations

from rota.ports.clock import Clock

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
