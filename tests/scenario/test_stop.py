"""Stopping work: timeouts, threads that cannot be stopped, cancelling, draining, crashing."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from rota.app import addresses
from rota.errors import Busy
from rota.library.rota import Rota
from rota.model.runs import RunState
from rota.model.tasks import Retry
from rota.store.claims import claim_runs
from rota.store.sqlite.database import MemoryDatabase
from rota.store.views import list_attempts, list_tasks, list_workers
from rota.store.workers import mark_stuck, register_worker


class TellingStore(MemoryDatabase):
    """Says when a run was marked stuck."""

    def __init__(self, clock):
        super().__init__(clock)
        self.stuck = asyncio.Event()

    async def write(self, operation, *args, **kwargs):
        result = await super().write(operation, *args, **kwargs)
        if operation is mark_stuck:
            self.stuck.set()
        return result


async def working(rota, group):
    """Start all roles; the task ends when it is cancelled."""
    task = group.create_task(rota.work())
    while rota.crew is None:
        await asyncio.sleep(0)
    return task


async def settled(rota, run_id, *states):
    """Wait until a run is in one of some states, told by the store's own announcements."""
    changed = asyncio.Event()
    stop = rota.store.subscribe(lambda topic: changed.set())
    try:
        async with asyncio.timeout(20):
            while (run := await rota.run(run_id)).state not in states:
                changed.clear()
                try:
                    async with asyncio.timeout(0.05):
                        await changed.wait()
                except TimeoutError:
                    continue
            return run
    finally:
        stop()


async def test_a_coroutine_past_its_timeout_is_stopped_and_fails():
    rota = Rota()
    stopped = asyncio.Event()

    @rota.task("slow", timeout="20ms")
    async def slow(run):
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with rota:
        run_id = await rota.enqueue("slow")
        await rota.work(until_idle=True)
        run = await rota.run(run_id)
        assert stopped.is_set()
        assert (run.state, run.error_code) == (RunState.FAILED, "timeout")
        assert "0.02 s" in run.error


async def test_a_thread_past_its_timeout_is_stuck_and_not_retried_while_it_lives(clock):
    go_on = threading.Event()
    calls = []
    rota = Rota(clock=clock)
    rota.store = TellingStore(clock)

    @rota.task("slow", timeout="20ms", retry=Retry(attempts=2, jitter=0))
    def slow(run):
        calls.append(run.attempt)
        go_on.wait(30)

    async with rota, asyncio.TaskGroup() as group:
        run_id = await rota.enqueue("slow")
        work = await working(rota, group)
        try:
            async with asyncio.timeout(20):
                await rota.store.stuck.wait()
            run = await rota.run(run_id)
            assert (run.state, run.stuck, run.epoch) == (RunState.RUNNING, True, 1)
            clock.advance(hours=1)
            assert calls == [1]
        finally:
            go_on.set()
        run = await settled(rota, run_id, RunState.QUEUED)
        assert (run.error_code, run.retries, run.stuck) == ("timeout", 1, False)
        work.cancel()


async def test_a_running_coroutine_can_be_cancelled():
    rota = Rota()
    begun, stopped = asyncio.Event(), asyncio.Event()

    @rota.task("job", retry=3)
    async def job(run):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with rota, asyncio.TaskGroup() as group:
        run_id = await rota.enqueue("job")
        work = await working(rota, group)
        await begun.wait()
        asked = await rota.cancel(run_id)
        assert asked.cancel_requested_at is not None
        run = await settled(rota, run_id, RunState.CANCELLED)
        assert stopped.is_set()
        assert run.error == "cancelled by the owner of the home folder"
        work.cancel()


@pytest.mark.parametrize("ends_with", ["return", "raise"])
async def test_a_cancelled_thread_ends_as_cancelled_and_is_not_retried(ends_with):
    rota = Rota()
    begun, go_on = threading.Event(), threading.Event()
    calls = []

    @rota.task("job", retry=3)
    def job(run):
        calls.append(run.attempt)
        begun.set()
        go_on.wait(30)
        if ends_with == "raise":
            raise OSError("the file is gone")

    async with rota, asyncio.TaskGroup() as group:
        run_id = await rota.enqueue("job")
        work = await working(rota, group)
        try:
            await asyncio.to_thread(begun.wait, 20)
            await rota.cancel(run_id)
            async with asyncio.timeout(20):
                while not any(a.stop for a in rota.crew.worker._attempts.values()):
                    await asyncio.sleep(0)
        finally:
            go_on.set()
        run = await settled(rota, run_id, RunState.CANCELLED, RunState.QUEUED, RunState.FAILED)
        assert run.state is RunState.CANCELLED
        assert calls == [1]
        work.cancel()


