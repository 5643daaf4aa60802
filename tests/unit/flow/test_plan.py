"""Planning: due schedules become runs and ledger rows."""

from __future__ import annotations

import gc
from datetime import UTC, datetime, timedelta

import pytest

from rota.flow.plan import BREATH, plan
from rota.model.runs import QueueState, RunState
from rota.model.schedules import LedgerReason, ScheduleState, Slot
from rota.model.tasks import CatchUp, CatchUpMode, Overlap, Retry
from rota.rules.plans import plan_schedule
from rota.store.plans import list_due_schedules
from rota.store.settlement import disable_task
from rota.store.tasks import enable_task, list_schedules, put_schedule
from rota.store.views import count_runs, list_ledger_rows
from rota.store.workers import renew_worker
from tests.tools.store_bench import FAR, MINUTE, Bench, failed


async def test_a_slot_on_time_becomes_a_run(desk):
    task = await desk.task()
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    (run,) = await desk.slots(task)
    assert (run.source.value, run.state, run.slot_key) == ("slot", RunState.QUEUED, "g1:1")
    assert run.slot_at == desk.clock.now()
    assert run.lane == f"task:{task.id}"


async def test_nothing_is_planned_early(desk):
    task = await desk.task()
    await desk.planned(task, every="1m")
    desk.clock.advance(seconds=59, minutes=0)
    planned = await plan(desk.store)
    assert (planned.schedules, planned.rest_micros) == (0, 1_000_000)
    assert await desk.slots(task) == []


async def test_without_schedules_there_is_nothing_to_wait_for(desk):
    await desk.space()
    planned = await plan(desk.store)
    assert (planned.schedules, planned.promoted, planned.rest_micros) == (0, 0, None)


async def test_of_missed_slots_the_latest_runs_and_the_rest_are_one_row(desk):
    task = await desk.task()
    await desk.planned(task, every="1h")
    desk.clock.advance(hours=10, minutes=30)
    await desk.plan()
    (run,) = await desk.slots(task)
    assert run.slot_key == "g1:10"
    assert await desk.ledger(task) == [("coalesced", 9)]


async def test_caught_up_slots_are_paced_oldest_first(desk):
    pace = timedelta(seconds=30)
    catch_up = CatchUp(mode=CatchUpMode.ALL, pace=pace)
    task = await desk.task(catch_up=catch_up)
    await desk.planned(task, every="1h")
    desk.clock.advance(hours=3, minutes=30)
    await desk.plan()
    runs = await desk.slots(task)
    assert [run.slot_key for run in runs] == ["g1:1", "g1:2", "g1:3"]
    assert [run.available_at - desk.clock.now() for run in runs] == [0 * pace, pace, 2 * pace]
    assert [run.place for run in runs] == [QueueState.HELD, QueueState.LATER, QueueState.LATER]


async def test_a_rule_of_every_second_over_a_weekend_is_few_rows(desk):
    task = await desk.task(catch_up=CatchUp(mode=CatchUpMode.NONE))
    await desk.planned(task, every="10s")
    desk.clock.advance(days=3)
    await desk.plan()
    ledger = await desk.ledger(task)
    runs = await desk.slots(task)
    assert sum(count for _, count in ledger) + len(runs) == 3 * 24 * 360
    missed = [count for reason, count in ledger if reason == "missed"]
    assert len(missed) == 1


async def test_slots_while_disabled_are_one_row_and_never_caught_up(desk):
    task = await desk.task(catch_up=CatchUp(mode=CatchUpMode.ALL))
    await desk.planned(task, every="1m")
    await desk.store.write(disable_task, task, "off", None, [])
    for _ in range(5):
        desk.clock.advance(MINUTE)
        await desk.plan()
    await desk.store.write(enable_task, task)
    desk.clock.advance(seconds=5)
    await desk.plan()
    assert await desk.slots(task) == []
    (row,) = await desk.store.read(list_ledger_rows, task.id, 0, FAR)
    assert (row.reason, row.count) == (LedgerReason.DISABLED, 5)
    assert (row.first_key, row.last_key) == ("g1:1", "g1:5")


async def test_a_task_enabled_before_the_planner_looked_never_fires_for_the_past(desk):
    task = await desk.task(catch_up=CatchUp(mode=CatchUpMode.ALL))
    await desk.planned(task, every="1m")
    await desk.store.write(disable_task, task, "off", None, [])
    desk.clock.advance(minutes=5, seconds=30)
    await desk.store.write(enable_task, task)
    desk.clock.advance(minutes=1)
    await desk.plan()
    assert [run.slot_key for run in await desk.slots(task)] == ["g1:6"]
    assert await desk.ledger(task) == [("disabled", 5)]


