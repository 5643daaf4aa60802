"""Read-only views."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rota.model.checks import CheckState, SuppressionReason
from rota.model.events import Event, EventName
from rota.model.ids import Epoch, EventId, QuestionId, RunId, ScheduleId, TaskId, WorkerId
from rota.model.instants import from_micros, maybe_instant
from rota.model.notifications import Delivery
from rota.model.runs import (
    AttemptCause,
    EndedAttempt,
    Question,
    QueueState,
    Run,
    RunSource,
    RunState,
)
from rota.model.schedules import LedgerReason, LedgerRow, StoredSchedule
from rota.model.spaces import Limit, LimitScope, Space
from rota.model.tasks import Pool, Task
from rota.model.views import (
    DeadDeliveriesView,
    PoolView,
    QueueView,
    RunFilter,
    RunView,
    SlotView,
    TaskFilter,
    WorkerView,
)
from rota.store.heartbeats import get_heartbeats
from rota.store.outbox import as_delivery
from rota.store.tasks import TASK_COLUMNS, as_schedule, as_space, as_task
from rota.store.transactions import Row, Transaction

MOST_AHEAD = 10_000

LAST = 1 << 62


def as_run(row: Row) -> Run:
    """Return a row of runs as a value."""
    (
        run_id,
        space,
        task_id,
        task,
        state,
        place,
        source,
        pool,
        priority,
        lane,
        route,
        epoch,
        cause,
        retries,
        losses,
        created_at,
        available_at,
        started_at,
        finished_at,
        expires_at,
        cancel_at,
        stuck,
        holder,
        schedule_id,
        slot_key,
        slot_at,
        upstream_id,
        key,
        payload,
        result,
        error_code,
        error,
        checked,
        mark,
        ended_at,
    ) = row
    return Run(
        id=RunId(run_id),
        space=space,
        task_id=TaskId(task_id),
        task=task,
        state=RunState(state),
        place=None if place is None else QueueState(place),
        source=RunSource(source),
        pool=Pool(pool),
        priority=priority,
        lane=lane,
        route=route,
        epoch=Epoch(epoch),
        cause=AttemptCause(cause),
        retries=retries,
        losses=losses,
        created_at=from_micros(created_at),
        available_at=from_micros(available_at),
        started_at=maybe_instant(started_at),
        finished_at=maybe_instant(finished_at),
        expires_at=maybe_instant(expires_at),
        cancel_requested_at=maybe_instant(cancel_at),
        stuck=bool(stuck),
        holder=None if holder is None else WorkerId(holder),
        schedule_id=None if schedule_id is None else ScheduleId(schedule_id),
        slot_key=slot_key,
        slot_at=maybe_instant(slot_at),
        upstream_id=None if upstream_id is None else RunId(upstream_id),
        key=key,
        payload=payload,
        result=result,
        error_code=error_code,
        error=error,
        checked=None if checked is None else CheckState(checked),
        mark=None if mark is None else SuppressionReason(mark),
        ended_at=maybe_instant(ended_at),
    )


async def list_runs(tx: Transaction, wanted: RunFilter) -> list[Run]:
    """Return runs, newest first."""
    params = {
        "space_id": wanted.space_id,
        "state": None if wanted.state is None else wanted.state.value,
        "before": LAST if wanted.before is None else wanted.before,
        "most": wanted.limit,
        "hidden": None if wanted.quiet else SuppressionReason.QUIET.value,
    }
    if wanted.task_id is not None:
        rows = await tx.rows("list_runs_of_task", task_id=wanted.task_id, **params)
    else:
        rows = await tx.rows("list_runs", **params)
    return [as_run(row) for row in rows]


async def get_runs(tx: Transaction, ids: Sequence[int]) -> list[Run]:
    """Return runs by id."""
    return [as_run(row) for row in await tx.rows("get_runs", ids=ids)] if ids else []


async def get_run(tx: Transaction, run_id: int) -> Run | None:
    """Return a run by id."""
    found = await get_runs(tx, [run_id])
    return found[0] if found else None


async def view_run(tx: Transaction, run_id: int, output: int, deliveries: int) -> RunView | None:
    """Return a run with everything that belongs to it."""
    runs = await get_runs(tx, [run_id])
    if not runs:
        return None
    return RunView(
        run=runs[0],
        attempts=await list_attempts(tx, run_id),
        events=await list_run_events(tx, run_id),
        output=await list_run_output(tx, run_id, output),
        deliveries=await list_deliveries(tx, run_id, deliveries),
        questions=await list_questions(tx, [run_id]),
        heartbeat=(await get_heartbeats(tx, [run_id])).get(runs[0].id),
    )


async def list_slot_runs(tx: Transaction, task_id: int, start: int, end: int) -> list[Run]:
    """Return the runs of a task's slots in a span, oldest first."""
    rows = await tx.rows("slot_runs", task_id=task_id, start=start, end=end)
    return [as_run(row) for row in rows]