async def test_a_queued_run_is_cancelled_at_once():
    rota = Rota()
    calls = []

    @rota.task("job")
    async def job(run):
        calls.append(run.id)

    async with rota:
        run_id = await rota.enqueue("job")
        assert (await rota.cancel(run_id)).state is RunState.CANCELLED
        await rota.work(until_idle=True)
        assert calls == []


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_task_that_exits_does_not_take_the_worker_with_it(kind):
    rota = Rota()

    @rota.task("exits")
    async def exits(run):
        raise SystemExit(3)

    @rota.task("exits-too")
    def exits_too(run):
        raise SystemExit(3)

    @rota.task("other")
    async def other(run):
        return 1

    name = "exits" if kind == "coroutine" else "exits-too"
    async with rota:
        bad, good = await rota.enqueue(name), await rota.enqueue("other")
        await rota.work(until_idle=True)
        run = await rota.run(bad)
        assert (run.state, run.error_code) == (RunState.FAILED, "exception")
        assert "SystemExit" in run.error
        assert (await rota.run(good)).state is RunState.SUCCEEDED


async def test_stopping_lets_what_runs_end_and_gives_back_nothing_half_done():
    rota = Rota()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @rota.task("job")
    async def job(run):
        begun.set()
        await go_on.wait()
        return "whole"

    async with rota:
        run_id = await rota.enqueue("job")
        async with asyncio.TaskGroup() as group:
            work = await working(rota, group)
            await begun.wait()
            later = await rota.enqueue("job")
            work.cancel()
            await asyncio.sleep(0)
            go_on.set()
        assert (await rota.run(run_id)).result == '"whole"'
        assert await rota.store.read(list_workers) == []
        assert (await rota.run(later)).epoch in {0, 1}


async def test_a_second_program_on_one_file_is_refused_by_the_first_ones_pid(tmp_path):
    address = f"sqlite:///{tmp_path}/rota.db"
    one, two = Rota(address), Rota(address)
    begun = asyncio.Event()

    @one.task("job")
    async def job(run):
        begun.set()

    async with one, two, asyncio.TaskGroup() as group:
        await one.enqueue("job")
        work = await working(one, group)
        await begun.wait()
        with pytest.raises(Busy, match=f"process {os.getpid()}"):
            await two.work(until_idle=True)
        two.task("late")
        assert len(await two.store.read(list_tasks, None)) == 1
        work.cancel()


async def test_a_killed_program_leaves_runs_that_the_next_one_runs_exactly_once(
    tmp_path, clock, opened_file
):
    path = f"{tmp_path}/rota.db"
    calls = []

    def program():
        rota = Rota(f"sqlite:///{path}", clock=clock)

        @rota.task("job")
        async def job(run):
            calls.append((run.id, run.attempt))

        return rota

    first = program()
    async with first:
        ids = await first.enqueue_many("job", range(5))
        # A crew that vanished without a word: registered, claimed, never seen again.
        routes = list(first._functions)
        me = {"id": "killed", "home": path, "host": "h", "pid": 1, "roles": "worker"}
        lease = {"routes": "[]", "slots": 5, "lease_until": first.store.now() + 30_000_000}
        await first.store.write(register_worker, {**me, **lease})
        claimed = await first.store.write(
            claim_runs, "killed", ["foreground", "background"], routes, 3
        )
        assert len(claimed.leases) == 3

    second = program()
    async with second:
        await second.work(until_idle=True)
        await second.work(until_idle=True)
        assert sorted(calls) == [(i, 2) for i in ids[:3]] + [(i, 1) for i in ids[3:]]
        for run_id in ids:
            assert (await second.run(run_id)).state is RunState.SUCCEEDED
        causes = [a.outcome for a in await second.store.read(list_attempts, ids[0])]
        assert causes == ["lost", "succeeded"]


def test_an_address_names_its_store(clock, tmp_path):
    assert addresses.store_at("memory:", clock).path == ":memory:"
    path = f"{tmp_path}/x.db"
    assert addresses.store_at(f"sqlite:///{path}", clock).path == path
