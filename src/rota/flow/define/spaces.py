"""Spaces, limits, and the pause of all work."""

from __future__ import annotations

import re
from dataclasses import replace

from rota.errors import Conflict, Invalid, NotFound, NotPermitted
from rota.model.schedules import Pauses
from rota.model.spaces import Limit, LimitScope, Quota, Space, SpaceRole
from rota.model.tasks import Pool
from rota.rules.permissions import Caller, check_main, check_space
from rota.store import plans as store_plans
from rota.store import tasks as store_tasks
from rota.store import views as store_views
from rota.store.claims import set_limits
from rota.store.store import Store
from rota.store.tasks import add_space, find_space
from rota.store.views import list_spaces
from rota.timing.zones import zone

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


async def create_space(store: Store, caller: Caller, name: str, timezone: str) -> Space:
    """Create a member space."""
    check_space(caller, name)
    if not NAME.fullmatch(name):
        advice = "use 1 to 64 lowercase letters, digits and _ . -, beginning with a letter or digit"
        raise Invalid("name", name, advice)
    where = zone(timezone)
    try:
        await store.read(find_space, name)
    except NotFound:
        return await store.write(add_space, name, SpaceRole.MEMBER, where.key)
    message = f"there is a space {name!r} already: change it with `rota space set`"
    raise Conflict(message)


async def set_space(store: Store, caller: Caller, name: str, timezone: str) -> Space:
    """Change the time zone of a space; existing schedules keep theirs."""
    check_space(caller, name)
    where = zone(timezone)
    await store.read(find_space, name)
    return await store.write(store_tasks.set_space, name, where.key)


LONGEST_GROUP = 128


async def list_limits(store: Store, caller: Caller) -> list[tuple[Limit, str]]:
    """Return all limits with their keys as text."""
    _check(caller)
    names = {str(space.id): space.name for space in await store.read(list_spaces)}
    return [(limit, _words(limit, names)) for limit in await store.read(store_views.list_limits)]


async def set_limit(store: Store, caller: Caller, wanted: Limit) -> None:
    """Set a limit, replacing that of its scope and key."""
    _check(caller)
    if wanted.rate is not None and wanted.scope is not LimitScope.GROUP:
        raise Invalid("rate", wanted.rate, "rates are for groups: give --cap")
    key = await _stored_key(store, wanted.scope, wanted.key)
    await store.write(set_limits, [replace(wanted, key=key)])


async def remove_limit(store: Store, caller: Caller, scope: LimitScope, key: str) -> None:
    """Remove a limit."""
    _check(caller)
    stored = await _stored_key(store, scope, key)
    standing = {(limit.scope, limit.key) for limit in await store.read(store_views.list_limits)}
    if (scope, stored) not in standing:
        raise NotFound("limit", f"{scope} {key}".strip(), "see `rota limit list`")
    await store.write(set_limits, [Limit(scope=scope, key=stored)])


def _check(caller: Caller) -> None:
    if caller.role is not SpaceRole.MAIN:
        message = "limits belong to the main space"
        raise NotPermitted(message)


async def _stored_key(store: Store, scope: LimitScope, key: str) -> str:
    match scope:
        case LimitScope.TOTAL:
            if key:
                raise Invalid("key", key, "the total has no key")
            return ""
        case LimitScope.POOL:
            return _pool(key)
        case LimitScope.SPACE:
            what, slash, name = key.partition("/")
            counted = what if what in set(Quota) else _pool(what, *Quota)
            if not slash:
                return counted
            space = await store.read(find_space, name)
            if counted in set(Quota) and space.role is SpaceRole.MAIN:
                raise Invalid("key", key, "the role main has no quota: name a member space")
            return f"{counted}/{space.id}"
        case LimitScope.GROUP:
            if not (0 < len(key) <= LONGEST_GROUP and key.isprintable()):
                raise Invalid("key", key, f"name the group, in 1 to {LONGEST_GROUP} characters")
            return key


def _pool(key: str, *more: str) -> str:
    if key not in {pool.value for pool in Pool}:
        raise Invalid("key", key, f"name a pool: {' or '.join([*Pool, *more])}")
    return key


def _words(limit: Limit, names: dict[str, str]) -> str:
    pool, slash, number = limit.key.partition("/")
    if limit.scope is not LimitScope.SPACE or not slash:
        return limit.key
    return f"{pool}/{names.get(number, number)}"


async def pause_all(store: Store, caller: Caller) -> Pauses:
    """Pause everything: nothing starts in any process, and due slots are skipped."""
    check_main(caller)
    return await store.write(store_plans.pause_all, caller.name)


async def resume_all(store: Store, caller: Caller) -> Pauses:
    """Resume work; slots of the pause are not caught up."""
    check_main(caller)
    return await store.write(store_plans.resume_all, caller.name)
