"""Beating: what can be seen of kept attempts, and what is done about a keeper that is silent.

A keeper says by itself, every few seconds, how far it is. One that has said nothing between three
looks, a heartbeat apart, has missed two: it cannot mind timeouts or hear a wish to stop, so its
attempt is ended and lost. It is woken first, for it may only have been stopped. Looks are counted,
not hours: a process that was stopped itself, or a machine that slept, has not looked.

A look at many is spread over a moment, for a hundred at once would hold up the work that falls due
then; it waits for none of them, for one of them may hang.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rota.flow.execute.hearing import Hearing
from rota.model.beats import LONGEST_LINE, LONGEST_PANE, Sign
from rota.model.keeping import Kept
from rota.model.texts import clean
from rota.ports.yard import Yard

log = logging.getLogger(__name__)

MISSED = 2
LEAST_SECONDS = 35.0
"""How far apart two looks count: keepers speak every 15 s, however often somebody looks."""
PAUSE_SECONDS = 0.02
LONGEST_LOOK_SECONDS = 10.0
"""Between two looks, and before the last of very many."""
SILENT = "its keeper gave no sign of life for two heartbeats and was ended"


class Followed(NamedTuple):
    """An attempt that is being heard."""

    kept: Kept
    hearing: Hearing


class _Look(NamedTuple):
    beat: int | None
    missed: int
    at: float


class Watch:
    """Looks at the keepers of a home, once a heartbeat."""

    def __init__(self, yard: Yard, least: float = LEAST_SECONDS) -> None:
        self._yard = yard
        self._least = least
        self._looks: dict[str, _Look] = {}
        self.ended: dict[int, str] = {}
        """Runs whose keeper was ended here, and why."""

    async def look(self, followed: Mapping[int, Followed]) -> list[Sign]:
        """Return what can be seen of attempts; a keeper that has missed two beats is ended."""
        now = asyncio.get_running_loop().time()
        signs = await self._signs([each.kept for each in followed.values()])
        looks = {}
        found = []
        for each, sign in zip(followed.values(), signs, strict=True):
            looks[each.kept.nonce] = look = self._compared(each.kept, sign, now)
            if look.missed and look.at == now:
                self._rouse(each.kept, look)
            found.append(_told(sign, each.hearing, look))
        self._looks = looks
        return found

    async def _signs(self, many: Sequence[Kept]) -> list[Sign]:
        pause = min(PAUSE_SECONDS, LONGEST_LOOK_SECONDS / max(1, len(many)))
        begun: list[asyncio.Future[Sign]] = []
        try:
            for kept in many:
                begun.append(asyncio.ensure_future(self._yard.sign(kept)))
                await asyncio.sleep(pause)
            return await asyncio.gather(*begun)
        finally:
            for look in begun:
                look.cancel()

    def _compared(self, kept: Kept, sign: Sign, now: float) -> _Look:
        before = self._looks.get(kept.nonce)
        if before is None or before.beat != sign.beat or sign.pid is None:
            return _Look(sign.beat, 0, now)
        if now - before.at < self._least:
            return before
        return _Look(sign.beat, before.missed + 1, now)

    def _rouse(self, kept: Kept, look: _Look) -> None:
        for_good = look.missed >= MISSED
        struck = self._yard.rouse(kept, for_good=for_good)
        facts = {"run_id": kept.run_id, "attempt": kept.epoch, "missed": look.missed}
        log.warning("keeper.silent", extra={**facts, "ended": struck and for_good})
        if struck and for_good:
            self.ended[kept.run_id] = SILENT


def _told(sign: Sign, hearing: Hearing, look: _Look) -> Sign:
    """Return a sign with what was heard, made safe and short."""
    pane = None if sign.pane is None else clean(sign.pane)[-LONGEST_PANE:]
    state = "silent" if look.missed else sign.state
    return Sign(
        run_id=sign.run_id,
        epoch=sign.epoch,
        alive=sign.alive,
        state=state,
        pid=sign.pid,
        processes=sign.processes,
        cpu_seconds=sign.cpu_seconds,
        memory_bytes=sign.memory_bytes,
        output_at=sign.output_at,
        last_line=hearing.last_line[:LONGEST_LINE] or None,
        pane=pane,
    )
