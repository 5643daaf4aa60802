"""Create, list and revoke keys."""

from __future__ import annotations

from datetime import datetime

from rota.errors import Invalid, NotFound
from rota.model.instants import maybe_micros, to_micros
from rota.model.keys import Key, KeyScope, NewKey
from rota.model.spaces import SpaceRole
from rota.rules.permissions import Caller, check_grant, check_space, visible_space
from rota.rules.tokens import SECRET_BYTES, key_token, secret_digest, token_prefix
from rota.store import keys as store_keys
from rota.store.keys import add_key
from rota.store.store import Store
from rota.store.tasks import find_space

MAX_NAME = 128


async def create_key(
    store: Store,
    caller: Caller,
    name: str,
    secret: bytes,
    *,
    space: str = "main",
    role: SpaceRole | None = None,
    scopes: frozenset[KeyScope],
    expires_at: datetime | None = None,
) -> tuple[Key, str]:
    """Create a key for a space; return it with its token, which is not stored."""
    check_space(caller, space)
    if not (0 < len(name) <= MAX_NAME and name.isprintable()):
        raise Invalid("name", name, f"use 1 to {MAX_NAME} printable characters")
    if not scopes:
        raise Invalid("scopes", "", f"give at least one of {', '.join(KeyScope)}")
    if expires_at is not None and to_micros(expires_at) <= store.now():
        raise Invalid("expires_at", expires_at.isoformat(), "is in the past; give a future time")
    if len(secret) != SECRET_BYTES:
        raise Invalid("secret", len(secret), f"needs {SECRET_BYTES} bytes")
    owner = await store.read(find_space, space)
    wanted = role or min(owner.role, caller.role, key=(SpaceRole.MEMBER, SpaceRole.MAIN).index)
    check_grant(caller, owner.role, wanted, scopes)
    key = await store.write(
        add_key,
        NewKey(
            space_id=owner.id,
            name=name,
            prefix=token_prefix(secret),
            digest=secret_digest(secret),
            role=wanted,
            scopes=scopes,
            created_by=caller.name,
            expires_at=maybe_micros(expires_at),
        ),
    )
    return key, key_token(secret)


async def list_keys(store: Store, caller: Caller, space: str | None = None) -> list[Key]:
    """Return the keys that a caller may see, oldest first."""
    shown = visible_space(caller, space)
    owner = None if shown is None else (await store.read(find_space, shown)).id
    return await store.read(store_keys.list_keys, owner)


async def revoke_key(store: Store, caller: Caller, key_id: int) -> Key:
    """Revoke a key, effective at once and everywhere."""
    found = await find_key(store, caller, key_id)
    if found.revoked_at is None:
        await store.write(store_keys.revoke_key, key_id)
        found = await find_key(store, caller, key_id)
    return found


async def find_key(store: Store, caller: Caller, key_id: int) -> Key:
    """Return a key that a caller may see."""
    for key in await list_keys(store, caller):
        if key.id == key_id:
            return key
    raise NotFound("key", key_id, "see `rota key list`")
