"""How fast a mailbox is served: so many commands a second, and some at once now and then."""

from __future__ import annotations

import asyncio

BYTES = 64 * 1024
"""So much of a file costs as much as a command: what is long takes long to read."""


class Pace:
    """Lets commands pass at a rate, after a burst; what was too much is paid for afterwards."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = asyncio.get_running_loop().time()

    async def take(self) -> None:
        """Wait until one more command may pass."""
        lacking = 1.0 - self._refilled()
        if lacking > 0.0:
            await asyncio.sleep(lacking / self._rate)
            self._refilled()
        self._left -= 1.0

    def charge(self, size: int) -> None:
        """Count the bytes of a command that has passed."""
        self._left -= size // BYTES

    def _refilled(self) -> float:
        now = asyncio.get_running_loop().time()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        return self._left
