"""The queue: caps, lanes, rates and turns hold for whoever claims, and nobody waits without need."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

from rota.flow.define.tasks import put_task
from rota.flow.plan import plan
from rota.library.rota import Rota
from rota.model.runs import RunState
from rota.model.spaces import Limit, LimitScope
from rota.model.tasks import Pool
from rota.rules.permissions import LOCAL
from rota.store.claims import claim_runs, set_limits
from rota.store.views import count_runs, list_events, view_queue
from rota.testing.fakes import VirtualClock
from tests.scenario.builders import library


async def test_a_burst_of_enqueues_never_exceeds_the_cap(desk):
    """G2-W02: The cap was checked before the counter rose: cap 5 became 12 at once."""
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


async def test_runs_of_one_lane_never_overlap_in_a_burst(desk):
    """G2-W02: Per-group order was checked before it was reserved: 12 of one group ran at once."""
    task = await desk.task(lane="group")
    await asyncio.gather(*(desk.queue(task) for _ in range(12)))
    takes = await asyncio.gather(*(desk.claim(worker=f"w{n}") for n in range(6)))
    assert sum(len(take) for take in takes) == 1


async def test_claims_at_once_share_one_cap(desk):
    """GEN-W06: The cap was read outside the claim, so two cycles at once exceeded it."""
    await desk.limit(LimitScope.POOL, "background", cap=4)
    await desk.queue(await desk.task(), 40)
    for _ in range(5):
        takes = await asyncio.gather(*(desk.claim(worker=f"w{n}") for n in range(8)))
        leases = [lease for take in takes for lease in take]
        assert len(leases) == 4
        for lease in leases:
            await desk.end(lease)


async def test_a_delayed_run_is_announced_when_it_is_due(desk):
    """GEN-W07: Waking happened at insertion, so delayed work depended on a 30 s poll."""
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


async def test_claiming_repairs_nothing_that_is_not_its_own(desk):
    """IST-W03: Every claim of every worker rewrote the whole table, whoever's tasks they were."""
    mine = await desk.task("mine", space="mine")
    other = await desk.task("other", space="other")
    await desk.queue(other, 3, at=desk.clock.now() + timedelta(minutes=1))
    (stray,) = await desk.queue(other)
    await desk.claim(worker="dead", routes=[other.route])
    desk.clock.advance(hours=1)
    events = await desk.store.read(list_events, 0, 100)
    await desk.queue(mine)
    assert len(await desk.claim(routes=[mine.route])) == 1
    assert (await desk.run(stray)).state is RunState.RUNNING
    assert (await desk.store.read(view_queue)).delayed == 3
    assert await desk.store.read(list_events, 0, 100) == events


async def test_two_messages_of_one_thread_are_worked_on_in_order(desk):
    """IST-W08: Two foreground workers could answer two messages of one room at the same time."""
    task = await desk.task(pool=Pool.FOREGROUND)
    ids = await desk.queue(task, 3, lane="talk:room", thread="talk:room")
    order = []
    for _ in ids:
        (lease,) = await desk.claim(worker="w1")
        assert await desk.claim(worker="w2") == []
        order.append(lease.run_id)
        await desk.end(lease)
    assert order == ids


async def test_a_busy_space_does_not_starve_the_others(desk):
    """IST-W09: Workers stayed with their user while there was work: a busy user held every slot."""
    busy = await desk.task("busy", space="busy")
    await desk.queue(busy, 200)
    others = []
    for number in range(5):
        others.append(await desk.task(f"t{number}", space=f"s{number}"))
        await desk.queue(others[-1])
    served = []
    for _ in range(12):
        desk.clock.advance(seconds=1)
        lease = await desk.claim_one()
        served.append(lease.space_id)
        await desk.end(lease)
    assert {task.space_id for task in others} <= set(served)


async def test_the_end_of_a_run_starts_the_next_at_once():
    """ZUB-W05: The queue drained only at a heartbeat of an hour."""
    rota = Rota("memory:", slots=1)
    order = []

    @rota.task("job", overlap="queue_all")
    async def job(run):
        order.append(run.payload)

    async with rota:
        ids = await rota.enqueue_many("job", range(20))
        async with asyncio.timeout(5):
            await rota.work(until_idle=True)
        assert order == list(range(20))
        assert (await rota.run(ids[-1])).state is RunState.SUCCEEDED


async def test_a_run_goes_to_one_of_two_who_want_it(desk):
    """ZUB-W06: A claim selected and then updated whatever stood there."""
    await desk.queue(await desk.task(), 50)
    takes = await asyncio.gather(*(desk.claim_ids(10, worker=f"w{n}") for n in range(10)))
    taken = [run_id for take in takes for run_id in take]
    assert len(taken) == len(set(taken)) == 50


async def test_editing_a_task_does_not_disturb_runs_in_the_queue(desk):
    """JAGC-W05: An edit between ingest and dispatch made a payload conflict that failed the occurrence."""
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


async def test_work_until_idle_waits_for_a_spent_rate():
    """Found by a review."""
    limit = Limit(scope=LimitScope.GROUP, key="api", rate=2, period=timedelta(milliseconds=200))
    rota = Rota("memory:", limits=[limit])
    ran = []

    @rota.task("call", group="api")
    async def call(run):
        ran.append(run.payload)

    async with rota:
        await rota.enqueue_many("call", [1, 2, 3])
        await rota.work(until_idle=True)
    assert sorted(ran) == [1, 2, 3]


async def test_setting_the_same_rate_again_does_not_refill_it():
    """Found by a review."""
    clock = VirtualClock()
    limit = Limit(scope=LimitScope.GROUP, key="api", rate=1, period=timedelta(hours=1))
    rota = library(clock, limits=[limit])

    @rota.task("call", group="api")
    async def call(run):
        return None

    async with rota:
        await rota.enqueue_many("call", [1, 2])
        routes = ["python:call"]
        assert len((await rota.store.write(claim_runs, "w", ["background"], routes, 5)).leases) == 1
        await rota.store.write(set_limits, [limit])
        assert len((await rota.store.write(claim_runs, "w", ["background"], routes, 5)).leases) == 0
