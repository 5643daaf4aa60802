"""Slots that a wrong clock has skipped, and the command that queues them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.flow.observe.time_text import count_text
from rota.model.clock_jumps import Leap
from rota.model.instants import from_micros, to_micros
from rota.model.schedules import StoredSchedule
from rota.rules.plans import RULE_ERRORS, timetable_for
from rota.store.clock_jumps import missed_schedules
from rota.store.store import Store
from rota.store.views import list_slot_runs

MOST_TASKS = 5
MAX_CREATED_SCHEDULES = 20
MAX_SLOTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """Slots of one task without a run; `more` says that there are others."""

    task: str
    space: str
    slots: int
    start: datetime
    end: datetime
    more: bool = False

    def slots_told(self) -> str:
        """Return the number of slots as text."""
        return f"more than {self.slots} slots" if self.more else count_text(self.slots, "slot")

    def command(self) -> str:
        """Return the command that queues a run for each of them."""
        where = "" if self.space == "main" else f" --space {self.space}"
        start, end = (at.isoformat().replace("+00:00", "Z") for at in (self.start, self.end))
        return f"rota backfill {self.task} --from {start} --to {end}{where}"


async def passed_over(
    store: Store, early: Leap, space_id: int | None = None, task_id: int | None = None
) -> list[PassedOver]:
    """Return tasks whose slots in a span were skipped and have no run since."""
    found: dict[int, PassedOver] = {}
    for schedule in await store.read(
        missed_schedules, early, space_id, task_id, MAX_CREATED_SCHEDULES
    ):
        passed = await _of(store, schedule, early)
        if passed is not None and (schedule.task_id in found or len(found) < MOST_TASKS):
            found[schedule.task_id] = _joined(found.get(schedule.task_id), passed)
    return list(found.values())


async def _of(store: Store, schedule: StoredSchedule, early: Leap) -> PassedOver | None:
    start = from_micros(early.start).replace(microsecond=0)
    end = min(from_micros(early.end), schedule.cursor)
    try:
        stagger = f"{schedule.space}/{schedule.task}/{schedule.name}"
        table = timetable_for(schedule.rule, schedule.generation, stagger)
        slots = table.between(start, end, limit=MAX_SLOTS + 1)
    except RULE_ERRORS:
        return None
    if not slots:
        return None
    until = to_micros(slots[-1].at)
    runs = await store.read(list_slot_runs, schedule.task_id, early.start, until)
    ran = {run.slot_key for run in runs if run.schedule_id == schedule.id}
    left = sum(slot.key not in ran for slot in slots)
    if not left:
        return None
    return PassedOver(
        task=schedule.task,
        space=schedule.space,
        slots=left,
        start=start,
        end=end,
        more=len(slots) > MAX_SLOTS,
    )


def _joined(one: PassedOver | None, other: PassedOver) -> PassedOver:
    if one is None:
        return other
    return PassedOver(
        task=one.task,
        space=one.space,
        slots=one.slots + other.slots,
        start=one.start,
        end=max(one.end, other.end),
        more=one.more or other.more,
    )
