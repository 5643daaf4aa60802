"""Plan: due schedules become runs and ledger rows; alignment after new zone data.

A step takes a batch of due schedules, decides about their slots and applies the decisions, in one
transaction. Several planners can work at once: a plan applies only while its schedule is unchanged,
and each slot exists once.

A cursor is an instant, but a slot is named by its local time. New zone data may move the last and
the next slot of a schedule. Alignment moves each cursor to the new instant of its slot, so that no
nominal time is planned twice, skipped or late.
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
"""Microseconds between long steps, in which other processes can use the database."""
"""What a stored rule that is damaged, or beyond what the calendar can do, may raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """The counts of one step, and when the next one is due."""

    schedules: int
    promoted: int
    rest_micros: int | None


async def plan(store: Store) -> PlanResult:
    """Promote delayed runs that are due, then plan due schedules.

    Promotion comes first, because whether a slot runs depends on the runs in its lane.
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
"""Increase this when a change of `rota.timing` changes the slots of existing rules."""


async def align(store: Store, zone_data: str) -> int:
    """Align every schedule once for these zone data; return how many were moved."""
    mark = f"{EDITION}:{zone_data}"
    moved = last = 0
    while standing := await store.read(list_waiting_schedules, mark, last, MAX_ALIGNED):
        plans = [plan for plan in map(_aligned, standing) if plan is not None]
        verdicts = await store.write(align_schedules, plans, None) if plans else []
        moved += sum(verdicts)
        if all(verdicts):  # schedules that have changed meanwhile are read again
            last = standing[-1].id
    await store.write(align_schedules, [], mark)
    if moved:
        log.warning("schedules.aligned", extra={"moved": moved})
    return moved


def _aligned(schedule: ScheduleCursor) -> SchedulePlan | None:
    """Return the aligned position of a schedule, or None if it is correct."""
    if schedule.cursor == PAST_ASKED_FOR:
        return None
    try:
        table = timetable_for(schedule.rule, schedule.generation, schedule.stagger)
        resumed = table.resume(from_micros(schedule.cursor), schedule.slot_key)
        following = table.next(resumed)
        renamed = _is_renamed(schedule, table)
    except RULE_ERRORS:
        return None  # the planner quarantines such a rule
    cursor = to_micros(resumed)
    # The planner ends a rule without further slots, so it is due now.
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
    """Return whether the slot at the cursor has another name now."""
    if schedule.slot_key is None:
        return False
    slot = table.next(from_micros(schedule.cursor - 1))
    return slot is None or slot.key != schedule.slot_key


MOST_READY = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePreview:
    """The decisions about the due slots of one schedule."""

    task: str
    schedule: int
    runs_at: list[datetime]
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPreview:
    """What a pass would plan and run."""

    due: list[DuePreview] = field(default_factory=list)
    ready: list[Run] = field(default_factory=list)


async def preview_pass(store: Store) -> PassPreview:
    """Return what a pass would plan and run now."""
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
        if run.queue_state is QueueState.READY
        or (run.queue_state is QueueState.DELAYED and run.available_at <= instant)
    ]
    return PassPreview(due=seen, ready=ready)
