"""Tasks as people look at them: with their schedules, their tally and what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.flow.define.names import get_task
from rota.flow.observe.activity import Activity, view_activity
from rota.flow.plan import table_of
from rota.model.instants import from_micros
from rota.model.plans import ScheduleState, StoredSchedule
from rota.model.runs import Run
from rota.model.spaces import Space
from rota.model.tasks import Task
from rota.model.views import RunFilter
from rota.ports.store import Store
from rota.rules.permission import Caller, seen_space

RECENT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """A task with everything that belongs to it; `recent` are its newest runs."""

    task: Task
    space: Space
    schedules: list[StoredSchedule]
    counts: dict[str, int]
    activity: Activity
    recent: list[Run]
    now: datetime


async def list_tasks(
    store: Store, caller: Caller, space: str | None
) -> list[tuple[Task, list[StoredSchedule]]]:
    """Return tasks by name, each with its schedules; of one space, or of all."""
    space = seen_space(caller, space)
    owner = None if space is None else (await store.find_space(space)).id
    tasks = await store.list_tasks(owner)
    found: dict[int, list[StoredSchedule]] = {task.id: [] for task in tasks}
    for schedule in await store.list_schedules(list(found)):
        found[schedule.task_id].append(schedule)
    return [(task, found[task.id]) for task in tasks]


async def view_task(store: Store, caller: Caller, name: str, space: str = "main") -> TaskView:
    """Return one task with everything that belongs to it."""
    task = await get_task(store, caller, name, space)
    counts = await store.count_runs(task.id)
    return TaskView(
        task=task,
        space=await store.find_space(space),
        schedules=await store.list_schedules([task.id]),
        counts=counts,
        activity=await view_activity(store, task.id, counts),
        recent=await store.list_runs(RunFilter(task_id=task.id, limit=RECENT, quiet=False)),
        now=from_micros(store.now()),
    )


def next_fires(schedule: StoredSchedule, now: datetime, count: int) -> list[datetime]:
    """Return when a schedule's next runs may start; none once it has ended or was set aside."""
    if schedule.state is not ScheduleState.ACTIVE:
        return []
    stagger = f"{schedule.space}/{schedule.task}/{schedule.name}"
    table = table_of(schedule.rule, schedule.generation, stagger)
    return [slot.due for slot in table.take(max(now, schedule.cursor), count)]
