"""Workers: leases, fencing, lost and expired runs, pruning."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from rota.model.events import EventName
from rota.model.ids import Epoch, RunId, SpaceId, TaskId
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


async def register(session: Transaction, record: dict[str, Any], now: int) -> None:
    """Make a worker known; its id is new for every start."""
    await session.run("insert_workers", rows=QueryRows([record]), now=now)


async def renew(session: Transaction, worker: str, until: int, now: int) -> LeaseRenewal:
    """Extend a worker's lease unless it was fenced."""
    rows = await session.rows("renew_worker", worker=worker, until=until, now=now)
    if not rows:
        return LeaseRenewal(alive=False)
    held = await session.rows("held_runs", worker=worker)
    return LeaseRenewal(
        alive=True,
        held=tuple(RunId(row[0]) for row in held if not row[2]),
        cancels=tuple(RunId(row[0]) for row in held if row[1] is not None),
    )


async def fence(session: Transaction, now: int, watched: int) -> int:
    """Fence workers whose lease has run out; a fenced worker can never renew again.

    A lease that is longer than `watched` is left alone: its holder may have renewed it meanwhile.
    """
    return len(await session.rows("fence_expired", now=now, watched=watched))


async def fence_others(session: Transaction, worker: str) -> int:
    """Fence every other worker; only for whoever holds the lock that proves them dead."""
    return len(await session.rows("fence_others", worker=worker))


async def retire(session: Transaction, worker: str) -> None:
    """Forget a worker that has given back everything it held."""
    await session.run("delete_worker", worker=worker)


async def lost_runs(session: Transaction, now: int, most: int) -> list[OpenRun]:
    """Return running runs whose worker is fenced or unknown, and which no keeper carries on."""
    rows = await session.rows("lost_runs", now=now, most=most)
    return [replace(as_open_run(row[:-2]), holder=row[-2], restored=bool(row[-1])) for row in rows]


async def expired_runs(session: Transaction, now: int, most: int) -> list[OpenRun]:
    """Return queued and waiting runs whose time has run out."""
    rows = await session.rows("expired_runs", now=now, most=most)
    return [as_open_run(row) for row in rows]


async def open_runs(session: Transaction, ids: list[int]) -> list[OpenRun]:
    """Return what is needed to decide about runs, whatever their state."""
    return [as_open_run(row) for row in await session.rows("open_runs", ids=ids)] if ids else []


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


async def mark_stuck(session: Transaction, run_id: int, epoch: int, now: int) -> None:
    """Note that a run is past its timeout and cannot be stopped."""
    rows = await session.rows("mark_stuck", id=run_id, epoch=epoch)
    if rows:
        await session.run(
            "record_events", ids=[run_id], name=EventName.STUCK.value, data="{}", now=now
        )
        session.wake(EVENTS)


async def queued_runs_of(session: Transaction, task_id: int, planned_only: bool) -> list[OpenRun]:
    """Return the queued and waiting runs of a task."""
    rows = await session.rows(
        "queued_runs_of", task_id=task_id, planned_only=int(planned_only), most=MOST_OF_A_TASK
    )
    return [as_open_run(row) for row in rows]


async def running_runs_of(session: Transaction, task_id: int) -> list[RunId]:
    """Return the running runs of a task."""
    rows = await session.rows("running_runs_of", task_id=task_id, most=MOST_OF_A_TASK)
    return [RunId(row[0]) for row in rows]


async def prune(session: Transaction, before: int, most: int) -> int:
    """Delete the oldest events up to an instant, with the runs whose end they tell.

    Events are in the order they happened, so no index on finished runs is needed. What a task's
    pruned runs came to stays in its tally, and up to when was pruned in the facts.
    """
    ledger = await session.rows("prune_ledger", before=before, most=most)
    await session.run("forget_workers", before=before)
    await session.run("prune_requests", before=before, most=most)
    await session.run("prune_messages", before=before, most=most, bytes=MOST_PRUNED_BYTES)
    await session.run("prune_sessions", before=before, most=most)
    events = await session.rows("oldest_events", before=before, most=most)
    if ledger or events:
        await session.run("keep_pruned_before", before=before)
    if not events:
        return 0
    settled = [row[2] for row in events if row[1] == EventName.SETTLED and row[2] is not None]
    if settled:
        await _tally(session, settled)
        for query in PRUNED:
            await session.run(query, ids=settled)
    delivered = [row[2] for row in events if row[1] in DELIVERED and row[2] is not None]
    if settled or delivered:
        # A message that was sent only after its run was pruned leaves with its own event.
        await session.run("prune_deliveries", ids=sorted({*settled, *delivered}))
    await session.run("prune_events", ids=[row[0] for row in events])
    await note_pruned(session, events)
    return len(events)


async def _tally(session: Transaction, run_ids: list[int]) -> None:
    tallies: dict[int, dict[str, int]] = {}
    for task_id, state, count in await session.rows("tally_runs", ids=run_ids):
        tallies.setdefault(task_id, {})[state] = count
    for task_id, pruned, _ in await session.rows("read_pruned", ids=sorted(tallies)):
        total = json.loads(pruned)
        for state, count in tallies[task_id].items():
            total[state] = total.get(state, 0) + count
        await session.run("keep_pruned", id=task_id, pruned=json.dumps(total))
