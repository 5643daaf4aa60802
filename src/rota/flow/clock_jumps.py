"""Records when the clock went back, and which slots were planned too early."""

from __future__ import annotations

import logging

from rota.model.instants import from_micros
from rota.rules.clock_jumps import planned_too_early
from rota.store.clock_jumps import get_clock_jumps, record_clock_return
from rota.store.store import Store

log = logging.getLogger(__name__)


async def note_return(store: Store) -> None:
    """Record until when schedules were planned by a clock that was ahead, if it was."""
    known, now = await store.read(get_clock_jumps), store.now()
    early = planned_too_early(known, now)
    back = known.forward is not None and now < known.forward.end
    if not back and (early is None or early == known.returned):
        return
    if await store.write(record_clock_return, early) and early is not None:
        span = {"from": from_micros(early.start), "to": from_micros(early.end)}
        log.warning("clock.returned", extra={name: at.isoformat() for name, at in span.items()})
