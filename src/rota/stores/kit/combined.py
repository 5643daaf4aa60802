"""Whole transactions made of the operations of others."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.ids import RunId
from rota.model.runs import Enqueued, RunBatch
from rota.model.settlements import Settlement
from rota.model.tasks import Task
from rota.stores.kit import quotas, settle, tasks, workers
from rota.stores.kit.session import Session
from rota.stores.kit.stopping import request_cancel

DELETED = "its task was deleted"


async def enqueue(
    session: Session, batches: Sequence[RunBatch], now: int, mains: set[int]
) -> list[list[Enqueued]]:
    """Queue batches of runs, and do nothing else."""
    return await quotas.enqueue_within(session, batches, now, mains=mains, last_of_all=True)


async def disable_task(
    session: Session,
    task: Task,
    reason: str,
    until: int | None,
    ends: Sequence[Settlement],
    now: int,
) -> bool:
    """Stop a task's slots from running, and end the queued ones; false if more have come."""
    await session.run("touch_schedules", task_ids=[task.id])
    if await _more_than(session, task, ends, planned_only=True):
        return False
    await tasks.disable_task(session, task, reason, until, now)
    if ends:
        await settle.settle(session, ends, now)
    return True


async def delete_task(
    session: Session, task: Task, ends: Sequence[Settlement], stops: Sequence[RunId], now: int
) -> bool:
    """Take a task out of use, end what is queued and ask what runs to stop.

    False, with nothing done, if more has been queued meanwhile.
    """
    await session.run("touch_schedules", task_ids=[task.id])
    if await _more_than(session, task, ends, planned_only=False):
        return False
    await tasks.delete_task(session, task, now)
    if ends:
        await settle.settle(session, ends, now)
    if stops:
        await request_cancel(session, stops, DELETED, now)
    return True


async def _more_than(
    session: Session, task: Task, ends: Sequence[Settlement], *, planned_only: bool
) -> bool:
    """Tell whether a task has queued runs beside those that are to be ended.

    A planner that was faster has finished: the schedules it held were touched before.
    """
    queued = await workers.queued_runs_of(session, task.id, planned_only)
    known = {end.run_id for end in ends}
    return any(run.run_id not in known for run in queued if run.epoch == 0 or not planned_only)
