"""Deadlines: what has come by the time the loop looks has come in time."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Deadline:
    """Raises TimeoutError where a block takes longer than so many seconds.

    A loop that was held up finds the deadline past in the same turn in which it reads what came
    before it. `asyncio.timeout` would cancel the reader, which has not been resumed yet; this waits
    for one more turn, in which the reader goes first.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        await self._limit.__aenter__()
        self._timer = loop.call_later(self._seconds, self._limit.reschedule, loop.time())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._limit.__aexit__(kind, fault, trace)
