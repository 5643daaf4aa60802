"""Align: when zone data have changed, every schedule goes on from the slot it stood at.

A cursor is an instant, but a slot is named by its time on the wall. New data for a zone may move
the slot a schedule stands at, and the one it waits for. So each cursor is put where that slot now
lies, and each schedule waits for what follows: no nominal time is planned twice, none is passed
over, and none is late because the planner still waited for its old hour.
"""

from __future__ import annotations

import logging

from rota.flow.plan import RULE_FAULTS, table_of
from rota.model.instants import from_micros, to_micros
from rota.model.plans import PAST_ASKED_FOR, Plan, StandingSchedule
from rota.ports.store import Store
from rota.timing.timetable import Timetable

log = logging.getLogger(__name__)

MOST_SCHEDULES = 1_000
EDITION = 1
"""To be raised when a change of `rota.timing` gives old rules other slots."""


async def align(store: Store, zone_data: str) -> int:
    """Align every schedule unless that was done with these zone data; return how many moved."""
    mark = f"{EDITION}:{zone_data}"
    moved = last = 0
    while standing := await store.standing_schedules(mark, last, MOST_SCHEDULES):
        plans = [plan for plan in map(_aligned, standing) if plan is not None]
        verdicts = await store.align_schedules(plans, None) if plans else []
        moved += sum(verdicts)
        if all(verdicts):  # what changed in the meantime is looked at again
            last = standing[-1].id
    await store.align_schedules([], mark)
    if moved:
        log.warning("schedules.aligned", extra={"moved": moved})
    return moved


def _aligned(schedule: StandingSchedule) -> Plan | None:
    """Return where a schedule ought to stand, or None where that is so."""
    if schedule.cursor == PAST_ASKED_FOR:
        return None
    try:
        table = table_of(schedule.rule, schedule.generation, schedule.stagger)
        resumed = table.resume(from_micros(schedule.cursor), schedule.slot_key)
        following = table.next(resumed)
        renamed = _is_renamed(schedule, table)
    except RULE_FAULTS:
        return None  # the planner sets such a rule aside
    cursor = to_micros(resumed)
    # A rule that has nothing left is looked at now: the planner ends it.
    next_at = cursor if following is None else to_micros(following.due)
    if (cursor, next_at) == (schedule.cursor, schedule.next_at) and not renamed:
        return None
    return Plan(
        schedule_id=schedule.id,
        version=schedule.version,
        was=schedule.cursor,
        cursor=cursor,
        next_at=next_at,
    )


def _is_renamed(schedule: StandingSchedule, table: Timetable) -> bool:
    """Whether the slot at a schedule's cursor has another name now, so that its past has too."""
    if schedule.slot_key is None:
        return False
    slot = table.next(from_micros(schedule.cursor - 1))
    return slot is None or slot.key != schedule.slot_key