async def test_an_exhausted_rule_ends_quietly(desk):
    task = await desk.task()
    await desk.planned(task, at=desk.clock.now() + MINUTE)
    desk.clock.advance(MINUTE)
    await desk.plan()
    (stored,) = await desk.store.read(list_schedules, [task.id])
    assert (stored.state, stored.next_at) == (ScheduleState.ENDED, None)
    assert len(await desk.slots(task)) == 1
    assert (await plan(desk.store)).rest_micros is None


async def test_a_clock_that_goes_back_fires_nothing_again(desk):
    task = await desk.task(overlap=Overlap.ALLOW)
    await desk.planned(task, cron="* * * * *")
    for _ in range(3):
        desk.clock.advance(MINUTE)
        await desk.plan()
    before = [run.slot_key for run in await desk.slots(task)]
    desk.clock.set(desk.clock.now() - timedelta(minutes=3))
    for _ in range(3):
        await desk.plan()
        desk.clock.advance(MINUTE)
    await desk.plan()
    assert [run.slot_key for run in await desk.slots(task)] == before
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert len(await desk.slots(task)) == 4


async def test_a_clock_that_jumps_forward_obeys_catch_up(desk):
    task = await desk.task(catch_up=CatchUp(mode=CatchUpMode.ALL, cap=3))
    await desk.planned(task, every="1h")
    desk.clock.set(desk.clock.now() + timedelta(hours=20, minutes=30))
    await desk.plan()
    assert [run.slot_key for run in await desk.slots(task)] == ["g1:18", "g1:19", "g1:20"]
    assert await desk.ledger(task) == [("catch_up_cap", 17)]


async def test_an_interval_never_drifts(desk):
    task = await desk.task(overlap=Overlap.ALLOW)
    begun = desk.clock.now()
    await desk.planned(task, every="7m")
    for late in (3, 40, 1, 59, 0, 20):
        desk.clock.set(
            begun + timedelta(minutes=7 * (len(await desk.slots(task)) + 1), seconds=late)
        )
        await desk.plan()
    fired = [run.slot_at for run in await desk.slots(task)]
    assert fired == [begun + timedelta(minutes=7 * n) for n in range(1, 7)]


@pytest.mark.parametrize(
    ("overlap", "queued", "cancelled", "ledger"),
    [
        (None, 1, 3, []),
        (Overlap.QUEUE, 1, 3, []),
        (Overlap.QUEUE_ALL, 4, 0, []),
        (Overlap.SKIP, 0, 0, [("overlap", 4)]),
        (Overlap.ALLOW, 4, 0, []),
    ],
)
async def test_overlap_is_decided_for_slots_on_time(desk, overlap, queued, cancelled, ledger):
    task = await desk.task(overlap=overlap)
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    await desk.claim_one()
    for _ in range(4):
        desk.clock.advance(MINUTE)
        await desk.plan()
    counts = await desk.store.read(count_runs, task.id)
    assert counts.get("queued", 0) == queued
    assert counts.get("cancelled", 0) == cancelled
    assert await desk.ledger(task) == ledger


async def test_cancel_other_stops_the_running_one_and_runs_the_new_one(desk):
    task = await desk.task(overlap=Overlap.CANCEL_OTHER)
    await desk.planned(task, every="1m")
    await desk.worker("w1")
    desk.clock.advance(MINUTE)
    await desk.plan()
    lease = await desk.claim_one()
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert (await desk.store.write(renew_worker, "w1", FAR)).cancels == (lease.run_id,)
    assert await desk.claim() == []
    await desk.end(lease)
    assert len(await desk.claim()) == 1


@pytest.mark.parametrize(
    ("overlap", "counts", "ledger"),
    [
        (Overlap.SKIP, {"queued": 1}, [("overlap", 1)]),
        (Overlap.CANCEL_OTHER, {"cancelled": 1, "queued": 1}, []),
    ],
)
async def test_a_retry_that_is_due_with_a_slot_stands_in_its_lane_first(
    desk, overlap, counts, ledger
):
    retry = Retry(attempts=3, base=timedelta(seconds=30), jitter=0.0)
    task = await desk.task(overlap=overlap, retry=retry)
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    await desk.end(await desk.claim_one(), failed())
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert await desk.store.read(count_runs, task.id) == counts
    assert await desk.ledger(task) == ledger


