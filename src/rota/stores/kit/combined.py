"""Whole transactions made of the operations of others."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.ids import RunId
from rota.model.runs import Enqueued, RunBatch
from rota.model.settlements import Settlement
from rota.model.tasks import Task
from rota.stores.kit import plan, settle, tasks
from rota.stores.kit.enqueue import enqueue as queue_runs
from rota.stores.kit.session import Session


async def enqueue(session: Session, batches: Sequence[RunBatch], now: int) -> list[list[Enqueued]]:
    """Queue batches of runs, and do nothing else."""
    return await queue_runs(session, batches, now, last_of_all=True)


async def disable_task(
    session: Session,
    task: Task,
    reason: str,
    until: int | None,
    ends: Sequence[Settlement],
    now: int,
) -> None:
    """Stop a task's slots from running, and end the queued ones."""
    await tasks.disable_task(session, task, reason, until, now)
    if ends:
        await settle.settle(session, ends, now)


async def delete_task(
    session: Session, task: Task, ends: Sequence[Settlement], stops: Sequence[RunId], now: int
) -> None:
    """Take a task out of use, end what is queued and ask what runs to stop."""
    await tasks.delete_task(session, task, now)
    if ends:
        await settle.settle(session, ends, now)
    if stops:
        await plan.request_cancel(session, stops, now)
