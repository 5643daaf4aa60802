"""Recovery: workers that die, hang or lose their lease; their runs go on once."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta

import pytest

from rota.errors import Busy, Unavailable
from rota.flow.define.runs import cancel_run
from rota.flow.maintain import MAX_RESCUED, rescue
from rota.model.attempts import Succeeded
from rota.model.runs import RunState
from rota.model.spaces import LimitScope
from rota.model.tasks import OnLost, Overlap
from rota.rules.permissions import LOCAL
from rota.runtime.supervisor import this_process
from rota.store.claims import claim_runs
from rota.store.plans import next_due
from rota.store.views import count_runs, list_attempts, list_workers
from rota.store.workers import (
    fence_other_workers,
    fence_workers,
    mark_stuck,
    register_worker,
    renew_worker,
)
from rota.testing.fakes import FixedChance, ScriptedRunner, VirtualClock
from tests.scenario.builders import Stubborn, crew_on, library
from tests.tools.interception import intercept
from tests.tools.store_bench import MINUTE, Bench


async def test_a_crash_between_claim_and_completion_loses_nothing(
    tmp_path, clock, chance, opened_file
):
    """G2-W01: A claim set next_run to NULL with no lease and no sweep: a crash lost the task for ever."""
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


async def test_runs_of_a_dead_worker_give_their_room_back(desk, chance):
    """GEN-W02: The clean-up statement was broken: dead runs stayed running and ate the cap."""
    await desk.limit(LimitScope.TOTAL, cap=2)
    await desk.queue(await desk.task(), 4)
    await desk.worker("dies")
    assert len(await desk.claim(worker="dies")) == 2
    assert await desk.claim(worker="lives") == []
    desk.clock.advance(MINUTE)
    assert await rescue(desk.store, chance, fence=True) == 2
    assert len(await desk.claim(worker="lives")) == 2


async def test_a_lease_lasts_as_long_as_it_is_renewed(desk, chance):
    """GEN-W04: The lease was fixed at five minutes and ended with the start of the work."""
    await desk.queue(await desk.task())
    await desk.worker("w1")
    lease = await desk.claim_one()
    for _ in range(60):
        desk.clock.advance(seconds=20)
        assert (await desk.store.write(renew_worker, "w1", desk.store.now() + 30_000_000)).alive
        assert await rescue(desk.store, chance, fence=True) == 0
    assert await desk.end(lease)


async def test_a_rescued_run_is_fenced_off_from_its_old_worker(desk, chance):
    """GEN-W05: After a crash past the start the same trigger fired again, and both recorded."""
    await desk.queue(await desk.task(on_lost=OnLost.RETRY))
    await desk.worker("w1")
    old = await desk.claim_one()
    desk.clock.advance(MINUTE)
    await rescue(desk.store, chance, fence=True)
    new = await desk.claim_one(worker="w2")
    assert not await desk.end(old, Succeeded(result='"old"'))
    assert await desk.end(new, Succeeded(result='"new"'))
    run = await desk.run(old.run_id)
    assert (run.state, run.result) == (RunState.SUCCEEDED, '"new"')
    attempts = await desk.store.read(list_attempts, old.run_id)
    assert [(a.epoch, a.outcome) for a in attempts] == [(1, "lost"), (2, "succeeded")]


async def test_midnight_makes_no_running_run_look_stuck(desk, chance):
    """IST-W01: Local text was compared with UTC text: at midnight every running task was queued again."""
    desk.clock.set(datetime(2026, 3, 2, 23, 59, 50, tzinfo=UTC))
    await desk.queue(await desk.task())
    await desk.worker("w1")
    lease = await desk.claim_one()
    desk.clock.advance(seconds=20)
    await desk.store.write(renew_worker, "w1", desk.store.now() + 30_000_000)
    assert await rescue(desk.store, chance, fence=True) == 0
    assert await desk.end(lease)


async def test_a_long_run_is_not_taken_away_while_its_worker_lives(desk, chance):
    """IST-W02: The stuck rule of 15 minutes was shorter than the timeout of 30, with no heartbeat."""
    await desk.queue(await desk.task(timeout=timedelta(hours=3)))
    await desk.worker("w1")
    lease = await desk.claim_one()
    for _ in range(2 * 60 * 4):
        desk.clock.advance(seconds=15)
        await desk.store.write(renew_worker, "w1", desk.store.now() + 30_000_000)
        assert await rescue(desk.store, chance, fence=True) == 0
    assert await desk.end(lease)


async def test_a_lock_that_is_taken_keeps_its_owners_name(tmp_path, opened_file):
    """IST-W24: The lock file was emptied before it was locked, which erased its owner's pid."""
    path = tmp_path / "rota.db"
    first, second = await opened_file(str(path)), await opened_file(str(path))
    await first.take_roles()
    for _ in range(2):
        with pytest.raises(Busy, match=f"process {os.getpid()}"):
            await second.take_roles()
    lock = tmp_path / "rota.db.lock"
    assert lock.read_text() == f"{os.getpid()}\n"
    assert lock.stat().st_mode & 0o077 == 0


async def test_runs_of_the_last_process_return_at_the_next_start(
    tmp_path, clock, chance, opened_file
):
    """IST-W25: Rows of a killed process stayed running until a 15 minute rule."""
    path = str(tmp_path / "rota.db")
    first = Bench(await opened_file(path), clock)
    await first.queue(await first.task(), 3)
    await first.worker("old")
    old = await first.claim(worker="old")
    await first.store.database.close()
    second = Bench(await opened_file(path), clock)
    second.routes = first.routes
    assert await second.store.database.take_roles()
    await second.worker("new")
    await second.store.write(fence_other_workers, "new")
    assert await rescue(second.store, chance, fence=False) == 3
    again = await second.claim(worker="new")
    assert [lease.run_id for lease in again] == [lease.run_id for lease in old]


