"""Defects of the fifth system (JAGC rows): each can no longer happen."""

from __future__ import annotations

import asyncio
import json

import pytest

from rota.errors import Invalid
from rota.flow.define.tasks import delete_task, disable_task, put_task
from rota.flow.lookup import find_run
from rota.flow.maintain import MAX_RESCUED, prune, rescue
from rota.flow.plan import plan
from rota.model.attempts import Cancelled
from rota.model.runs import RunState
from rota.model.schedules import ScheduleState
from rota.model.spaces import LimitScope
from rota.model.tasks import OnLost, Overlap
from rota.rules.permissions import LOCAL
from rota.store.plans import apply_plans, list_due_schedules
from rota.store.tasks import list_schedules, put_schedule
from rota.store.views import count_runs, list_events, view_queue
from rota.store.workers import fence_other_workers, renew_worker
from tests.tools.store_bench import MINUTE, Bench


async def test_jagc_w01_a_finite_rule_ends_quietly_and_stops_nobody(desk):
    """A finite RRULE threw while advancing: the tick died, and the process with it, in a loop."""
    finite, other = await desk.task("finite"), await desk.task("other")
    await desk.planned(finite, rrule="FREQ=MINUTELY;COUNT=3")
    await desk.planned(other, every="1m")
    for _ in range(6):
        desk.clock.advance(MINUTE)
        await desk.plan()
        for lease in await desk.claim():
            await desk.end(lease)
    (stored,) = await desk.store.read(list_schedules, [finite.id])
    assert (stored.state, stored.next_at) == (ScheduleState.ENDED, None)
    assert len(await desk.slots(other)) == 6
    assert 0 < len(await desk.slots(finite)) <= 3
    names = [event.name.value for event in await desk.store.read(list_events, 0, 1_000)]
    assert names.count("schedule.ended") == 1