async def test_delayed_runs_come_to_their_time_though_planning_fails(desk, monkeypatch):
    def fail(schedule, now):
        raise MemoryError

    task = await desk.task()
    await desk.planned(task, every="1m")
    (run_id,) = await desk.queue(task, at=desk.clock.now() + MINUTE)
    desk.clock.advance(MINUTE)
    monkeypatch.setattr("rota.flow.plan.plan_schedule", fail)
    with pytest.raises(MemoryError):
        await plan(desk.store)
    assert (await desk.run(run_id)).place is not QueueState.LATER


async def test_between_long_steps_others_find_the_database_free(desk, monkeypatch):
    def slowly(schedule, now):
        desk.clock.advance(seconds=1, minutes=0)
        return plan_schedule(schedule, now)

    task = await desk.task(overlap=Overlap.ALLOW)
    for number in range(3):
        await desk.schedule(task, desk.every("1h"), name=f"s{number}")
    desk.clock.advance(hours=1, minutes=0)
    monkeypatch.setattr("rota.flow.plan.plan_schedule", slowly)
    steps = [await plan(desk.store) for _ in range(3)]
    assert [(step.schedules, step.rest_micros) for step in steps[:2]] == [(1, BREATH)] * 2
    assert steps[2].rest_micros > BREATH
    assert len(await desk.slots(task)) == 3


async def test_slots_of_a_long_absence_are_not_remembered_for_ever(desk):
    task = await desk.task(overlap=Overlap.ALLOW)
    for number in range(8):
        anchor = desk.clock.now() - timedelta(milliseconds=number)
        await desk.planned(task, every="1s", name=f"s{number}", anchor=anchor)
    desk.clock.advance(seconds=10_000, minutes=0)
    await desk.plan()
    gc.collect()
    remembered = sum(isinstance(thing, Slot) for thing in gc.get_objects())
    assert remembered < 50_000


async def test_runs_that_were_asked_for_are_never_replaced(desk):
    from rota.flow.define.runs import backfill, run_now
    from rota.rules.permissions import LOCAL

    task = await desk.task(overlap=Overlap.QUEUE)
    desk.clock.advance(hours=1)
    await desk.planned(task, every="1m", anchor=datetime(2026, 3, 2, 12, 0, tzinfo=UTC))
    start = desk.clock.now() - timedelta(minutes=10)
    filled = await backfill(desk.store, LOCAL, "job", start=start, end=desk.clock.now())
    manual = (await run_now(desk.store, LOCAL, "job")).run_id
    for _ in range(3):
        desk.clock.advance(MINUTE)
        await desk.plan()
    for run_id in (*filled, manual):
        assert await desk.state(run_id) is RunState.QUEUED
    assert len(filled) == 10


async def test_schedules_of_one_task_do_not_share_slots(desk):
    task = await desk.task(overlap=Overlap.ALLOW)
    await desk.planned(task, every="1m", name="a")
    await desk.planned(task, every="1m", name="b")
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert len(await desk.slots(task)) == 2


async def test_many_due_schedules_are_planned_in_steps(desk):
    task = await desk.task(overlap=Overlap.ALLOW)
    for number in range(30):
        await desk.schedule(task, desk.every(MINUTE), name=f"s{number}")
    desk.clock.advance(MINUTE)
    due = await desk.store.read(list_due_schedules, 1_000)
    assert len(due) == 30
    await desk.plan()
    assert len(await desk.slots(task)) == 30


async def test_a_staggered_slot_runs_at_its_due_time_and_keeps_its_instant(desk):
    task = await desk.task()
    stored = await desk.planned(task, every="1h", options={"jitter": "30m"})
    at = desk.clock.now() + timedelta(hours=1)
    assert at <= stored.next_at < at + timedelta(minutes=30)
    desk.clock.set(stored.next_at)
    await desk.plan()
    (run,) = await desk.slots(task)
    assert run.slot_at == at


async def test_a_rule_that_fails_is_set_aside_with_its_reason(desk):
    from dataclasses import replace

    task = await desk.task()
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    (due,) = await desk.store.read(list_due_schedules, 1)
    made = plan_schedule(replace(due, rule="{}"), desk.store.now())
    assert (made.state, made.next_at, made.cursor) == (
        ScheduleState.QUARANTINED,
        None,
        due.cursor,
    )
    assert made.runs == made.ledger == ()


async def test_declaring_a_quarantined_schedule_again_brings_it_back(desk):
    task = await desk.task()
    bench = Bench(desk.store, desk.clock)
    record = {
        "task_id": task.id,
        "name": "default",
        "rule": '{"kind": "cron", "expression": "x"}',
        "generation": 1,
        "cursor": desk.store.now(),
        "next_at": desk.store.now(),
    }
    await desk.store.write(put_schedule, record)
    await bench.plan()
    stored = await desk.planned(task, every="1m")
    assert stored.state is ScheduleState.ACTIVE
