"""API keys, kept as digests."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rota.errors import NotFound
from rota.model.ids import SpaceId
from rota.model.instants import from_micros, maybe_instant
from rota.model.keys import Key, KeyScope, NewKey
from rota.model.spaces import SpaceRole
from rota.store.transactions import QueryRows, Row, Transaction, one

KEYS = "keys"
"""The topic of keys that were added or revoked."""


def _as_key(row: Row) -> Key:
    return Key(
        id=row[0],
        space_id=SpaceId(row[1]),
        space=row[2],
        name=row[3],
        prefix=row[4],
        role=SpaceRole(row[5]),
        scopes=frozenset(KeyScope(scope) for scope in json.loads(row[6])),
        created_at=from_micros(row[7]),
        created_by=row[8],
        expires_at=maybe_instant(row[9]),
        used_at=maybe_instant(row[10]),
        revoked_at=maybe_instant(row[11]),
    )


async def add_key(tx: Transaction, key: NewKey) -> Key:
    """Keep a key."""
    record = {
        "space_id": key.space_id,
        "name": key.name,
        "prefix": key.prefix,
        "digest": key.digest,
        "role": key.role.value,
        "scopes": json.dumps(sorted(key.scopes)),
        "created_by": key.created_by,
        "expires_at": key.expires_at,
    }
    await tx.run("insert_keys", rows=QueryRows([record]), now=tx.now())
    tx.wake(KEYS)
    found = await find_key(tx, key.digest)
    if found is None:
        raise NotFound("key", key.prefix)
    return found


async def find_key(tx: Transaction, digest: str) -> Key | None:
    """Return a key by the digest of its secret."""
    row = await one(tx, "find_key", digest=digest)
    return None if row is None else _as_key(row)


async def list_keys(tx: Transaction, space_id: int | None) -> list[Key]:
    """Return keys, oldest first."""
    return [_as_key(row) for row in await tx.rows("list_keys", space_id=space_id)]


async def revoke_key(tx: Transaction, key_id: int) -> None:
    """Let a key open nothing any more."""
    await tx.run("revoke_key", id=key_id, now=tx.now())
    tx.wake(KEYS)


async def touch_keys(tx: Transaction, used: Mapping[int, int]) -> None:
    """Note when keys were last used."""
    rows = QueryRows({"id": key_id, "at": at} for key_id, at in sorted(used.items()))
    await tx.run("touch_keys", rows=rows)