async def list_ledger_rows(tx: Transaction, task_id: int, start: int, end: int) -> list[LedgerRow]:
    """Return the ledger rows of a task that touch a span, oldest first."""
    return [
        LedgerRow(
            schedule_id=ScheduleId(row[0]),
            schedule=row[1],
            reason=LedgerReason(row[2]),
            first_key=row[3],
            last_key=row[4],
            first_at=from_micros(row[5]),
            last_at=from_micros(row[6]),
            count=row[7],
            noted_at=from_micros(row[8]),
        )
        for row in await tx.rows("ledger_rows", task_id=task_id, start=start, end=end)
    ]


async def list_attempts(tx: Transaction, run_id: int) -> list[EndedAttempt]:
    """Return the ended attempts of a run."""
    return [
        EndedAttempt(
            run_id=RunId(run_id),
            number=Epoch(row[0]),
            cause=AttemptCause(row[1]),
            worker=None if row[2] is None else WorkerId(row[2]),
            started_at=from_micros(row[3]),
            ended_at=from_micros(row[4]),
            outcome=row[5],
            error=row[6],
            ending=None if row[7] is None else json.loads(row[7]),
            checks=None if row[8] is None else json.loads(row[8]),
        )
        for row in await tx.rows("list_attempts", run_id=run_id)
    ]


async def list_questions(tx: Transaction, run_ids: Sequence[int]) -> list[Question]:
    """Return the questions of runs in the order they were asked."""
    rows = await tx.rows("list_questions", ids=run_ids) if run_ids else []
    return [as_question(row) for row in rows]


async def get_question(tx: Transaction, question_id: int) -> Question | None:
    """Return a question by id."""
    rows = await tx.rows("get_questions", ids=[question_id])
    return as_question(rows[0]) if rows else None


def as_question(row: Row) -> Question:
    """Return a row of questions as a value."""
    return Question(
        id=QuestionId(row[0]),
        run_id=RunId(row[1]),
        epoch=Epoch(row[2]),
        kind=row[3],
        question=row[4],
        context=row[5],
        options=tuple(json.loads(row[6])),
        asked_at=from_micros(row[7]),
        expires_at=from_micros(row[8]),
        answered_at=maybe_instant(row[9]),
        answer=row[10],
        answered_by=row[11],
        default=row[12],
        action=row[13],
        digest=row[14],
        outcome=row[15],
    )


async def list_events(tx: Transaction, after: int, most: int) -> list[Event]:
    """Return events after an id, in order."""
    rows = await tx.rows("list_events", after=after, most=most)
    return [as_event(row) for row in rows]


async def list_run_events(tx: Transaction, run_id: int) -> list[Event]:
    """Return the events of a run, in order; what its programs wrote is not among them."""
    return [as_event(row) for row in await tx.rows("run_events", run_id=run_id)]


async def list_run_output(tx: Transaction, run_id: int, most: int) -> list[Event]:
    """Return the newest of what the programs of a run wrote, in order."""
    return [as_event(row) for row in await tx.rows("run_output", run_id=run_id, most=most)]


def as_event(row: Row) -> Event:
    """Return a row of events as a value."""
    return Event(
        id=EventId(row[0]),
        at=from_micros(row[1]),
        name=EventName(row[2]),
        space_id=row[3],
        task_id=None if row[4] is None else TaskId(row[4]),
        run_id=None if row[5] is None else RunId(row[5]),
        data=json.loads(row[6]),
    )


async def find_tasks(
    tx: Transaction, wanted: TaskFilter
) -> list[tuple[Task, list[StoredSchedule]]]:
    """Return tasks, newest first, each with its schedules."""
    rows = await tx.rows(
        "find_tasks",
        space_id=wanted.space_id,
        name=wanted.name,
        thread=wanted.thread,
        kind=None if wanted.kind is None else wanted.kind.value,
        enabled=None if wanted.enabled is None else int(wanted.enabled),
        words=wanted.words,
        before=LAST if wanted.before is None else wanted.before,
        most=wanted.limit,
    )
    found: dict[int, tuple[Task, list[StoredSchedule]]] = {}
    for row in rows:
        task = found.get(row[0])
        if task is None:
            task = found[row[0]] = (as_task(row[:TASK_COLUMNS]), [])
        if row[TASK_COLUMNS] is not None:
            task[1].append(as_schedule(row[TASK_COLUMNS:]))
    return list(found.values())


