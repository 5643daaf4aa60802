"""Prune: old rows leave, and the files of runs that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from rota.model.artifacts import Shelf
from rota.model.ids import RunId
from rota.model.instants import from_micros
from rota.model.states import FINISHED
from rota.model.views import RunFilter
from rota.ports.artifacts import ArtifactKeeping
from rota.ports.store import Store, Workers

KEEP = timedelta(days=30)
MOST = 1_000


async def prune(store: Workers, keep: timedelta = KEEP) -> bool:
    """Delete a batch of what ended longer ago than `keep`; true if there may be more."""
    before = store.now() - int(keep.total_seconds() * 1_000_000)
    return await store.prune(before, MOST) == MOST


async def prune_artifacts(store: Store, artifacts: ArtifactKeeping, keep: timedelta = KEEP) -> int:
    """Delete the files of runs that have left the store; return how many folders went.

    A folder in which nothing was left goes as soon as its run has ended. One that is young stays,
    whatever the store says: it may be another one that was opened by mistake.
    """
    shelves = await asyncio.to_thread(artifacts.shelves)
    before = from_micros(store.now()) - keep
    wanted = [shelf for shelf in shelves if shelf.empty or shelf.modified_at < before]
    ended = await _ended(store, wanted)
    gone = [
        shelf
        for shelf in wanted
        if (ended[shelf.run_id] is True and shelf.empty)
        or (ended[shelf.run_id] is None and shelf.modified_at < before)
    ][:MOST]
    for shelf in gone:
        await asyncio.to_thread(artifacts.drop, shelf)
    return len(gone)


async def _ended(store: Store, shelves: Sequence[Shelf]) -> dict[int, bool | None]:
    """Return of each run whether it has ended; None if the store does not know it."""
    left = sorted({shelf.run_id for shelf in shelves}, reverse=True)
    ended: dict[int, bool | None] = dict.fromkeys(left)
    while left:
        page = await store.list_runs(RunFilter(before=RunId(left[0] + 1), limit=MOST))
        ended |= {run.id: run.state in FINISHED for run in page if run.id in ended}
        reached = page[-1].id if len(page) == MOST else 0
        left = [run_id for run_id in left if run_id < reached]
    return ended