def test_a_worker_id_is_never_used_twice():
    """IST-W25: Worker ids were not unique."""
    ids = {this_process().worker_id for _ in range(100)}
    assert len(ids) == 100


async def test_a_restart_runs_again_only_what_was_running(tmp_path, clock, chance, opened_file):
    """JAGC-W04: A restart ran every run again from the start, with all its effects."""
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


async def test_every_lost_run_is_found_however_many_there_are(desk, chance):
    """JAGC-W07: Only the oldest 200 rows were looked at, so many long runs starved the rest."""
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


async def test_a_run_left_by_a_crash_blocks_nobody_and_can_be_stopped(desk, chance):
    """ZUB-W04: A running row left by a crash blocked its profile for ever and could not be killed."""
    task = await desk.task(overlap=Overlap.SKIP)
    await desk.planned(task, every="1m")
    await desk.worker("dies")
    desk.clock.advance(MINUTE)
    await desk.plan()
    lease = await desk.claim_one(worker="dies")
    await cancel_run(desk.store, LOCAL, lease.run_id, chance)
    desk.clock.advance(MINUTE)
    assert await rescue(desk.store, chance, fence=True) == 1
    assert await desk.state(lease.run_id) is RunState.CANCELLED
    await desk.plan()
    assert len(await desk.claim(worker="lives")) == 1


async def test_a_cancelled_run_whose_worker_is_lost_does_not_run_again():
    """Found by a review."""
    clock = VirtualClock()
    rota = library(clock)

    @rota.task("slow")
    async def slow(run):
        return None

    async with rota:
        run_id = await rota.enqueue("slow")
        await rota.store.write(claim_runs, "gone", ["background"], ["python:slow"], 1)
        await rota.cancel(run_id)
        await rescue(rota.store, FixedChance(), fence=False)
        assert (await rota.run(run_id)).state is RunState.CANCELLED


async def test_a_run_that_cannot_be_marked_stuck_does_not_end_the_crew(flaky, chance):
    """Found by the simulation."""
    work = Stubborn()
    crew = crew_on(flaky, ScriptedRunner(["python:job"], work), chance)
    (run_id,) = await flaky.queue(await flaky.task(timeout=timedelta(milliseconds=10)))
    flaky.store.failing[mark_stuck] = 1
    await crew.start()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(crew.run())
        while not (await flaky.run(run_id)).stuck:
            flaky.store.called.clear()
            await flaky.store.called.wait()
            await asyncio.sleep(0)
        work.let_go.set()
        await crew.stop()
    assert flaky.store.failing[mark_stuck] == 0


async def test_a_worker_may_get_a_run_again_whose_old_attempt_does_not_stop(
    flaky, chance, monkeypatch
):
    """Found by the simulation."""
    monkeypatch.setattr("rota.runtime.worker.PREVIOUS_ATTEMPT_WAIT", 0.01)
    work = Stubborn()
    crew = crew_on(flaky, ScriptedRunner(["python:job"], work), chance)
    (run_id,) = await flaky.queue(await flaky.task())
    await crew.start()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(crew.run())
        await work.begun.wait()
        flaky.clock.advance(MINUTE)
        await rescue(flaky.store, chance, fence=True)
        crew.lease.wake()  # hears that it was fenced, comes back, and claims the run again
        while await flaky.state(run_id) is not RunState.FAILED:
            await asyncio.sleep(0)
        work.let_go.set()
        await crew.stop()
    run = await flaky.run(run_id)
    assert (run.epoch, run.losses, run.error_code) == (2, 1, "stuck")


async def test_a_fenced_worker_claims_nothing_before_it_is_known_again(flaky, chance):
    """Found by the simulation."""
    crew = crew_on(flaky, ScriptedRunner(["python:job"]), chance)
    await crew.start()
    flaky.store.failing[register_worker] = 1
    flaky.clock.advance(MINUTE)
    await flaky.store.write(fence_workers)
    renewal = await flaky.store.write(renew_worker, crew.worker.id, flaky.store.now())
    with pytest.raises(Unavailable):
        await crew._renewed(renewal)
    known = {worker.id for worker in await flaky.store.read(list_workers)}
    assert crew.worker.id in known
    await crew._renewed(renewal)
    assert crew.worker.id not in known
    assert crew.worker.id in {worker.id for worker in await flaky.store.read(list_workers)}


async def test_a_claim_that_is_under_way_is_drained_too(desk, chance):
    """Found by the simulation."""
    crew = crew_on(desk, ScriptedRunner(["python:job"]), chance)
    (run_id,) = await desk.queue(await desk.task())
    await crew.start()
    answer = asyncio.Event()

    async def slow_claim(proceed, *args):
        taken = await proceed(*args)
        await answer.wait()
        return taken

    intercept(desk.store, claim_runs, slow_claim)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(crew.run())
        while await desk.state(run_id) is not RunState.RUNNING:
            await asyncio.sleep(0)
        stopping = group.create_task(crew.stop())
        await asyncio.sleep(0)
        answer.set()
        await stopping
    run = await desk.run(run_id)
    assert (run.state, run.cause.value) == (RunState.QUEUED, "released")
