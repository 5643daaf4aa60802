"""Plan: due schedules become runs and ledger rows; alignment after new zone data.

A cursor is an instant, but a slot is named by its time on the wall. New data for a zone may move
the slot a schedule stands at, and the one it waits for. So each cursor is put where that slot now
lies, and each schedule waits for what follows: no nominal time is planned twice, none is passed
over, and none is late because the planner still waited for its old hour.

One step takes a batch of due schedules, decides about their slots, and applies what was decided, in
one transaction. Any number of planners may do this at once: a plan applies only while its schedule
stands where it stood, and a slot exists once whatever happens.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime

from rota.model.instants import from_micros, to_micros
from rota.model.runs import QueueState, Run, RunState
from rota.model.schedules import PAST_ASKED_FOR, ScheduleCursor, SchedulePlan
from rota.model.views import RunFilter
from rota.rules.plans import MAX_SCHEDULES, RULE_ERRORS, plan_schedule, timetable_for
from rota.store.plans import list_due_schedules, plan_due, promote_delayed
from rota.store.store import Store
from rota.store.tasks import align_schedules, get_tasks, list_waiting_schedules
from rota.store.views import list_runs
from rota.timing.timetable import Timetable

log = logging.getLogger(__name__)
MOST_PROMOTED = 2_000
BREATH = 10_000
"""Microseconds between long steps, in which other processes find the database free."""
"""What a stored rule that is damaged, or beyond what the calendar can do, may raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """What one step did, and when the next one is needed."""

    schedules: int
    promoted: int
    rest_micros: int | None


async def plan(store: Store) -> PlanResult:
    """Let delayed runs whose time has come stand in the queue, and plan what is due.

    They go first: whether a slot runs depends on who stands in its lane.
    """
    step = await store.write(plan_due, plan_schedule, MAX_SCHEDULES, waits=True)
    promoted = 0
    if step.later_at is not None and step.later_at <= store.now():
        promoted = await store.write(promote_delayed, MOST_PROMOTED)
        step = await store.write(plan_due, plan_schedule, MAX_SCHEDULES)
    instants = [at for at in (step.slot_at, step.later_at) if at is not None]
    rest = max(0, min(instants) - store.now()) if instants else None
    if step.cut:
        rest = BREATH
    return PlanResult(schedules=step.schedules, promoted=promoted, rest_micros=rest)


MAX_ALIGNED = 1_000
EDITION = 1
"""To be raised when a change of `rota.timing` gives old rules other slots."""


async def align(store: Store, zone_data: str) -> int:
    """Align every schedule unless that was done with these zone data; return how many moved."""
    mark = f"{EDITION}:{zone_data}"
    moved = last = 0
    while standing := await store.read(list_waiting_schedules, mark, last, MAX_ALIGNED):
        plans = [plan for plan in map(_aligned, standing) if plan is not None]
        verdicts = await store.write(align_schedules, plans, None) if plans else []
        moved += sum(verdicts)
        if all(verdicts):  # what changed in the meantime is looked at again
            last = standing[-1].id
    await store.write(align_schedules, [], mark)
    if moved:
        log.warning("schedules.aligned", extra={"moved": moved})
    return moved


def _aligned(schedule: ScheduleCursor) -> SchedulePlan | None:
    """Return where a schedule ought to stand, or None where that is so."""
    if schedule.cursor == PAST_ASKED_FOR:
        return None
    try:
        table = timetable_for(schedule.rule, schedule.generation, schedule.stagger)
        resumed = table.resume(from_micros(schedule.cursor), schedule.slot_key)
        following = table.next(resumed)
        renamed = _is_renamed(schedule, table)
    except RULE_ERRORS:
        return None  # the planner sets such a rule aside
    cursor = to_micros(resumed)
    # A rule that has nothing left is looked at now: the planner ends it.
    next_at = cursor if following is None else to_micros(following.due)
    if (cursor, next_at) == (schedule.cursor, schedule.next_at) and not renamed:
        return None
    return SchedulePlan(
        schedule_id=schedule.id,
        version=schedule.version,
        was=schedule.cursor,
        cursor=cursor,
        next_at=next_at,
    )


def _is_renamed(schedule: ScheduleCursor, table: Timetable) -> bool:
    """Whether the slot at a schedule's cursor has another name now, so that its past has too."""
    if schedule.slot_key is None:
        return False
    slot = table.next(from_micros(schedule.cursor - 1))
    return slot is None or slot.key != schedule.slot_key


MOST_READY = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePreview:
    """What would become of the due slots of one schedule."""

    task: str
    schedule: int
    runs_at: list[datetime]
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPreview:
    """What is due and what is ready."""

    due: list[DuePreview] = field(default_factory=list)
    ready: list[Run] = field(default_factory=list)


async def preview_pass(store: Store) -> PassPreview:
    """Return what a pass that began now would plan and run."""
    now = store.now()
    due = await store.read(list_due_schedules, MAX_SCHEDULES)
    names = {task.id: task.name for task in await store.read(get_tasks, [d.task_id for d in due])}
    seen = []
    for schedule in due:
        plan = plan_schedule(schedule, now)
        skipped: dict[str, int] = {}
        for entry in plan.ledger:
            skipped[entry.reason] = skipped.get(entry.reason, 0) + entry.count
        runs_at = [
            from_micros(batch.template.slot_at)
            for batch in plan.runs
            if batch.template.slot_at is not None
        ]
        seen.append(
            DuePreview(
                task=names.get(schedule.task_id, str(schedule.task_id)),
                schedule=schedule.id,
                runs_at=runs_at,
                skipped=skipped,
            )
        )
    queued = await store.read(list_runs, RunFilter(state=RunState.QUEUED, limit=MOST_READY))
    instant = from_micros(now)
    ready = [
        run
        for run in reversed(queued)
        if run.place is QueueState.READY
        or (run.place is QueueState.LATER and run.available_at <= instant)
    ]
    return PassPreview(due=seen, ready=ready)
