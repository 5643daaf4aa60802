"""How many queries are answered at once, so that those who ask cannot crowd out each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rota.errors import Busy

AT_ONCE = 2
PATIENCE = 3.0
"""Seconds that a query waits for its turn: a little longer than another one may take."""


class Turns:
    """Lets two queries go on at once, and one of each space."""

    def __init__(self, at_once: int = AT_ONCE, patience: float = PATIENCE) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._of: dict[int | None, _Line] = {}
        self._patience = patience

    @asynccontextmanager
    async def turn(self, space_id: int | None) -> AsyncIterator[None]:
        """Wait for a turn, not for long."""
        line = self._of.setdefault(space_id, _Line())
        line.length += 1
        try:
            async with asyncio.timeout(self._patience) as waiting:
                async with line.lock, self._all:
                    waiting.reschedule(None)
                    yield
        except TimeoutError:
            if not waiting.expired():
                raise
            message = "too many queries are being answered: try again in a moment"
            raise Busy(message) from None
        finally:
            line.length -= 1
            if line.length == 0:
                del self._of[space_id]


class _Line:
    """Those of one space who wait, and the one who does not."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.length = 0
