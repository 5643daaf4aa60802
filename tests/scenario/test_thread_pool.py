"""A plain function that waits for a thread has not begun, and its timeout has not either."""

import asyncio
import threading
from datetime import timedelta

from rota.library.rota import Rota
from rota.model.runs import RunState


async def test_a_timeout_counts_from_the_moment_a_thread_is_free():
    rota = Rota("memory:", threads=1)
    order = []

    @rota.task("job", timeout=timedelta(seconds=1.5))
    def job(run):
        threading.Event().wait(0.6)
        order.append(run.payload)

    async with rota:
        ids = await rota.enqueue_many("job", range(5))
        await rota.work(until_idle=True)
        runs = [await rota.run(run_id) for run_id in ids]
    assert [run.state for run in runs] == [RunState.SUCCEEDED] * 5
    assert order == [0, 1, 2, 3, 4]


async def test_one_that_has_begun_still_ends_at_its_timeout():
    rota = Rota("memory:", threads=1)
    release = threading.Event()

    @rota.task("first")
    def first(run):
        threading.Event().wait(0.3)

    @rota.task("second", timeout=timedelta(seconds=0.2))
    def second(run):
        release.wait(1.5)

    async with rota:
        await rota.enqueue("first", priority=5)
        run_id = await rota.enqueue("second")
        await rota.work(until_idle=True)
        run = await rota.run(run_id)
    assert (run.state, run.error_code) == (RunState.FAILED, "timeout")


async def test_a_run_that_waits_for_a_thread_is_cancelled_at_once():
    rota = Rota("memory:", threads=1)
    began = threading.Event()
    release = threading.Event()

    @rota.task("job")
    def job(run):
        began.set()
        release.wait(20)

    async with rota:
        ids = await rota.enqueue_many("job", range(2))
        async with asyncio.TaskGroup() as group:
            group.create_task(rota.work(until_idle=True))
            await asyncio.to_thread(began.wait, 20)
            await rota.cancel(ids[1])
            while (await rota.run(ids[1])).state is not RunState.CANCELLED:
                await asyncio.sleep(0)
            release.set()
        assert (await rota.run(ids[0])).state is RunState.SUCCEEDED
