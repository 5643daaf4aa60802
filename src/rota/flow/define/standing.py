"""Schedules that are about to change: what was due of them is planned first.

A slot that was due before a change has its run or its ledger row, however late the planner is. So
a change first plans what is due, then applies only while the schedules stand as they stood then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from rota.errors import Stale
from rota.flow.plan import plan_one
from rota.model.ids import TaskId
from rota.model.instants import to_micros
from rota.model.plans import StoredSchedule
from rota.ports.store import Store

Result = TypeVar("Result")

MOST_TRIES = 20


async def persistently(change: Callable[[], Awaitable[Result]]) -> Result:
    """Make a change again that others got in the way of."""
    for _ in range(MOST_TRIES - 1):
        try:
            return await change()
        except Stale:
            continue
    return await change()


async def standing_schedules(store: Store, task_id: TaskId, now: int) -> list[StoredSchedule]:
    """Return the schedules of a task once nothing of them is due that was due at an instant."""
    while True:
        found = await store.list_schedules([task_id])
        due = [s for s in found if s.next_at is not None and to_micros(s.next_at) <= now]
        if not due:
            return found
        for schedule in due:
            await plan_one(store, schedule.id)
