"""Workers: leases, fencing, lost and expired runs, pruning."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rota.model.events import EventName
from rota.model.ids import Epoch, RunId, SpaceId, TaskId
from rota.model.instants import ALWAYS
from rota.model.runs import OpenRun, RunState
from rota.model.views import LeaseRenewal
from rota.store.events import note_pruned
from rota.store.transactions import EVENTS, QueryRows, Row, Transaction

MOST_OF_A_TASK = 10_000
MOST_PRUNED_BYTES = 256 * 1024 * 1024
"""How many bytes of files leave at once; the next ones ten minutes later."""
DELIVERED = frozenset(
    {
        *(EventName.DELIVERY_SENT, EventName.DELIVERY_UNKNOWN),
        *(EventName.DELIVERY_DEAD, EventName.DELIVERY_WITHDRAWN),
    }
)
PRUNED = (
    *("prune_attempts", "prune_questions", "prune_beats", "prune_deferred", "prune_effects"),
    *("prune_spending", "prune_exchanges", "prune_runs"),
)
"""What leaves with a run."""


async def register_worker(tx: Transaction, record: dict[str, Any]) -> None:
    """Make a worker known; its id is new for every start."""
    await tx.run("insert_workers", rows=QueryRows([record]), now=tx.now())


async def renew_worker(tx: Transaction, worker: str, until: int) -> LeaseRenewal:
    """Extend a worker's lease unless it was fenced."""
    now = tx.now()
    rows = await tx.rows("renew_worker", worker=worker, until=until, now=now)
    if not rows:
        return LeaseRenewal(alive=False)
    held = await tx.rows("held_runs", worker=worker)
    return LeaseRenewal(
        alive=True,
        held=tuple(RunId(row[0]) for row in held if not row[2]),
        cancels=tuple(RunId(row[0]) for row in held if row[1] is not None),
    )


async def fence_workers(tx: Transaction, now: int | None = None, watched: int = ALWAYS) -> int:
    """Fence workers whose lease has run out; a fenced worker can never renew again.

    A lease that is longer than `watched` is left alone: its holder may have renewed it meanwhile.
    """
    at = tx.now() if now is None else now
    return len(await tx.rows("fence_expired", now=at, watched=watched))


async def fence_other_workers(tx: Transaction, worker: str) -> int:
    """Fence every other worker; only for whoever holds the lock that proves them dead."""
    return len(await tx.rows("fence_others", worker=worker))


async def retire_worker(tx: Transaction, worker: str) -> None:
    """Forget a worker that has given back everything it held."""
    await tx.run("delete_worker", worker=worker)


async def list_lost_runs(tx: Transaction, most: int, now: int | None = None) -> list[OpenRun]:
    """Return running runs whose worker is fenced or unknown, and which no keeper carries on."""
    at = tx.now() if now is None else now
    rows = await tx.rows("lost_runs", now=at, most=most)
    return [replace(as_open_run(row[:-2]), holder=row[-2], restored=bool(row[-1])) for row in rows]


async def list_expired_runs(tx: Transaction, most: int) -> list[OpenRun]:
    """Return queued and waiting runs whose time has run out."""
    now = tx.now()
    rows = await tx.rows("expired_runs", now=now, most=most)
    return [as_open_run(row) for row in rows]


async def get_open_runs(tx: Transaction, ids: Sequence[int]) -> list[OpenRun]:
    """Return what is needed to decide about runs, whatever their state."""
    return [as_open_run(row) for row in await tx.rows("open_runs", ids=ids)] if ids else []


def as_open_run(row: Row) -> OpenRun:
    """Return a row as the facts for a settlement."""
    run_id, task_id, space_id, state, epoch, retries, losses, created_at, depth, cancelling = row
    return OpenRun(
        run_id=RunId(run_id),
        task_id=TaskId(task_id),
        space_id=SpaceId(space_id),
        state=RunState(state),
        epoch=Epoch(epoch),
        retries=retries,
        losses=losses,
        created_micros=created_at,
        depth=depth,
        cancel_requested=bool(cancelling),
    )


async def mark_stuck(tx: Transaction, run_id: int, epoch: int) -> None:
    """Note that a run is past its timeout and cannot be stopped."""
    rows = await tx.rows("mark_stuck", id=run_id, epoch=epoch)
    if rows:
        await tx.run(
            "record_events", ids=[run_id], name=EventName.STUCK.value, data="{}", now=tx.now()
        )
        tx.wake(EVENTS)


async def list_queued_runs(tx: Transaction, task_id: int, *, planned_only: bool) -> list[OpenRun]:
    """Return the queued and waiting runs of a task."""
    rows = await tx.rows(
        "queued_runs_of", task_id=task_id, planned_only=int(planned_only), most=MOST_OF_A_TASK
    )
    return [as_open_run(row) for row in rows]


async def list_running_runs(tx: Transaction, task_id: int) -> list[RunId]:
    """Return the running runs of a task."""
    rows = await tx.rows("running_runs_of", task_id=task_id, most=MOST_OF_A_TASK)
    return [RunId(row[0]) for row in rows]


async def prune_runs(tx: Transaction, before: int, most: int) -> int:
    """Delete the oldest events up to an instant, with the runs whose end they tell.

    Events are in the order they happened, so no index on finished runs is needed. What a task's
    pruned runs came to stays in its tally, and up to when was pruned in the facts.
    """
    ledger = await tx.rows("prune_ledger", before=before, most=most)
    await tx.run("forget_workers", before=before)
    await tx.run("prune_requests", before=before, most=most)
    await tx.run("prune_messages", before=before, most=most, bytes=MOST_PRUNED_BYTES)
    await tx.run("prune_sessions", before=before, most=most)
    events = await tx.rows("oldest_events", before=before, most=most)
    if ledger or events:
        await tx.run("keep_pruned_before", before=before)
    if not events:
        return 0
    settled = [row[2] for row in events if row[1] == EventName.SETTLED and row[2] is not None]
    if settled:
        await _tally(tx, settled)
        for query in PRUNED:
            await tx.run(query, ids=settled)
    delivered = [row[2] for row in events if row[1] in DELIVERED and row[2] is not None]
    if settled or delivered:
        # A message that was sent only after its run was pruned leaves with its own event.
        await tx.run("prune_deliveries", ids=sorted({*settled, *delivered}))
    await tx.run("prune_events", ids=[row[0] for row in events])
    await note_pruned(tx, events)
    return len(events)


async def _tally(tx: Transaction, run_ids: list[int]) -> None:
    tallies: dict[int, dict[str, int]] = {}
    for task_id, state, count in await tx.rows("tally_runs", ids=run_ids):
        tallies.setdefault(task_id, {})[state] = count
    for task_id, pruned, _ in await tx.rows("read_pruned", ids=sorted(tallies)):
        total = json.loads(pruned)
        for state, count in tallies[task_id].items():
            total[state] = total.get(state, 0) + count
        await tx.run("keep_pruned", id=task_id, pruned=json.dumps(total))
