"""Slots that are late, missed, overlapping or switched off: what runs, and what the ledger says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.flow.define import tasks
from rota.flow.define.runs import run_now
from rota.flow.define.tasks import disable_task, enable_task
from rota.flow.plan import plan
from rota.model.runs import RunState
from rota.model.spaces import LimitScope
from rota.model.tasks import CatchUp, CatchUpMode, OnLost, Overlap
from rota.rules.permissions import LOCAL
from rota.rules.plans import plan_schedule
from rota.store import settlement as store_settlement
from rota.store.plans import apply_plans, list_due_schedules
from rota.store.views import count_runs, list_runs, view_queue
from rota.testing.fakes import VirtualClock
from tests.scenario.builders import EVERYTHING, library
from tests.tools.store_bench import MINUTE, failed


async def test_skipping_missed_slots_still_runs_those_on_time(desk):
    """ZUB-W02: The policy `skip` also skipped what was on time: such a schedule never ran."""
    task = await desk.task(catch_up=CatchUp(mode=CatchUpMode.NONE))
    await desk.planned(task, every="10m")
    desk.clock.advance(minutes=10, seconds=5)
    await desk.plan()
    assert len(await desk.slots(task)) == 1
    desk.clock.advance(minutes=35)
    await desk.plan()
    assert len(await desk.slots(task)) == 1
    assert await desk.ledger(task) == [("missed", 3)]


async def test_the_latest_missed_slot_is_the_latest(desk):
    """ZUB-W03: After a long pause the 512th missed slot was taken for the latest one."""
    task = await desk.task(catch_up=CatchUp(mode=CatchUpMode.LATEST))
    await desk.planned(task, every="1m")
    begun = desk.clock.now()
    desk.clock.advance(days=9)
    desk.clock.advance(seconds=90)
    while await desk.store.read(list_due_schedules, 1):
        await desk.plan()

    total = 9 * 24 * 60 + 1
    newest = [run.slot_at for run in await desk.slots(task)]
    assert newest[-1] == begun + total * MINUTE
    assert len(newest) + sum(count for _, count in await desk.ledger(task)) == total


async def test_a_slot_that_is_far_too_late_does_not_fire(desk):
    """IST-W21: Missed slots always fired once, no matter how late."""
    task = await desk.task(catch_up=CatchUp(mode=CatchUpMode.LATEST, window=timedelta(hours=2)))
    await desk.planned(task, cron="0 13 * * *")
    desk.clock.set(datetime(2026, 3, 2, 20, 0, tzinfo=UTC))
    await desk.plan()
    assert await desk.slots(task) == []
    assert await desk.ledger(task) == [("too_late", 1)]


async def test_a_slot_on_time_leaves_caught_up_runs_in_the_queue():
    """Found by a review."""
    clock = VirtualClock()
    rota = library(clock)

    @rota.task("job", catch_up="all")
    async def job(run):
        return None

    async with rota:
        await rota.schedule("job", every="10m")
        clock.advance(timedelta(minutes=50, seconds=1))
        await plan(rota.store)
        clock.advance(timedelta(minutes=10))
        await plan(rota.store)
        runs = await rota.store.read(list_runs, EVERYTHING)
        assert [run.state for run in runs] == [RunState.QUEUED] * 6


@pytest.mark.parametrize("lane", [None, "printer"])
async def test_a_slow_task_does_not_overlap_itself(desk, lane):
    """IST-W21: A job could run any number of times beside itself."""
    task = await desk.task(overlap=Overlap.SKIP, lane=lane)
    await desk.planned(task, every="1m")
    for _ in range(5):
        desk.clock.advance(MINUTE)
        await desk.plan()
        await desk.claim()
    assert (await desk.store.read(view_queue)).running == 1
    assert await desk.ledger(task) == [("overlap", 4)]


async def test_a_slow_task_does_not_pile_up(desk):
    """JAGC-W11: There was no overlap control and no cap: slow tasks piled up follow-ups."""
    await desk.limit(LimitScope.TOTAL, cap=3)
    tasks = [await desk.task(f"t{n}") for n in range(5)]
    for task in tasks:
        await desk.planned(task, every="1m")
    for _ in range(30):
        desk.clock.advance(MINUTE)
        await desk.plan()
        await desk.claim()
        view = await desk.store.read(view_queue)
        assert view.running <= 3
        assert view.ready + view.held <= 2 * len(tasks)


async def test_a_run_now_obeys_the_tasks_overlap_policy(desk):
    """ZUB-W18: Manual triggers went past the no-overlap rule and could not be told apart."""
    task = await desk.task(overlap=Overlap.SKIP)
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    lease = await desk.claim_one()
    manual = (await run_now(desk.store, LOCAL, "job")).run_id
    assert await desk.claim() == []
    await desk.end(lease)
    (then,) = await desk.claim()
    assert then.run_id == manual
    run = await desk.run(manual)
    assert (run.source.value, run.task, run.slot_key) == ("manual", "job", None)


async def test_after_a_long_run_comes_one_follow_up(desk):
    """ZUB-24: With `queue`, one slot waits behind a long run; a newer one takes its place."""
    task = await desk.task(overlap=Overlap.QUEUE)
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    lease = await desk.claim_one()
    for _ in range(10):
        desk.clock.advance(MINUTE)
        await desk.plan()
    await desk.end(lease)
    (follow_up,) = await desk.claim()
    newest = (await desk.slots(task))[-1]
    assert follow_up.run_id == newest.id
    await desk.end(follow_up)
    assert await desk.claim() == []
    assert await desk.store.read(count_runs, task.id) == {"succeeded": 2, "cancelled": 9}


async def test_a_waiting_run_counts_as_active(desk):
    """ZUB-24: A run that waits for a person keeps `skip` slots from piling up questions."""
    task = await desk.task(overlap=Overlap.SKIP, on_lost=OnLost.ASK)
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    await desk.ask(await desk.claim_one())
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert await desk.ledger(task) == [("overlap", 1)]


async def test_a_disabled_task_does_not_fire(desk):
    """GEN-W10: Paused schedules went on firing."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    await disable_task(desk.store, LOCAL, "job")
    assert await desk.claim() == []
    desk.clock.advance(minutes=10)
    await desk.plan()
    assert await desk.claim() == []
    assert await desk.ledger(task) == [("disabled", 10)]
    await enable_task(desk.store, LOCAL, "job")
    assert await desk.claim() == []
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert len(await desk.claim()) == 1


