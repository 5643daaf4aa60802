"""The pulse keeps a lease alive, on a thread of its own where leases are judged by others."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from rota.errors import Unavailable
from rota.model.views import LeaseRenewal
from rota.runtime.clock import SystemClock
from rota.runtime.heartbeats import WorkerLease
from rota.store.workers import renew_worker
from rota.testing.fakes import FixedChance


class Second:
    """A second store that cannot be reached at first."""

    def __init__(self):
        self.opened = 0
        self.closed = threading.Event()
        self.threads = set()
        self.database = self

    async def open(self):
        self.opened += 1
        if self.opened == 1:
            raise Unavailable("not yet")

    async def close(self):
        self.closed.set()

    def now(self):
        return 0

    async def write(self, operation, worker, until):
        assert operation is renew_worker
        self.threads.add(threading.current_thread().name)
        return LeaseRenewal(alive=True)


class First:
    """The store of the process itself."""

    def __init__(self, second):
        self._second = second
        self.renewed = 0
        self.database = self

    def second(self):
        return self._second

    async def open(self):
        return None

    def now(self):
        return 0

    async def write(self, operation, worker, until):
        assert operation is renew_worker
        self.renewed += 1
        return LeaseRenewal(alive=True)


async def beat_once(store):
    heard = asyncio.Event()
    threads = set()

    async def renewed(renewal):
        assert renewal.alive
        threads.add(threading.current_thread())
        heard.set()

    pulse = WorkerLease(store, lambda: "w", renewed, SystemClock(), FixedChance())
    async with asyncio.timeout(20):
        async with asyncio.TaskGroup() as group:
            group.create_task(pulse.run())
            await heard.wait()
            pulse.stop()
    return threads


async def test_a_second_store_is_renewed_on_a_thread_and_heard_at_home():
    second = Second()
    assert await beat_once(First(second)) == {threading.current_thread()}
    assert second.threads == {"rota-pulse"}
    assert second.closed.is_set()


async def test_its_thread_is_none_that_others_need():
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    heard = asyncio.Event()

    async def renewed(renewal):
        heard.set()

    pulse = WorkerLease(First(Second()), lambda: "w", renewed, SystemClock(), FixedChance())
    beating = asyncio.ensure_future(pulse.run())
    try:
        async with asyncio.timeout(10):
            await heard.wait()
            await asyncio.to_thread(int)
    finally:
        pulse.stop()
        await beating


async def test_a_database_that_is_down_when_the_pulse_starts_is_tried_again():
    second = Second()
    await beat_once(First(second))
    assert second.opened > 1


async def test_a_store_with_a_lock_is_renewed_here():
    store = First(None)
    await beat_once(store)
    assert store.renewed == 1


class Hanging(First):
    """A store whose server has stopped to answer."""

    async def write(self, operation, worker, until):
        assert operation is renew_worker
        await asyncio.Event().wait()


async def test_a_lease_that_cannot_be_renewed_is_given_up_before_it_ends_though_nobody_answers():
    ttl, clock = timedelta(seconds=0.6), SystemClock()
    begun = clock.monotonic()
    told = asyncio.Queue()
    pulse = WorkerLease(Hanging(None), lambda: "w", told.put, clock, FixedChance(), ttl)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(pulse.run())
        renewal = await told.get()
        took = clock.monotonic() - begun
        pulse.stop()
    assert not renewal.alive
    assert took < ttl.total_seconds()
