"""Records when the clock went back, and which slots were planned too early."""

from __future__ import annotations

import logging

from rota.model.instants import from_micros
from rota.ports.store import Store
from rota.rules.clock_jumps import planned_too_early

log = logging.getLogger(__name__)


async def note_return(store: Store) -> None:
    """Record until when schedules were planned by a clock that was ahead, if it was."""
    known, now = await store.leaps(), store.now()
    early = planned_too_early(known, now)
    back = known.forward is not None and now < known.forward.end
    if not back and (early is None or early == known.returned):
        return
    if await store.note_return(early) and early is not None:
        span = {"from": from_micros(early.start), "to": from_micros(early.end)}
        log.warning("clock.returned", extra={name: at.isoformat() for name, at in span.items()})
