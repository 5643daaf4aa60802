"""Pausing everything, and going on: for whoever may act for every space."""

from __future__ import annotations

from rota.model.pauses import Pauses
from rota.ports.store import Store
from rota.rules.permission import Caller, check_main


async def pause_all(store: Store, caller: Caller) -> Pauses:
    """Let nothing new begin in any process; what runs goes on, slots that come due are skipped."""
    check_main(caller)
    return await store.pause(caller.name)


async def resume_all(store: Store, caller: Caller) -> Pauses:
    """Let work begin again, from now on; what came due meanwhile is not caught up."""
    check_main(caller)
    return await store.resume(caller.name)
