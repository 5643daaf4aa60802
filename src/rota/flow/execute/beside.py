"""Beside: programs of an attempt that are not its work, each under a keeper of its own.

They need no row: the attempt's row stands until the attempt is settled, and whoever carries it on
finds their keepers by its number. One that was interrupted is ended, and done again from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from rota.errors import Invalid, NotPermitted, Unavailable
from rota.flow.execute.minding import Minding
from rota.flow.execute.patiently import LOOK_SECONDS, to_the_end
from rota.flow.execute.readying import Ready
from rota.model.keeping import Ending, Kept, Stream
from rota.model.programs import Bounds
from rota.model.texts import clean
from rota.model.wishes import Wish
from rota.ports.agent import Agent
from rota.ports.clock import Random
from rota.ports.yard import Yard

LAST_WORDS = 2_000
NOBODY = "nobody waits for it any more"


class Ran(NamedTuple):
    """How a program ended, and the last it wrote; `ending` is None if it could not be started."""

    ending: Ending | None
    words: str


class Beside:
    """Runs programs beside the work of attempts."""

    def __init__(self, yard: Yard, minding: Minding, script: Agent | None, chance: Random) -> None:
        self._yard = yard
        self._minding = minding
        self._script = script
        self._chance = chance

    def ending(self, kept: Kept) -> Sequence[Kept]:
        """Ask for the end of what an earlier process has left beside an attempt; return it."""
        left = [each for each in self._yard.beside(kept) if self._minding.look(each) is None]
        for each in left:
            self._minding.cancel(each, 0.0, NOBODY)
        return left

    async def end(self, kept: Kept) -> None:
        """End what an earlier process has left beside an attempt, and wait until it is gone."""
        while left := self.ending(kept):
            await self._yard.rung(left[0], LOOK_SECONDS)
        for each in self._yard.beside(kept):
            await self._minding.swept(each)

    async def run(
        self,
        kept: Kept,
        ready: Ready,
        wish: Wish,
        bounds: Bounds,
        hold: Callable[[Kept | None], bool],
    ) -> Ran:
        """Run a program where the attempt's own ran, to its end.

        `hold` is told what can be ended, and says whether it is to end at once. Whoever ends it
        early gets its ending here as well: nothing is left of it afterwards.
        """
        if self._script is None:
            return Ran(None, "there is nothing here that runs programs")
        own = replace(
            kept,
            nonce=f"{int(self._chance.random() * 2**63):016x}",
            boot=self._yard.boot,
            executor=ready.site.executor,
        )
        room = replace(ready.room, session=None, result=None, settled=True)
        try:
            prepared = replace(self._script.prepare(wish, room), files=())
            start = self._yard.start(own, room, ready.site, ready.role, prepared, bounds)
            await _begun(asyncio.ensure_future(start))
            if hold(own):
                self._minding.cancel(own, bounds.grace_seconds, NOBODY)
            return await self._ended(own)
        except (Invalid, NotPermitted, Unavailable) as fault:
            return Ran(None, str(fault))
        finally:
            hold(None)

    async def _ended(self, own: Kept) -> Ran:
        while (ending := self._minding.look(own)) is None:
            await self._yard.rung(own, LOOK_SECONDS)
        await self._minding.swept(own)
        try:
            return Ran(ending, await self._last_words(own, ending))
        except Unavailable as fault:
            return Ran(ending, str(fault))

    async def _last_words(self, own: Kept, ending: Ending) -> str:
        parts = []
        for stream, spooled in ((Stream.OUT, ending.out), (Stream.ERR, ending.err)):
            start = max(0, spooled.size - LAST_WORDS)
            data = await self._minding.read(own, stream, start, LAST_WORDS) + spooled.tail
            parts.append(clean(data[-LAST_WORDS:].decode("utf-8", "replace")).strip())
        return "\n".join(part for part in parts if part)


async def _begun(starting: asyncio.Future[None]) -> None:
    """Wait for a start, which nobody may leave half done: the home may be another's afterwards."""
    left = await to_the_end(starting)
    starting.result()
    if left:
        raise asyncio.CancelledError
