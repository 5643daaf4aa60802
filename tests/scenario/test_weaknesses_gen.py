"""Defects of the second system (GEN-W rows): each can no longer happen."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.flow.define.tasks import disable_task, enable_task
from rota.flow.maintain import rescue
from rota.flow.plan import plan
from rota.library.rota import Rota
from rota.model.attempts import Succeeded
from rota.model.runs import RunState
from rota.model.spaces import LimitScope
from rota.model.tasks import OnLost
from rota.rules.permissions import LOCAL
from rota.store.plans import next_due
from rota.store.views import list_attempts
from rota.store.workers import renew_worker
from tests.tools.store_bench import MINUTE, failed


async def test_gen_w01_a_run_that_ends_is_marked_with_its_result():
    """Nobody waited for the work: every run that ended well was marked failed later."""
    rota = Rota("memory:")

    @rota.task("job")
    async def job(run):
        return {"done": run.payload}

    async with rota:
        run_id = await rota.enqueue("job", 7)
        await rota.work(until_idle=True)
        run = await rota.run(run_id)
        assert (run.state, run.result) == (RunState.SUCCEEDED, '{"done": 7}')
        assert run.finished_at is not None


async def test_gen_w02_runs_of_a_dead_worker_give_their_room_back(desk, chance):
    """The clean-up statement was broken: dead runs stayed running and ate the cap."""
    await desk.limit(LimitScope.TOTAL, cap=2)
    await desk.queue(await desk.task(), 4)
    await desk.worker("dies")
    assert len(await desk.claim(worker="dies")) == 2
    assert await desk.claim(worker="lives") == []
    desk.clock.advance(MINUTE)
    assert await rescue(desk.store, chance, fence=True) == 2
    assert len(await desk.claim(worker="lives")) == 2


async def test_gen_w03_a_failing_run_does_not_end_its_schedule(desk):
    """The next trigger was made only after a good start: one failure silenced the schedule."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    for _ in range(4):
        desk.clock.advance(MINUTE)
        await desk.plan()
        await desk.end(await desk.claim_one(), failed())
    assert len(await desk.slots(task)) == 4
    assert await desk.store.read(next_due) == desk.store.now() + 60_000_000


async def test_gen_w03_a_slot_nobody_can_run_does_not_end_its_schedule(desk):
    """A route that nobody served broke the chain as well."""
    task = await desk.task(route="python:unknown")
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert await desk.claim(routes=["python:other"]) == []
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert await desk.store.read(next_due) == desk.store.now() + 60_000_000


async def test_gen_w04_a_lease_lasts_as_long_as_it_is_renewed(desk, chance):
    """The lease was fixed at five minutes and ended with the start of the work."""
    await desk.queue(await desk.task())
    await desk.worker("w1")
    lease = await desk.claim_one()
    for _ in range(60):
        desk.clock.advance(seconds=20)
        assert (await desk.store.write(renew_worker, "w1", desk.store.now() + 30_000_000)).alive
        assert await rescue(desk.store, chance, fence=True) == 0
    assert await desk.end(lease)


async def test_gen_w05_a_rescued_run_is_fenced_off_from_its_old_worker(desk, chance):
    """After a crash past the start the same trigger fired again, and both recorded."""
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
    assert [(a.number, a.outcome) for a in attempts] == [(1, "lost"), (2, "succeeded")]


async def test_gen_w06_claims_at_once_share_one_cap(desk):
    """The cap was read outside the claim, so two cycles at once exceeded it."""
    await desk.limit(LimitScope.POOL, "background", cap=4)
    await desk.queue(await desk.task(), 40)
    for _ in range(5):
        takes = await asyncio.gather(*(desk.claim(worker=f"w{n}") for n in range(8)))
        leases = [lease for take in takes for lease in take]
        assert len(leases) == 4
        for lease in leases:
            await desk.end(lease)


async def test_gen_w07_a_delayed_run_is_announced_when_it_is_due(desk):
    """Waking happened at insertion, so delayed work depended on a 30 s poll."""
    task = await desk.task()
    await desk.queue(task, at=desk.clock.now() + timedelta(seconds=90))
    planned = await plan(desk.store)
    assert planned.rest_micros == 90 * 1_000_000
    desk.clock.advance(seconds=90)
    heard = []
    desk.store.subscribe(heard.append)
    assert (await plan(desk.store)).promoted == 1
    assert "runs" in heard
    assert len(await desk.claim()) == 1


async def test_gen_w10_a_disabled_task_does_not_fire(desk):
    """Paused schedules went on firing."""
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


async def test_gen_w10_a_paused_task_fires_again_by_itself(desk):
    """There was no pause with an end."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    until = desk.clock.now() + timedelta(minutes=5, seconds=30)
    await disable_task(desk.store, LOCAL, "job", until=until)
    for _ in range(6):
        desk.clock.advance(MINUTE)
        await desk.plan()
    assert await desk.ledger(task) == [("paused", 5)]
    assert len(await desk.slots(task)) == 1
