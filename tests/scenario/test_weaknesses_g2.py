"""Defects of the first system (G2-W rows): each can no longer happen."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from rota.flow.maintain import prune, rescue
from rota.flow.plan import plan
from rota.model.runs import RunState
from rota.model.spaces import LimitScope
from rota.model.tasks import CatchUp, CatchUpMode
from rota.model.views import RunFilter
from rota.rules.plans import plan_schedule
from rota.store.plans import apply_plans, list_due_schedules, next_due
from rota.store.views import count_runs, list_events, list_runs, view_queue
from tests.tools.power_cut import cut_at_every_query
from tests.tools.store_bench import MINUTE, Bench


async def test_g2_w01_a_crash_between_claim_and_completion_loses_nothing(
    tmp_path, clock, chance, opened_file
):
    """A claim set next_run to NULL with no lease and no sweep: a crash lost the task for ever."""
    path = str(tmp_path / "rota.db")
    first = Bench(await opened_file(path), clock)
    task = await first.task()
    await first.planned(task, every="1h")
    clock.advance(hours=1)
    await first.plan()
    await first.worker("dies")
    lease = await first.claim_one(worker="dies")

    second = Bench(await opened_file(path), clock)
    second.routes = first.routes
    clock.advance(minutes=2)
    assert await rescue(second.store, chance, fence=True) == 1
    assert await rescue(second.store, chance, fence=True) == 0
    again = await second.claim_one(worker="lives")
    assert (again.run_id, again.epoch) == (lease.run_id, 2)
    assert await second.end(again)
    assert (await second.store.read(next_due)) is not None


async def test_g2_w02_a_burst_of_enqueues_never_exceeds_the_cap(desk):
    """The cap was checked before the counter rose: cap 5 became 12 at once."""
    await desk.limit(LimitScope.TOTAL, cap=5)
    await desk.limit(LimitScope.SPACE, "background", cap=5)
    task = await desk.task()
    most = 0

    async def storm():
        nonlocal most
        await desk.queue(task)
        for lease in await desk.claim():
            most = max(most, (await desk.store.read(view_queue)).running)
            await asyncio.sleep(0)
            await desk.end(lease)

    await asyncio.gather(*(storm() for _ in range(40)))
    while leases := await desk.claim():
        most = max(most, len(leases))
        for lease in leases:
            await desk.end(lease)
    assert most <= 5
    assert await desk.store.read(count_runs, task.id) == {"succeeded": 40}


async def test_g2_w02_runs_of_one_lane_never_overlap_in_a_burst(desk):
    """Per-group order was checked before it was reserved: 12 of one group ran at once."""
    task = await desk.task(lane="group")
    await asyncio.gather(*(desk.queue(task) for _ in range(12)))
    takes = await asyncio.gather(*(desk.claim(worker=f"w{n}") for n in range(6)))
    assert sum(len(take) for take in takes) == 1


async def test_g2_w03_the_planner_sleeps_exactly_until_the_next_slot(desk):
    """A 60 s poll made everything up to 60 s late, and an insert woke nobody."""
    task = await desk.task()
    heard = []
    desk.store.subscribe(heard.append)
    await desk.planned(task, every="7m")
    assert "schedules" in heard
    planned = await plan(desk.store)
    assert planned.rest_micros == 7 * 60 * 1_000_000
    desk.clock.advance(minutes=7)
    heard.clear()
    await plan(desk.store)
    assert "runs" in heard


async def test_g2_w04_instants_are_compared_as_instants(desk):
    """Next runs were compared as text: a value with an offset came in the wrong order."""
    early, late = await desk.task("early"), await desk.task("late")
    await desk.planned(late, at="2026-03-02T14:00:00+00:00")
    await desk.planned(early, at="2026-03-02T15:30:00+02:00")
    due = await desk.store.read(next_due)
    assert due == int(datetime(2026, 3, 2, 13, 30, tzinfo=UTC).timestamp() * 1_000_000)
    desk.clock.set(datetime(2026, 3, 2, 13, 45, tzinfo=UTC))
    await desk.plan()
    assert len(await desk.slots(early)) == 1
    assert await desk.slots(late) == []


async def test_g2_w05_a_schedule_fires_by_its_own_zone(desk):
    """The zone was read but the cron was computed in naive local time."""
    task = await desk.task()
    desk.clock.set(datetime(2026, 3, 28, 0, 0, tzinfo=UTC))
    await desk.planned(task, cron="0 7 * * *", timezone="Europe/Berlin")
    fired = []
    for _ in range(3):
        next_at = await desk.store.read(next_due)
        desk.clock.set(datetime.fromtimestamp(next_at / 1_000_000, tz=UTC))
        await desk.plan()
    fired = [run.slot_at for run in await desk.slots(task)]
    assert fired == [
        datetime(2026, 3, 28, 6, 0, tzinfo=UTC),
        datetime(2026, 3, 29, 5, 0, tzinfo=UTC),
        datetime(2026, 3, 30, 5, 0, tzinfo=UTC),
    ]


async def test_g2_w06_an_interval_does_not_drift_with_its_runs(desk):
    """The interval was anchored on completion, so every run pushed the next one back."""
    task = await desk.task()
    begun = desk.clock.now()
    await desk.planned(task, every="10m")
    for _ in range(5):
        desk.clock.advance(minutes=10, seconds=3)
        await desk.plan()
        lease = await desk.claim_one()
        desk.clock.advance(minutes=2)
        await desk.end(lease)
        desk.clock.set(desk.clock.now() - timedelta(minutes=2, seconds=3))
    fired = [run.slot_at for run in await desk.slots(task)]
    assert fired == [begun + n * timedelta(minutes=10) for n in range(1, 6)]


async def test_g2_w06_slots_missed_during_a_run_are_not_silently_lost(desk):
    """Cron was computed at completion: slots that passed meanwhile vanished without a trace."""
    task = await desk.task(catch_up=CatchUp(mode=CatchUpMode.LATEST))
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    lease = await desk.claim_one()
    desk.clock.advance(minutes=5)
    await desk.plan()
    await desk.end(lease)
    runs, ledger = await desk.slots(task), await desk.ledger(task)
    assert len(runs) + sum(count for _, count in ledger) == 6


async def test_g2_w12_the_slot_and_its_cursor_move_in_one_step(desk):
    """Two cursors were committed one after the other: a crash in between doubled or lost work."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    before = await desk.store.read(next_due)
    (due,) = await desk.store.read(list_due_schedules, 1)

    async def nothing_happened():
        assert await desk.slots(task) == []
        assert await desk.store.read(next_due) == before

    plans = [plan_schedule(due, desk.store.now())]
    cuts = await cut_at_every_query(desk.store, apply_plans, plans, check=nothing_happened)
    assert cuts >= 3
    assert len(await desk.slots(task)) == 1
    assert await desk.store.read(next_due) == before + 60_000_000


async def test_g2_w23_finished_runs_leave_after_their_time(desk):
    """Logs, archives and runs grew without bound."""
    task = await desk.task()
    await desk.queue(task, 50)
    for lease in await desk.claim():
        await desk.end(lease)
    desk.clock.advance(days=31)
    (kept,) = await desk.queue(task)
    while await prune(desk.store):
        pass
    left = await desk.store.read(list_runs, RunFilter())
    assert [(run.id, run.state) for run in left] == [(kept, RunState.QUEUED)]
    assert await desk.store.read(list_events, 0, 100) == []
    assert (await desk.store.read(count_runs, task.id))["succeeded"] == 50
