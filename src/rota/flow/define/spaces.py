"""Spaces: create, change."""

from __future__ import annotations

import re

from rota.errors import Conflict, Invalid, NotFound
from rota.model.spaces import Role, Space
from rota.ports.store import Store
from rota.rules.permission import Caller, check_space
from rota.timing.zones import zone

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


async def create_space(store: Store, caller: Caller, name: str, timezone: str) -> Space:
    """Create a space that may act only for itself."""
    check_space(caller, name)
    if not NAME.fullmatch(name):
        advice = "use 1 to 64 small letters, digits and _ . -, beginning with a letter or digit"
        raise Invalid("name", name, advice)
    where = zone(timezone)
    try:
        await store.find_space(name)
    except NotFound:
        return await store.add_space(name, Role.MEMBER, where.key)
    message = f"there is a space {name!r} already: change it with `rota space set`"
    raise Conflict(message)


async def set_space(store: Store, caller: Caller, name: str, timezone: str) -> Space:
    """Change a space's time zone; schedules that exist keep theirs."""
    check_space(caller, name)
    where = zone(timezone)
    await store.find_space(name)
    return await store.set_space(name, where.key)
