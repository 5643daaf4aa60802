"""Aligning schedules with zone data; the data themselves change in tests/scenario/zone_data."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from rota.flow.plan import align
from rota.model.instants import to_micros
from rota.model.schedules import ScheduleState
from rota.store.tasks import list_schedules, list_waiting_schedules, put_schedule
from tests.tools.interception import intercept
from tests.tools.store_bench import MINUTE

BERLIN = "Europe/Berlin"


async def test_schedules_that_stand_where_they_ought_to_are_left_alone(desk):
    task = await desk.task()
    await desk.planned(task, name="new", every="1m")
    await desk.planned(task, name="wall", cron="*/5 * * * *", timezone=BERLIN)
    await desk.planned(task, name="jitter", times="12:30", options={"jitter": "10m"})
    await desk.planned(task, name="single", at="2026-03-02T13:00", timezone=BERLIN)
    desk.clock.advance(minutes=5)
    await desk.plan()
    before = await desk.store.read(list_schedules, [task.id])
    assert await align(desk.store, "data") == 0
    assert await desk.store.read(list_schedules, [task.id]) == before


async def test_a_schedule_that_waits_for_the_wrong_instant_is_put_right(desk):
    task = await desk.task()
    stored = await desk.planned(task, cron="0 9 * * *", timezone=BERLIN)
    (due,) = await desk.store.read(list_waiting_schedules, "", 0, 1)
    stale = {"task_id": task.id, "name": "default", "rule": due.rule, "generation": 1}
    late = due.next_at + 3_600_000_000
    await desk.store.write(put_schedule, {**stale, "cursor": due.cursor, "next_at": late})
    assert await align(desk.store, "data") == 1
    (found,) = await desk.store.read(list_schedules, [task.id])
    assert (found.cursor, found.next_at) == (stored.cursor, stored.next_at)
    assert await align(desk.store, "data") == 0


async def test_a_rule_that_cannot_be_read_is_left_to_the_planner(desk):
    task = await desk.task()
    now = desk.store.now()
    record = {"task_id": task.id, "name": "default", "rule": "{}", "generation": 1}
    await desk.store.write(put_schedule, {**record, "cursor": now, "next_at": now + 1})
    assert await align(desk.store, "data") == 0
    desk.clock.advance(MINUTE)
    await desk.plan()
    (schedule,) = await desk.store.read(list_schedules, [task.id])
    assert schedule.state is ScheduleState.QUARANTINED


async def test_a_schedule_changed_in_the_meantime_is_looked_at_again(desk):
    begun = desk.clock.now()
    task = await desk.task()
    await desk.planned(task, cron="0 9 * * *", timezone=BERLIN)

    async def change_between(proceed, *args):
        found = await proceed(*args)
        if desk.clock.now() > begun:
            return found
        desk.clock.advance(MINUTE)
        await desk.planned(task, cron="0 10 * * *", timezone=BERLIN)
        return [replace(standing, next_at=standing.next_at + 1) for standing in found]

    intercept(desk.store, list_waiting_schedules, change_between)
    assert await align(desk.store, "data") == 0
    (schedule,) = await desk.store.read(list_schedules, [task.id])
    assert schedule.next_at == datetime(2026, 3, 3, 9, tzinfo=UTC)
    assert to_micros(schedule.cursor) == desk.store.now()
