"""Prune: old rows leave."""

from __future__ import annotations

from datetime import timedelta

from rota.ports.store import Workers

KEEP = timedelta(days=30)
MOST = 1_000


async def prune(store: Workers, keep: timedelta = KEEP) -> bool:
    """Delete a batch of what ended longer ago than `keep`; true if there may be more."""
    before = store.now() - int(keep.total_seconds() * 1_000_000)
    return await store.prune(before, MOST) == MOST
