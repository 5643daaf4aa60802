"""The loop of the simulation: virtual time, seeded order, processes that die and sleep."""

import asyncio
import gc
from contextlib import suppress
from random import Random

import pytest

from tests.tools.simulation.loop import Exhausted, Refused, SimLoop, Unseen
from tests.tools.simulation.processes import Process


@pytest.fixture
def make_loop():
    loops = []

    def make(seed=0, most_steps=10_000):
        loops.append(SimLoop(Random(seed), most_steps))
        return loops[-1]

    yield make
    for loop in loops:
        loop.close()


async def three_at_once(order):
    async def one(name):
        for _ in range(4):
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(one(name) for name in "abc"))
    return "".join(order)


def test_a_day_passes_in_no_time(make_loop):
    loop = make_loop()
    loop.run_until_complete(asyncio.sleep(86_400))
    assert 86_400 <= loop.time() < 86_401
    assert loop.steps < 10


def test_the_order_follows_from_the_seed(make_loop):
    orders = [make_loop(seed).run_until_complete(three_at_once([])) for seed in range(20)]
    again = [make_loop(seed).run_until_complete(three_at_once([])) for seed in range(20)]
    assert orders == again
    assert len(set(orders)) > 10


def test_timeouts_count_virtual_time(make_loop):
    async def wait():
        async with asyncio.timeout(60):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        make_loop().run_until_complete(wait())


def test_a_dead_process_never_takes_another_step(make_loop):
    loop = make_loop()
    said = []

    async def work():
        try:
            while True:
                said.append(loop.time())
                await asyncio.sleep(1)
        finally:
            asyncio.get_running_loop().create_task(asyncio.sleep(0))
            said.append("a dead process speaks")

    async def story():
        process = Process("p", loop)
        process.start(work())
        await asyncio.sleep(2.5)
        process.crash()
        await process.ended.wait()
        await asyncio.sleep(10)

    loop.run_until_complete(story())
    assert len(said) == 3


async def fail():
    raise LookupError


async def fail_knowing_itself():
    me = asyncio.current_task()
    raise LookupError(me)


def die(loop, work):
    """Let a process die when it says so, and what it leaves be collected."""
    process = Process("p", loop)

    async def story():
        process.start(work(process))
        await process.ended.wait()
        gc.collect()
        await asyncio.sleep(1)

    loop.run_until_complete(story())


@pytest.mark.parametrize("failing", [fail, fail_knowing_itself])
def test_a_fault_that_nobody_waits_for_is_seen_when_its_process_dies(make_loop, failing):
    kept = set()

    async def work(process):
        kept.add(asyncio.ensure_future(failing()))
        await asyncio.sleep(1)
        kept.clear()
        process.crash()
        await asyncio.sleep(60)

    with pytest.raises(Unseen):
        die(make_loop(), work)


@pytest.mark.parametrize("wait", [None, asyncio.wait, asyncio.gather])
@pytest.mark.parametrize("seed", range(20))
def test_a_fault_that_somebody_waits_for_dies_with_its_process(make_loop, wait, seed):
    async def work(process):
        failing = asyncio.ensure_future(fail())
        failing.add_done_callback(lambda _: process.crash())
        with suppress(LookupError):
            if wait is asyncio.wait:
                await asyncio.wait({failing})
                failing.result()
            else:
                await (asyncio.gather(failing) if wait else failing)
        await asyncio.sleep(60)

    die(make_loop(seed), work)


def test_a_paused_process_goes_on_where_it_stopped(make_loop):
    loop = make_loop()
    said = []

    async def work():
        for _ in range(3):
            await asyncio.sleep(1)
            said.append(round(loop.time()))

    async def story():
        process = Process("p", loop)
        process.start(work())
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(10)
        process.resume()
        await asyncio.sleep(5)

    loop.run_until_complete(story())
    assert said == [1, 12, 13]


def test_threads_are_refused(make_loop):
    async def story():
        await asyncio.to_thread(print)

    with pytest.raises(Refused):
        make_loop().run_until_complete(story())


def test_circles_and_standstills_end_the_history(make_loop):
    async def circle():
        while True:
            await asyncio.sleep(0)

    async def standstill():
        await asyncio.Event().wait()

    for story in (circle, standstill):
        with pytest.raises(Exhausted):
            make_loop().run_until_complete(story())
