"""What a pass would do: the same decisions, with nothing written."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from rota.flow.plan import MOST_SCHEDULES, plan_schedule
from rota.model.instants import from_micros
from rota.model.runs import Run
from rota.model.states import Place, RunState
from rota.model.views import RunFilter
from rota.ports.store import Store

MOST_READY = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What would become of the due slots of one schedule."""

    task: str
    schedule: int
    runs_at: list[datetime]
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """What is due and what is ready."""

    due: list[Due] = field(default_factory=list)
    ready: list[Run] = field(default_factory=list)


async def foresee(store: Store) -> Foresight:
    """Return what a pass that began now would plan and run."""
    now = store.now()
    due = await store.due_schedules(MOST_SCHEDULES)
    names = {task.id: task.name for task in await store.get_tasks([d.task_id for d in due])}
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
            Due(
                task=names.get(schedule.task_id, str(schedule.task_id)),
                schedule=schedule.id,
                runs_at=runs_at,
                skipped=skipped,
            )
        )
    queued = await store.list_runs(RunFilter(state=RunState.QUEUED, limit=MOST_READY))
    instant = from_micros(now)
    ready = [
        run
        for run in reversed(queued)
        if run.place is Place.READY or (run.place is Place.LATER and run.available_at <= instant)
    ]
    return Foresight(due=seen, ready=ready)