async def list_tasks(tx: Transaction, space_id: int | None) -> list[Task]:
    """Return tasks by name, deleted ones left out."""
    return [as_task(row) for row in await tx.rows("list_tasks", space_id=space_id)]


async def list_successors(tx: Transaction, task_ids: Sequence[int]) -> dict[int, list[Task]]:
    """Return the tasks declared to run after each of these."""
    found: dict[int, list[Task]] = {}
    for row in await tx.rows("successors_of", ids=task_ids) if task_ids else []:
        found.setdefault(row[0], []).append(as_task(row[1:]))
    return found


async def list_busy_slots(tx: Transaction, space_id: int | None, most: int) -> list[SlotView]:
    """Return the runs that workers are at, the longest first."""
    rows = await tx.rows("used_slots", space_id=space_id, most=most)
    return [SlotView(RunId(row[0]), row[1], row[2], row[3], from_micros(row[4])) for row in rows]


async def dead_deliveries(
    tx: Transaction, space_id: int | None, since: int
) -> DeadDeliveriesView | None:
    """Return what could not be sent since an instant, and the last of it."""
    rows = await tx.rows("dead_deliveries", space_id=space_id, since=since)
    return DeadDeliveriesView(*rows[0]) if rows else None


async def list_spaces(tx: Transaction) -> list[Space]:
    """Return every space."""
    return [as_space(row) for row in await tx.rows("list_spaces")]


async def list_deliveries(tx: Transaction, run_id: int | None, most: int) -> list[Delivery]:
    """Return deliveries, newest first."""
    rows = await tx.rows("list_deliveries", run_id=run_id, most=most)
    return [as_delivery(row) for row in rows]


async def list_limits(tx: Transaction) -> list[Limit]:
    """Return every limit."""
    return [
        Limit(
            scope=LimitScope(row[0]),
            key=row[1],
            cap=row[2],
            rate=row[3],
            period=None if row[4] is None else from_micros(row[4]) - from_micros(0),
        )
        for row in await tx.rows("read_limits")
    ]


async def count_ahead(tx: Transaction, run_id: int) -> int:
    """Return how many ready runs of its pool and space go before a ready run."""
    rows = await tx.rows("count_ahead", id=run_id, most=MOST_AHEAD)
    return int(rows[0][0])


async def count_runs(tx: Transaction, task_id: int) -> dict[str, int]:
    """Return how many runs of a task there have been, by state, pruned ones included."""
    totals: dict[str, int] = {}
    for row in await tx.rows("read_pruned", ids=[task_id]):
        totals.update(json.loads(row[1]))
        if row[2]:
            totals[SuppressionReason.QUIET.value] = row[2]
    for state, count in await tx.rows("count_by_state", task_id=task_id):
        totals[state] = totals.get(state, 0) + count
    return totals


async def list_workers(tx: Transaction) -> list[WorkerView]:
    """Return every worker that is known."""
    return [
        WorkerView(
            id=WorkerId(row[0]),
            host=row[1],
            pid=row[2],
            roles=row[3],
            routes=tuple(json.loads(row[4])),
            slots=row[5],
            running=row[6],
            started_at=from_micros(row[7]),
            seen_at=from_micros(row[8]),
            lease_until=from_micros(row[9]),
            fenced=bool(row[10]),
        )
        for row in await tx.rows("list_workers")
    ]


async def view_queue(tx: Transaction, space_id: int | None = None) -> QueueView:
    """Return how full the queue is, as a whole or for one space."""
    if space_id is None:
        row: Any = (*(await tx.rows("view_queue"))[0], None, None)
    else:
        row = (await tx.rows("view_queue_of", space_id=space_id))[0]
    routes = await tx.rows("unserved_routes", space_id=space_id)
    pools = await tx.rows("view_pools", space_id=space_id)
    return QueueView(
        ready=row[0],
        later=row[1],
        held=row[2],
        running=row[3],
        waiting=row[4],
        stuck=row[5],
        oldest_ready=maybe_instant(row[6]),
        oldest_running=maybe_instant(row[7]),
        oldest_waiting=maybe_instant(row[8]),
        schedules=row[9],
        quarantined=row[10],
        unserved_routes=tuple(sorted(r[0] for r in routes)),
        pools=tuple(PoolView(r[0], r[1], from_micros(r[2])) for r in pools),
        unsent=tuple((r[0], r[1]) for r in await tx.rows("count_unsent", space_id=space_id)),
        next_due=maybe_instant(min((at for at in row[11:13] if at is not None), default=None)),
    )
