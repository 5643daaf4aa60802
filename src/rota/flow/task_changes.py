"""Changes of a task: due slots are planned first, queued runs end with it.

A slot that was due before a change gets its run or ledger row, however late the planner is. So a
change first plans due slots, and applies only while the schedules are unchanged since.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

from rota.errors import Stale
from rota.model.attempts import AttemptReport, Cancelled
from rota.model.ids import ScheduleId, TaskId
from rota.model.instants import maybe_micros, to_micros
from rota.model.runs import OpenRun
from rota.model.schedules import StoredSchedule
from rota.model.settlement import Settlement
from rota.model.tasks import Task
from rota.rules.plans import plan_schedule
from rota.rules.settlement import SettlementContext, settle
from rota.store.plans import apply_plans, list_due_schedules
from rota.store.settlement import disable_task
from rota.store.store import Store
from rota.store.tasks import list_schedules
from rota.store.workers import list_queued_runs

Result = TypeVar("Result")

MOST_TRIES = 20


async def retry_if_stale(change: Callable[[], Awaitable[Result]]) -> Result:
    """Repeat a change that failed because of concurrent changes."""
    for _ in range(MOST_TRIES - 1):
        try:
            return await change()
        except Stale:
            continue
    return await change()


async def plan_due_then_list(store: Store, task_id: TaskId, now: int) -> list[StoredSchedule]:
    """Return the schedules of a task after planning all slots that were due at an instant."""
    while True:
        found = await store.read(list_schedules, [task_id])
        due = [s for s in found if s.next_at is not None and to_micros(s.next_at) <= now]
        if not due:
            return found
        for schedule in due:
            await plan_due_now(store, schedule.id)


async def plan_due_now(store: Store, schedule_id: ScheduleId) -> None:
    """Plan the due slots of a schedule that is about to be changed or deleted."""
    for due in await store.read(list_due_schedules, 1, schedule_id):
        await store.write(apply_plans, [plan_schedule(due, store.now())])


async def disable(store: Store, task: Task, reason: str, until: datetime | None) -> None:
    """Disable a task and cancel its planned runs that have not started."""
    now = store.now()
    done = False
    while not done:  # runs that a planner queues meanwhile are cancelled too
        await plan_due_then_list(store, task.id, now)
        queued = await store.read(list_queued_runs, task.id, planned_only=True)
        unbegun = [run for run in queued if run.epoch == 0]
        ends = cancel_runs(unbegun, task, "its task was disabled", now)
        done = await store.write(disable_task, task, reason, maybe_micros(until), ends)


def cancel_runs(runs: list[OpenRun], task: Task, reason: str, now: int) -> list[Settlement]:
    """Return the settlements of queued runs that are cancelled together."""
    context = SettlementContext(policy=task.policy, now=now)
    report = AttemptReport(outcome=Cancelled(reason=reason))
    return [settle(run, report, context) for run in runs]