async def test_a_paused_task_fires_again_by_itself(desk):
    """GEN-W10: There was no pause with an end."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    until = desk.clock.now() + timedelta(minutes=5, seconds=30)
    await disable_task(desk.store, LOCAL, "job", until=until)
    for _ in range(6):
        desk.clock.advance(MINUTE)
        await desk.plan()
    assert await desk.ledger(task) == [("paused", 5)]
    assert len(await desk.slots(task)) == 1


async def test_a_disabled_task_is_not_planned(desk):
    """ZUB-W12: A disabled profile went on being enqueued."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    await disable_task(desk.store, LOCAL, "job")
    desk.clock.advance(hours=1)
    await desk.plan()
    assert await desk.store.read(count_runs, task.id) == {}
    assert await desk.ledger(task) == [("disabled", 60)]


async def test_disabling_stops_what_is_planned_and_not_what_was_asked_for(desk):
    """JAGC-W14: Disabling did not stop pending occurrences."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    (asked_for,) = await desk.queue(task)
    await disable_task(desk.store, LOCAL, "job")
    assert await desk.claim_ids() == [asked_for]
    (slot,) = await desk.slots(task)
    assert (slot.state, slot.error) == (RunState.CANCELLED, "its task was disabled")


async def test_a_plan_made_before_a_task_was_disabled_does_not_apply_after_it(desk):
    """Found by the simulation."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    (due,) = await desk.store.read(list_due_schedules, 10)
    made = plan_schedule(due, desk.store.now())
    await desk.store.write(store_settlement.disable_task, task, "off", None, [])
    assert await desk.store.write(apply_plans, [made]) == [False]
    await desk.plan()
    assert await desk.ledger(task) == [("disabled", 1)]


async def test_a_task_disabled_by_its_failures_leaves_no_slot_to_be_claimed():
    """Found by a review."""
    clock = VirtualClock()
    rota = library(clock)

    @rota.task("job", disable_after=1, overlap="queue_all")
    async def job(run):
        raise ValueError

    async with rota:
        await rota.schedule("job", every="10s")
        clock.advance(timedelta(seconds=21))
        await plan(rota.store)
        await rota.work(until_idle=True)
        runs = await rota.store.read(list_runs, EVERYTHING)
        assert sorted(run.state for run in runs) == [RunState.CANCELLED, RunState.FAILED]


async def test_enabling_an_enabled_task_forgets_nothing():
    """Found by a review."""
    clock = VirtualClock()
    rota = library(clock)

    @rota.task("job")
    async def job(run):
        return None

    async with rota:
        await rota.schedule("job", every="10s")
        clock.advance(timedelta(seconds=11))
        await tasks.enable_task(rota.store, LOCAL, "job")
        await plan(rota.store)
        assert len(await rota.store.read(list_runs, EVERYTHING)) == 1


async def test_declaring_a_task_again_does_not_enable_it(desk):
    """IST-W13: An automatic disabling was undone at the next sync of the file."""
    task = await desk.task(disable_after=1)
    await desk.queue(task)
    await desk.end(await desk.claim_one(), failed())
    assert not (await desk.task_of(task)).enabled
    for priority in (0, 5):
        again = await desk.task(disable_after=1, priority=priority)
        assert not again.enabled
        assert again.disabled_reason == "failed 1 times in a row"
