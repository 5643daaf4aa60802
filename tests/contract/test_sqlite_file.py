"""What only a database file promises."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest

from rota.errors import Busy, SchemaMismatch, Unavailable
from rota.flow.observe.status import list_workers
from rota.model.views import RunFilter
from rota.store.plans import list_due_schedules
from rota.store.sqlite.connection import connect
from rota.store.sqlite.database import MemoryDatabase, SqliteDatabase
from rota.store.views import list_events, list_runs, list_spaces, view_queue
from rota.testing.fakes import VirtualClock
from tests.tools.store_bench import Bench


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "rota.db")


async def test_reading_writes_nothing_to_the_file(path, clock, opened_file):
    bench = Bench(await opened_file(path), clock)
    await bench.queue(await bench.task(), 3)
    watcher = apsw.Connection(path)
    before = watcher.execute("pragma data_version").get
    await bench.store.read(list_runs, RunFilter())
    await bench.store.read(view_queue)
    await bench.store.read(list_events, 0, 100)
    await bench.store.read(list_due_schedules, 10)
    assert watcher.execute("pragma data_version").get == before
    await bench.queue(await bench.task())
    assert watcher.execute("pragma data_version").get != before
    watcher.close()


async def test_what_was_written_is_there_for_the_next_process(path, clock, opened_file):
    first = await opened_file(path)
    bench = Bench(first, clock)
    ids = await bench.queue(await bench.task(), 3)
    await first.close()
    again = Bench(await opened_file(path), clock)
    assert [run.id for run in await again.store.read(list_runs, RunFilter())] == ids[::-1]


async def test_two_stores_on_one_file_see_each_other(path, clock, opened_file):
    one = Bench(await opened_file(path), clock)
    two = Bench(await opened_file(path), clock)
    task = await one.task()
    ids = await two.queue(task, 4)
    two.routes = one.routes
    assert await one.claim_ids(2) == ids[:2]
    assert await two.claim_ids(5) == ids[2:]


async def test_one_store_at_a_time_has_the_roles(path, clock, opened_file):
    one, two = await opened_file(path), await opened_file(path)
    assert await one.take_roles()
    assert await one.take_roles()
    with pytest.raises(Busy, match=str(os.getpid())):
        await two.take_roles()
    await one.close()
    assert await two.take_roles()


async def test_who_has_the_roles_can_be_seen_without_taking_them(path, clock, opened_file):
    one, two = await opened_file(path), await opened_file(path)
    assert [each.roles_taken() for each in (one, two)] == [False, False]
    await one.take_roles()
    assert [each.roles_taken() for each in (one, two)] == [True, True]
    await one.close()
    assert two.roles_taken() is False
    await two.take_roles()  # a look holds nobody up


async def test_a_worker_of_this_machine_is_gone_with_the_lock(path, clock, opened_file):
    one, two = await opened_file(path), await opened_file(path)
    mine, there = Bench(one, clock), "elsewhere"
    await one.take_roles()
    await mine.worker("here", host=socket.gethostname())
    await mine.worker("there", host=there)
    alive = [worker.alive(clock.now()) for worker in await list_workers(two)]
    assert alive == [True, True]
    await one.close()
    alive = {worker.id: worker.alive(clock.now()) for worker in await list_workers(two)}
    assert alive == {"here": False, "there": True}


async def test_a_newer_schema_is_refused(path, clock, opened_file):
    store = await opened_file(path)
    await store.close()
    connection = apsw.Connection(path)
    connection.execute("pragma user_version = 9999")
    connection.close()
    with pytest.raises(SchemaMismatch, match="9999"):
        await SqliteDatabase(path, clock).open()


async def test_every_database_has_an_incarnation_of_its_own(tmp_path, clock, opened_file):
    found = set()
    for name in ("a.db", "b.db"):
        await opened_file(str(tmp_path / name))
        connection = apsw.Connection(str(tmp_path / name))
        connection.set_busy_timeout(10_000)  # its threads may be opening it yet
        found.add(connection.execute("select value from facts where name = 'incarnation'").get)
        connection.close()
    assert len(found - {None}) == 2


async def test_a_missing_folder_is_one_clear_sentence(tmp_path, clock):
    with pytest.raises(Unavailable, match="check that its folder exists"):
        await SqliteDatabase(str(tmp_path / "no" / "rota.db"), clock).open()


@pytest.mark.parametrize("make", [MemoryDatabase, lambda clock: SqliteDatabase("x", clock)])
async def test_a_store_that_is_not_open_says_so(make, clock):
    with pytest.raises(Unavailable, match="not open"):
        await make(clock).read(list_spaces)


async def test_a_fault_inside_a_transaction_leaves_nothing(path, clock, opened_file):
    bench = Bench(await opened_file(path), clock)
    task = await bench.task()

    async def half(session):
        await session.run("delete_task", id=task.id, now=1)
        raise LookupError

    with pytest.raises(LookupError):
        await bench.store.write(half)
    assert (await bench.task_of(task)).deleted_at is None


async def test_opening_a_store_twice_changes_nothing(tmp_path):
    store = SqliteDatabase(str(tmp_path / "rota.db"), VirtualClock())
    await store.open()
    threads = threading.active_count()
    await store.open()
    assert threading.active_count() == threads
    await store.close()


def test_who_opens_a_new_file_at_the_same_instant_is_not_refused(tmp_path):
    """A daemon and a command that both begin with a new home."""
    at_once = threading.Barrier(4)

    def opened(path):
        at_once.wait()
        connect(path).close()

    with ThreadPoolExecutor(4) as threads:
        for number in range(40):
            list(threads.map(opened, [str(tmp_path / f"{number}.db")] * 4))
