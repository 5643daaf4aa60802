"""Limits: list, set, remove; stores know spaces by number, people by name."""

from __future__ import annotations

from dataclasses import replace

from rota.errors import Invalid, NotFound, NotPermitted
from rota.model.spaces import Limit, Quota, Role, Scope
from rota.model.tasks import Pool
from rota.ports.store import Store
from rota.rules.permission import Caller

LONGEST_GROUP = 128


async def list_limits(store: Store, caller: Caller) -> list[tuple[Limit, str]]:
    """Return every limit with its key in words."""
    _check(caller)
    names = {str(space.id): space.name for space in await store.list_spaces()}
    return [(limit, _words(limit, names)) for limit in await store.list_limits()]


async def set_limit(store: Store, caller: Caller, wanted: Limit) -> None:
    """Set a limit, replacing the one of its scope and key."""
    _check(caller)
    if wanted.rate is not None and wanted.scope is not Scope.GROUP:
        raise Invalid("rate", wanted.rate, "rates are for groups: give --cap")
    key = await _stored_key(store, wanted.scope, wanted.key)
    await store.set_limits([replace(wanted, key=key)])


async def remove_limit(store: Store, caller: Caller, scope: Scope, key: str) -> None:
    """Take a limit away."""
    _check(caller)
    stored = await _stored_key(store, scope, key)
    standing = {(limit.scope, limit.key) for limit in await store.list_limits()}
    if (scope, stored) not in standing:
        raise NotFound("limit", f"{scope} {key}".strip(), "see `rota limit list`")
    await store.set_limits([Limit(scope=scope, key=stored)])


def _check(caller: Caller) -> None:
    if caller.role is not Role.MAIN:
        message = "limits belong to the main space"
        raise NotPermitted(message)


async def _stored_key(store: Store, scope: Scope, key: str) -> str:
    match scope:
        case Scope.TOTAL:
            if key:
                raise Invalid("key", key, "the total has no key")
            return ""
        case Scope.POOL:
            return _pool(key)
        case Scope.SPACE:
            what, slash, name = key.partition("/")
            counted = what if what in set(Quota) else _pool(what, *Quota)
            if not slash:
                return counted
            space = await store.find_space(name)
            if counted in set(Quota) and space.role is Role.MAIN:
                raise Invalid("key", key, "the role main has no quota: name a member space")
            return f"{counted}/{space.id}"
        case Scope.GROUP:
            if not (0 < len(key) <= LONGEST_GROUP and key.isprintable()):
                raise Invalid("key", key, f"name the group, in 1 to {LONGEST_GROUP} characters")
            return key


def _pool(key: str, *more: str) -> str:
    if key not in {pool.value for pool in Pool}:
        raise Invalid("key", key, f"name a pool: {' or '.join([*Pool, *more])}")
    return key


def _words(limit: Limit, names: dict[str, str]) -> str:
    pool, slash, number = limit.key.partition("/")
    if limit.scope is not Scope.SPACE or not slash:
        return limit.key
    return f"{pool}/{names.get(number, number)}"