async def test_jagc_w01_a_poison_rule_is_set_aside_alone(desk):
    """One rule that could not be evaluated aborted the tick before all later tasks."""
    healthy = await desk.task("healthy")
    poisoned = await desk.task("poisoned")
    records = ["not json", "5", "[]", "{}", '{"kind": "cron", "expression": "99 99 * * *"}', "null"]
    for number, rule in enumerate(records):
        await desk.store.write(
            put_schedule,
            {
                "task_id": poisoned.id,
                "name": f"s{number}",
                "rule": rule,
                "generation": 1,
                "cursor": desk.store.now(),
                "next_at": desk.store.now() + 1,
            },
        )
    await desk.planned(healthy, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert len(await desk.slots(healthy)) == 1
    stored = await desk.store.read(list_schedules, [poisoned.id])
    assert {s.state for s in stored} == {ScheduleState.QUARANTINED}
    assert all("could not be evaluated" in s.note for s in stored)
    assert (await desk.store.read(view_queue)).quarantined == len(records)
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert len(await desk.slots(healthy)) == 2


async def test_jagc_w02_a_task_deleted_while_it_is_planned_disturbs_nobody(desk):
    """A store error for one occurrence aborted the whole tick."""
    from rota.rules.plans import plan_schedule

    gone, other = await desk.task("gone"), await desk.task("other")
    await desk.planned(gone, every="1m")
    await desk.planned(other, every="1m")
    desk.clock.advance(MINUTE)
    due = await desk.store.read(list_due_schedules, 10)
    await delete_task(desk.store, LOCAL, "gone")
    plans = [plan_schedule(schedule, desk.store.now()) for schedule in due]
    verdicts = dict(
        zip((p.schedule_id for p in plans), await desk.store.write(apply_plans, plans), strict=True)
    )
    assert sorted(verdicts.values()) == [False, True]
    assert [run.state for run in await desk.slots(gone)] == [RunState.CANCELLED]
    assert len(await desk.slots(other)) == 1


async def test_jagc_w04_a_restart_runs_again_only_what_was_running(
    tmp_path, clock, chance, opened_file
):
    """A restart ran every run again from the start, with all its effects."""
    path = str(tmp_path / "rota.db")
    first = Bench(await opened_file(path), clock)
    safe = await first.task("safe", on_lost=OnLost.RETRY)
    risky = await first.task("risky", on_lost=OnLost.ASK)
    once = await first.task("once", on_lost=OnLost.FAIL)
    done = (await first.queue(safe))[0]
    await first.end(await first.claim_one())
    runs = {t.name: (await first.queue(t))[0] for t in (safe, risky, once)}
    await first.worker("old")
    await first.claim(worker="old")
    waiting = (await first.queue(safe))[0]
    await first.store.database.close()

    second = Bench(await opened_file(path), clock)
    await second.worker("new")
    await second.store.write(fence_other_workers, "new")
    assert await rescue(second.store, chance, fence=False) == 3
    assert await second.state(done) is RunState.SUCCEEDED
    assert await second.state(runs["safe"]) is RunState.QUEUED
    assert await second.state(runs["risky"]) is RunState.WAITING
    assert await second.state(runs["once"]) is RunState.FAILED
    assert (await second.run(waiting)).epoch == 0


async def test_jagc_w05_editing_a_task_does_not_disturb_runs_in_the_queue(desk):
    """An edit between ingest and dispatch made a payload conflict that failed the occurrence."""
    task = await desk.task()
    batch = desk.batch(task, [{"say": "hello"}], ["k"])
    ((outcome,),) = await desk.enqueue(batch)
    await put_task(
        desk.store, LOCAL, "job", route=task.route, title="New", origin="cli", replace=True
    )
    ((again,),) = await desk.enqueue(batch)
    assert (again.run_id, again.conflict) == (outcome.run_id, False)
    lease = await desk.claim_one()
    assert json.loads(lease.payload) == {"say": "hello"}
    assert await desk.end(lease)


async def test_jagc_w07_every_lost_run_is_found_however_many_there_are(desk, chance):
    """Only the oldest 200 rows were looked at, so many long runs starved the rest."""
    count = 2 * MAX_RESCUED + 7
    task = await desk.task()
    await desk.queue(task, count)
    await desk.worker("dies")
    while await desk.claim(500, worker="dies"):
        pass
    desk.clock.advance(MINUTE)
    rescued = 0
    while found := await rescue(desk.store, chance, fence=True):
        rescued += found
    assert rescued == count
    assert await desk.store.read(count_runs, task.id) == {"queued": count}


async def test_jagc_w10_an_instant_in_the_past_is_refused(desk):
    """An instant in the past was accepted and fired at once."""
    task = await desk.task()
    with pytest.raises(Invalid, match="past"):
        await desk.planned(task, at="2026-03-02T11:00:00Z")
    assert await desk.store.read(list_schedules, [task.id]) == []
    await desk.planned(task, at="2026-03-02T11:00:00Z", allow_past=True)
    await desk.plan()
    assert len(await desk.slots(task)) == 1


async def test_jagc_w11_a_slow_task_does_not_pile_up(desk):
    """There was no overlap control and no cap: slow tasks piled up follow-ups."""
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


async def test_jagc_w14_deleting_keeps_the_history_and_stops_the_work(desk):
    """Deleting a task took its history with it and left its occurrence running."""
    task = await desk.task(overlap=Overlap.ALLOW)
    await desk.queue(task, 3)
    await desk.worker("w1")
    await desk.end(await desk.claim_one())
    lease = await desk.claim_one()
    await delete_task(desk.store, LOCAL, "job")
    assert await desk.store.read(count_runs, task.id) == {
        "succeeded": 1,
        "running": 1,
        "cancelled": 1,
    }
    assert (await desk.store.write(renew_worker, "w1", desk.store.now())).cancels == (lease.run_id,)
    await desk.end(lease, Cancelled(reason="it was cancelled"))
    assert (await find_run(desk.store, LOCAL, lease.run_id)).task == "job"


async def test_jagc_w14_disabling_stops_what_is_planned_and_not_what_was_asked_for(desk):
    """Disabling did not stop pending occurrences."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    (asked_for,) = await desk.queue(task)
    await disable_task(desk.store, LOCAL, "job")
    assert await desk.claim_ids() == [asked_for]
    (slot,) = await desk.slots(task)
    assert (slot.state, slot.error) == (RunState.CANCELLED, "its task was disabled")


async def test_jagc_w15_years_of_slots_leave_little_behind(desk):
    """Runs, keys and occurrences grew without bound."""
    task = await desk.task()
    await desk.planned(task, every="1d")
    for _ in range(400):
        desk.clock.advance(days=1)
        await desk.plan()
        for lease in await desk.claim():
            await desk.end(lease)
        await prune(desk.store)
    assert len(await desk.slots(task)) <= 32
    assert len(await desk.store.read(list_events, 0, 10_000)) <= 64
    assert await desk.store.read(count_runs, task.id) == {"succeeded": 400}


async def test_jagc_w17_two_servers_on_one_file_plan_each_slot_once(tmp_path, clock, opened_file):
    """Two servers dispatched everything twice."""
    path = str(tmp_path / "rota.db")
    benches = [Bench(await opened_file(path), clock) for _ in range(2)]
    tasks = [await benches[0].task(f"t{n}") for n in range(10)]
    for task in tasks:
        await benches[0].planned(task, every="1m")
    for _ in range(10):
        clock.advance(MINUTE)
        await asyncio.gather(*(plan(bench.store) for bench in benches))
        for bench in benches:
            bench.routes = benches[0].routes
            for lease in await bench.claim():
                await bench.end(lease)
    for task in tasks:
        assert len({run.slot_key for run in await benches[1].slots(task)}) == 10
        assert await benches[1].store.read(count_runs, task.id) == {"succeeded": 10}
