"""Pausing everything, and going on: for whoever may act for every space."""

from __future__ import annotations

from rota.errors import NotPermitted
from rota.model.pauses import Pauses
from rota.model.spaces import Role
from rota.ports.store import Store
from rota.rules.permission import Caller


async def pause_all(store: Store, caller: Caller) -> Pauses:
    """Let nothing new begin in any process; what runs goes on, slots that come due are skipped."""
    _check(caller)
    return await store.pause(caller.name)


async def resume_all(store: Store, caller: Caller) -> Pauses:
    """Let work begin again, from now on; what came due meanwhile is not caught up."""
    _check(caller)
    return await store.resume(caller.name)


def _check(caller: Caller) -> None:
    if caller.role is not Role.MAIN:
        message = f"{caller.name} may not do this: only the role 'main' acts for everybody"
        raise NotPermitted(message)
