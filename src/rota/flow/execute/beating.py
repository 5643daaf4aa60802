"""Beating: what can be seen of kept attempts, and what is done about a keeper that is silent.

A keeper says by itself, every few seconds, how far it is. One that has said nothing between three
looks, a heartbeat apart, has missed two: it cannot mind timeouts or hear a wish to stop, so its
attempt is ended and lost. It is woken first, for it may only have been stopped. Looks are counted,
not hours: a process that was stopped itself, or a machine that slept, has not looked.

A look at many is spread over a moment, for a hundred at once would hold up the work that falls due
then. One that fails, or is not done in time, leaves out its own attempt and no other; it is not
begun again while it hangs, for each may hold a thread.
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
PATIENCE_SECONDS = 10.0
"""With one look: longer than with a pane, and after the last of many less than a heartbeat."""
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

    def __init__(
        self, yard: Yard, least: float = LEAST_SECONDS, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._yard = yard
        self._least = least
        self._patience = patience
        self._looks: dict[str, _Look] = {}
        self._begun: dict[str, asyncio.Future[Sign]] = {}
        self.ended: dict[int, str] = {}
        """Runs whose keeper was ended here, and why."""

    async def look(self, followed: Mapping[int, Followed]) -> list[Sign]:
        """Return what can be seen of attempts; a keeper that has missed two beats is ended."""
        now = asyncio.get_running_loop().time()
        signs = await self._signs([each.kept for each in followed.values()])
        known = {each.kept.nonce for each in followed.values()}
        self._looks = {nonce: look for nonce, look in self._looks.items() if nonce in known}
        found = []
        for each, sign in zip(followed.values(), signs, strict=True):
            if sign is None:
                continue
            self._looks[each.kept.nonce] = look = self._compared(each.kept, sign, now)
            if look.missed and look.at == now:
                self._rouse(each.kept, look)
            found.append(_told(sign, each.hearing, look))
        return found

    async def _signs(self, many: Sequence[Kept]) -> list[Sign | None]:
        pause = min(PAUSE_SECONDS, LONGEST_LOOK_SECONDS / max(1, len(many)))
        self._begun = {nonce: look for nonce, look in self._begun.items() if not look.done()}
        begun: list[asyncio.Future[Sign | None]] = []
        try:
            for kept in many:
                begun.append(asyncio.ensure_future(self._sign(kept)))
                await asyncio.sleep(pause)
            return await asyncio.gather(*begun)
        finally:
            for look in begun:
                look.cancel()

    async def _sign(self, kept: Kept) -> Sign | None:
        """Return what can be seen of one in time; what is seen too late counts for nothing."""
        why = "an earlier look still hangs"
        if kept.nonce not in self._begun:
            self._begun[kept.nonce] = look = asyncio.ensure_future(self._yard.sign(kept))
            try:
                async with asyncio.timeout(self._patience):
                    return await asyncio.shield(look)
            except Exception as fault:  # noqa: BLE001 - whatever it is, the others are looked at
                why = f"{type(fault).__name__}: {fault}"
        log.warning("run.unseen", extra={"run_id": kept.run_id, "error": why})
        return None

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
