"""Discarding: attempts whose runs have gone on without them are ended, swept and forgotten.

It happens beside everything else, because it may take long: an engine that hangs must not keep
anybody from being carried on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from rota.flow.execute.beside import Beside
from rota.flow.execute.minding import Minding
from rota.flow.execute.patiently import let_go_of, patiently
from rota.model.keeping import Kept
from rota.ports.store import Store
from rota.ports.yard import Yard

log = logging.getLogger(__name__)

GONE_ON = "its run has gone on without it"
LEFT = "left"
LEFT_SECONDS = 60.0
"""How often it is looked for what no record tells of any more."""


class Discarding:
    """Discards the attempts of a home, each once at a time."""

    def __init__(self, store: Store, yard: Yard, minding: Minding, beside: Beside) -> None:
        self._store = store
        self._yard = yard
        self._minding = minding
        self._beside = beside
        self._sweeping = asyncio.Lock()
        self._going: dict[str, asyncio.Future[None]] = {}
        self._look_at = -math.inf

    def begin(self, stale: Sequence[Kept], known: Sequence[Kept]) -> None:
        """Begin to discard attempts; what is left of one afterwards is begun again.

        Now and then those are swept as well that are not even known.
        """
        for kept in stale:
            self._once(kept.nonce, partial(self._discard, kept))
        if self._yard.moment() >= self._look_at:
            self._look_at = self._yard.moment() + LEFT_SECONDS
            self._once(LEFT, partial(self._sweep_left, known))

    def _once(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        if name not in self._going:
            going = self._going[name] = asyncio.ensure_future(work())
            going.add_done_callback(partial(self._over, name))

    def _over(self, name: str, going: asyncio.Future[None]) -> None:
        """Forget what is over; what has failed is begun again."""
        del self._going[name]
        if not going.cancelled() and going.exception() is not None:
            log.error("run.undiscarded", extra={"keeper": name}, exc_info=going.exception())

    async def _sweep_left(self, known: Sequence[Kept]) -> None:
        """Sweep what could not be swept before a later attempt of its run took its place."""
        for kept in await self._yard.unswept(known):
            async with self._sweeping:
                await self._minding.sweep(kept)

    async def _discard(self, kept: Kept) -> None:
        """End what is left of an attempt, and forget it."""
        if self._minding.look(kept) is None:
            self._minding.cancel(kept, 0.0, GONE_ON)
            return  # it is looked at again when its keeper has had the time to end it
        async with self._sweeping:  # those that end just now must not wait for all of them
            if await self._minding.sweep(kept) or self._beside.ending(kept):
                return
        await self._yard.forget(kept)
        await patiently(lambda: self._store.drop_kept(kept.run_id, kept.epoch))

    async def close(self) -> None:
        """Leave the rest to the next process of the home."""
        for going in tuple(self._going.values()):
            await let_go_of(going)
