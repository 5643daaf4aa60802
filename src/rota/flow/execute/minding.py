"""Minding: the programs of a home, on a machine that may refuse for a moment.

A full disk, no descriptor to be had, an engine that does not answer: nothing of that ends a program
or sets one free. It is logged, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from rota.errors import Unavailable
from rota.flow.execute.patiently import LOOK_SECONDS
from rota.model.keeping import Ending, Kept, Stream
from rota.ports.runner import Assignment
from rota.ports.yard import Yard

log = logging.getLogger(__name__)

Content = TypeVar("Content")

READ_SECONDS = 60.0
"""How long what an attempt wrote may be unreadable before it is given up, once it has ended."""
SWEEP_SECONDS = 60.0
"""How long an engine may refuse to end what it runs before the attempt is given up as lost."""


class Minding:
    """Looks at the programs of a home and ends them."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._unasked: dict[str, asyncio.TimerHandle] = {}

    def look(self, kept: Kept) -> Ending | None:
        """Return how an attempt ended; while the machine gives no answer, it is taken to go on."""
        try:
            return self._yard.look(kept)
        except OSError as fault:
            log.warning("run.unseen", extra={"run_id": kept.run_id, "error": str(fault)})
            return None

    def cancel(self, kept: Kept, grace_seconds: float, why: str) -> None:
        """Ask a keeper to end its tree, while the machine refuses again and again until it has."""
        self._withdraw(kept)
        try:
            self._yard.cancel(kept, grace_seconds, why)
        except OSError as fault:
            log.warning("run.unasked", extra={"run_id": kept.run_id, "error": str(fault)})
            again = partial(self._ask_again, kept, grace_seconds, why)
            loop = asyncio.get_running_loop()
            self._unasked[kept.nonce] = loop.call_later(LOOK_SECONDS, again)

    def _ask_again(self, kept: Kept, grace_seconds: float, why: str) -> None:
        if self.look(kept) is None:
            self.cancel(kept, grace_seconds, why)
        else:
            self._withdraw(kept)

    def _withdraw(self, kept: Kept) -> None:
        """Forget an earlier wish that could not be told: there is a newer one, or no need."""
        waiting = self._unasked.pop(kept.nonce, None)
        if waiting is not None:
            waiting.cancel()

    async def end(self, kept: Kept, why: str) -> None:
        """End a program that nobody wants to hear, and wait until nothing of it is left."""
        while self.look(kept) is None:
            self.cancel(kept, 0.0, why)
            await self._yard.rung(kept, LOOK_SECONDS)
        await self.swept(kept)

    async def read(self, kept: Kept, stream: Stream, offset: int, most: int) -> bytes:
        """Return what a stream has at an offset, as soon as it can be read."""
        return await self._readable(kept, partial(self._yard.read, kept, stream, offset, most))

    async def result(self, kept: Kept, assignment: Assignment) -> bytes | None:
        """Return what an attempt left in its result file, as soon as it can be read."""
        return await self._readable(kept, partial(self._yard.result, assignment))

    async def _readable(self, kept: Kept, read: Callable[[], Content]) -> Content:
        """Read until the machine lets it be, however long the program goes on: its timeouts hold.

        Of one that has ended, what cannot be read for too long is given up: raises Unavailable.
        """
        until = math.inf
        while True:
            try:
                return read()
            except OSError as fault:
                log.warning("run.unread", extra={"run_id": kept.run_id, "error": str(fault)})
                until = min(until, self._yard.moment() + READ_SECONDS)
                if self._yard.moment() >= until and self.look(kept) is not None:
                    raise Unavailable(f"what it wrote cannot be read: {fault}") from fault
            await asyncio.sleep(LOOK_SECONDS)

    async def sweep(self, kept: Kept) -> str:
        """End what outlives the tree and return what is left; only without is an attempt over."""
        try:
            await self._yard.sweep(kept)
        except Unavailable as fault:
            why = {"run_id": kept.run_id, "attempt": kept.epoch, "error": str(fault)}
            log.warning("run.unswept", extra=why)
            return str(fault)
        return ""

    async def swept(self, kept: Kept) -> str:
        """Sweep until nothing is left, or it has lasted too long; return what is left then."""
        until = self._yard.moment() + SWEEP_SECONDS
        while left := await self.sweep(kept):
            if self._yard.moment() >= until:
                break
            await asyncio.sleep(LOOK_SECONDS)
        return left

    def close(self) -> None:
        """Ask for nothing more: the home is another process's now."""
        for waiting in self._unasked.values():
            waiting.cancel()
        self._unasked.clear()
