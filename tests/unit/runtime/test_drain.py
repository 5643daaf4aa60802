"""Draining: nothing begins any more, and what has ended is settled as soon as the store answers."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.errors import Unavailable
from rota.model.attempts import DONE, KeptAttempt
from rota.model.runs import RunState
from rota.runtime.worker import Worker
from rota.store.settlement import settle
from rota.store.sqlite.database import MemoryDatabase
from rota.store.workers import fence_other_workers
from rota.testing.fakes import ScriptedRunner
from tests.tools.store_bench import Bench
from tests.unit.attempt.keeper_home_fake import assignment
from tests.unit.runtime.conftest import Stage

PAUSE = 0.05


class DownStore(MemoryDatabase):
    """A store that settles nothing the first few times, and notes when it was asked."""

    def __init__(self, clock, times):
        super().__init__(clock)
        self.times = times
        self.asked = []
        self.failed = asyncio.Event()

    async def take_roles(self):
        return False

    async def write(self, operation, *args, **kwargs):
        if operation is settle:
            self.asked.append(asyncio.get_running_loop().time())
            if len(self.asked) <= self.times:
                self.failed.set()
                raise Unavailable("it is down")
        return await super().write(operation, *args, **kwargs)


async def at_once(assignment):
    return DONE


class Stubborn:
    """Work that does not stop until it is let go; later attempts end at once."""

    def __init__(self):
        self.let_go = asyncio.Event()
        self.begun = []

    async def __call__(self, assignment):
        self.begun.append(assignment.lease.epoch)
        while len(self.begun) == 1 and not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        return DONE


async def test_a_store_that_is_down_is_asked_less_and_less_often(
    clock, chance, opened_later, monkeypatch
):
    monkeypatch.setattr("rota.runtime.poller.FIRST_PAUSE", PAUSE)
    store = await opened_later(DownStore(clock, 3))
    desk = Bench(store, clock)
    (run_id,) = await desk.queue(await desk.task())
    async with Stage(desk, chance, at_once).working():
        await store.failed.wait()
    assert await desk.state(run_id) is RunState.SUCCEEDED
    _, second, third, last = store.asked
    assert last - third >= 4 * PAUSE - 0.01
    assert third - second >= 2 * PAUSE - 0.01


async def test_who_is_fenced_meanwhile_has_nothing_to_settle_any_more(clock, chance, opened_later):
    store = await opened_later(DownStore(clock, 1_000))
    desk = Bench(store, clock)
    await desk.queue(await desk.task())
    async with Stage(desk, chance, at_once).working() as on:
        await store.failed.wait()
        draining = asyncio.ensure_future(on.crew.worker.drain(1.0))
        await asyncio.sleep(0)
        while on.crew.worker._settling:
            await asyncio.sleep(0)
        on.crew.worker.fence()
        await draining
        assert on.crew.worker.running == 0


async def test_a_run_that_came_back_is_not_begun_any_more(clock, chance, opened_later):
    store = await opened_later(DownStore(clock, 0))
    desk = Bench(store, clock)
    (run_id,) = await desk.queue(await desk.task())
    work = Stubborn()
    async with Stage(desk, chance, work, drain=timedelta(seconds=10)).working() as on:
        await on.begun()
        await store.write(fence_other_workers, "nobody")
        on.crew.pulse.wake()
        while (await desk.run(run_id)).epoch == 1:
            on.crew.caretaker.wake()
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(on.crew.stop())
        await asyncio.sleep(0)
        work.let_go.set()
        await stopping
    run = await desk.run(run_id)
    assert (work.begun, run.state, run.cause.value) == ([1], RunState.QUEUED, "drained")


async def test_what_goes_on_is_not_taken_up_again_by_who_leaves(desk, chance):
    given, work = await assignment(desk), Stubborn()
    lease = given.lease
    kept = KeptAttempt(
        run_id=lease.run_id, epoch=lease.epoch, home="h", nonce="n", boot="b", executor="p"
    )
    runner = ScriptedRunner([lease.route], work)
    runner.keeps = True
    worker = Worker(desk.store, [runner], "me", desk.clock, chance, slots=5)
    worker.adopt(given._replace(kept=kept))
    await runner.begun.get()
    worker.fence()
    worker.adopt(given._replace(kept=kept))
    draining = asyncio.ensure_future(worker.drain(10.0))
    await asyncio.sleep(0)
    work.let_go.set()
    async with asyncio.timeout(10):
        await draining
    assert (len(work.begun), worker.running) == (1, 0)


@pytest.mark.parametrize("times", [0, 1])
async def test_what_has_ended_is_settled(clock, chance, opened_later, times):
    store = await opened_later(DownStore(clock, times))
    desk = Bench(store, clock)
    (run_id,) = await desk.queue(await desk.task())
    async with Stage(desk, chance, drain=timedelta(seconds=10)).working() as on:
        await on.begun()
        stopping = asyncio.ensure_future(on.crew.stop())
        await asyncio.sleep(0)
        on.puppet.release.set()
        await stopping
    assert await desk.state(run_id) is RunState.SUCCEEDED
