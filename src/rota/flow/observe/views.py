"""Views of tasks and runs for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rota.flow.lookup import get_task, run_not_found
from rota.model.checks import CheckState, SuppressionReason
from rota.model.ids import RunId, TaskId
from rota.model.instants import from_micros
from rota.model.runs import Question, QueueState, Run, RunState
from rota.model.schedules import ScheduleState, StoredSchedule
from rota.model.spaces import Space
from rota.model.tasks import Task
from rota.model.views import RunFilter, RunView
from rota.rules.permissions import Caller, may_act_for, visible_space
from rota.rules.plans import timetable_for
from rota.store import views as store_views
from rota.store.store import Store
from rota.store.tasks import find_space, list_schedules
from rota.store.views import count_ahead, count_runs, list_questions

RECENT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """A task with its related records; `recent` are its newest runs."""

    task: Task
    space: Space
    schedules: list[StoredSchedule]
    counts: dict[str, int]
    activity: TaskActivity
    recent: list[Run]
    now: datetime


async def list_tasks(
    store: Store, caller: Caller, space: str | None
) -> list[tuple[Task, list[StoredSchedule]]]:
    """Return tasks by name with their schedules, of one space or all."""
    space = visible_space(caller, space)
    owner = None if space is None else (await store.read(find_space, space)).id
    tasks = await store.read(store_views.list_tasks, owner)
    found: dict[int, list[StoredSchedule]] = {task.id: [] for task in tasks}
    for schedule in await store.read(list_schedules, list(found)):
        found[schedule.task_id].append(schedule)
    return [(task, found[task.id]) for task in tasks]


async def view_task(store: Store, caller: Caller, name: str, space: str = "main") -> TaskView:
    """Return one task with its related records."""
    task = await get_task(store, caller, name, space)
    counts = await store.read(count_runs, task.id)
    return TaskView(
        task=task,
        space=await store.read(find_space, space),
        schedules=await store.read(list_schedules, [task.id]),
        counts=counts,
        activity=await view_activity(store, task.id, counts),
        recent=await store.read(
            store_views.list_runs, RunFilter(task_id=task.id, limit=RECENT, suppressed=False)
        ),
        now=from_micros(store.now()),
    )


def next_fires(schedule: StoredSchedule, now: datetime, count: int) -> list[datetime]:
    """Return the next slots of a schedule; none if it has ended or is quarantined."""
    if schedule.state is not ScheduleState.ACTIVE:
        return []
    stagger = f"{schedule.space}/{schedule.task}/{schedule.name}"
    table = timetable_for(schedule.rule, schedule.generation, stagger)
    return [slot.due for slot in table.take(max(now, schedule.cursor), count)]


MOST_OPEN = 1_000
MOST_OUTPUT = 200
MOST_DELIVERIES = 100


async def list_runs(
    store: Store,
    caller: Caller,
    *,
    task: str | None = None,
    space: str | None = None,
    state: RunState | None = None,
    before: RunId | None = None,
    limit: int = 50,
    suppressed: bool = True,
) -> list[Run]:
    """Return runs, newest first; a task is looked up in the space, by default `main`.

    Runs that their gate did not start are left out unless `suppressed` is set.
    """
    space = visible_space(caller, space)
    owner = None if space is None else (await store.read(find_space, space)).id
    task_id = None
    if task is not None:
        task_id = (await get_task(store, caller, task, space or "main")).id
    wanted = RunFilter(
        task_id=task_id,
        space_id=owner,
        state=state,
        before=before,
        limit=limit,
        suppressed=suppressed,
    )
    return await store.read(store_views.list_runs, wanted)


async def view_run(store: Store, caller: Caller, run_id: int) -> RunView:
    """Return one run with its related records; runs of other spaces are not found."""
    view = await store.read(store_views.view_run, run_id, MOST_OUTPUT, MOST_DELIVERIES)
    if view is None or not may_act_for(caller, view.run.space):
        raise run_not_found(run_id)
    return view


async def open_questions(store: Store, caller: Caller) -> list[tuple[Question, Run]]:
    """Return unanswered questions with their runs, oldest first."""
    waiting = await list_runs(store, caller, state=RunState.WAITING, limit=MOST_OPEN)
    runs = {run.id: run for run in waiting}
    asked = await store.read(list_questions, list(runs))
    return [(q, runs[q.run_id]) for q in asked if q.answered_at is None]


FREE = "free"
BY_WEIGHT = (RunState.RUNNING, RunState.WAITING, RunState.QUEUED)
"""Precedence of states for the summary of a task with several runs."""


@dataclass(frozen=True, slots=True)
class TaskActivity:
    """What a task is doing, and in which run.

    `ahead` counts the ready runs of the same pool and space before a ready one; it is unknown for
    delayed and held runs.
    """

    state: str = FREE
    run: Run | None = None
    ahead: int | None = None
    question: Question | None = None


async def view_activity(store: Store, task_id: TaskId, counts: Mapping[str, int]) -> TaskActivity:
    """Return what a task is doing; `counts` has the number of its runs by state."""
    for state in BY_WEIGHT:
        if counts.get(state.value):
            found = await store.read(
                store_views.list_runs, RunFilter(task_id=task_id, state=state, limit=1)
            )
            if found:
                return await _view_run(store, found[0])
    return TaskActivity()


async def _view_run(store: Store, run: Run) -> TaskActivity:
    ahead = question = None
    if run.queue_state is QueueState.READY:
        ahead = await store.read(count_ahead, run.id)
    elif run.state is RunState.WAITING:
        asked = [q for q in await store.read(list_questions, [run.id]) if q.answered_at is None]
        question = asked[-1] if asked else None
    return TaskActivity(run.state.value, run, ahead, question)


CHECKABLE = frozenset({"agent", "script"})
"""Routes of work that can have checks."""


def check_state_of(run: Run) -> CheckState | None:
    """Return whether a finished run is verified; a success without checks is not.

    Returns None for runs that failed by themselves, were not started by their gate, or are
    callables.
    """
    if run.check_state is not None or run.state is not RunState.SUCCEEDED:
        return run.check_state
    told = run.route in CHECKABLE and run.suppressed is not SuppressionReason.BY_GATE
    return CheckState.UNVERIFIED if told else None
