"""No room on the disk, at whatever write: nothing acknowledged is lost, and it goes on by itself."""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import apsw
import asyncpg
import pytest

from rota.errors import Unavailable
from rota.flow.observe.verification import verify
from rota.library.rota import Rota
from rota.model.runs import FINISHED, RunState
from rota.model.views import RunFilter
from rota.store.postgres.database import PostgresDatabase
from rota.store.sqlite.database import SqliteDatabase
from rota.store.views import list_runs
from tests.tools.store_bench import Bench

ROOMS = range(70)
NO_ROOM = r"cannot write to the database .*rota\.db: no room is left on its disk"


async def test_whatever_room_is_left_nothing_acknowledged_is_lost(disk, clock, opened_file):
    path = str(disk.folder / "rota.db")
    store = await opened_file(path)
    bench = Bench(store, clock)
    task = await bench.task()
    await bench.planned(task, every="10s")
    queued, ended, refused = set(), set(), Counter()

    async def work():
        clock.advance(seconds=3)
        queued.update(await bench.queue(task, 3))
        await bench.plan()
        for lease in await bench.claim(5):
            if await bench.end(lease):
                ended.add(lease.run_id)

    for pages in ROOMS:
        disk.fill(pages)
        for _ in range(6):
            try:
                await work()
            except Unavailable as fault:
                refused[str(fault).partition(":")[2]] += 1
        assert refused
    disk.free()
    await work()
    runs = {run.id: run for run in await store.read(list_runs, RunFilter(limit=10_000))}
    assert queued <= runs.keys()
    assert {runs[run_id].state for run_id in ended} == {RunState.SUCCEEDED}
    assert set(refused) == {" no room is left on its disk, free some and it goes on"}
    assert (await verify(store)).violations == ()
    await store.close()
    connection = apsw.Connection(path)
    assert connection.execute("pragma integrity_check").get == "ok"
    connection.close()


async def test_work_goes_on_when_there_is_room_again(disk):
    rota = Rota(f"sqlite:///{disk.folder}/rota.db")
    full, begun = asyncio.Event(), asyncio.Event()

    @rota.task("job")
    async def job(run):
        begun.set()
        await full.wait()

    async with rota:
        await rota.enqueue("job")
        working = asyncio.ensure_future(rota.work())
        await begun.wait()
        disk.fill()
        with pytest.raises(Unavailable, match=NO_ROOM):
            for _ in range(2_000):
                await rota.enqueue("job")
        full.set()
        settler = rota.crew.worker.settler
        while not settler.failures:
            await asyncio.sleep(0.01)
        assert "no room is left" in settler.last_error
        disk.free()
        settler.wake()
        while not all(
            run.state in FINISHED for run in await rota.store.read(list_runs, RunFilter())
        ):
            await asyncio.sleep(0.01)
        await rota.crew.stop()
        await working
        assert (await verify(rota.store)).violations == ()


async def test_a_database_that_cannot_be_made_is_one_sentence(disk, clock):
    disk.fill()
    with pytest.raises(Unavailable, match="no room is left|check it and the system's log"):
        await SqliteDatabase(str(disk.folder / "rota.db"), clock).open()
    disk.free()
    store = SqliteDatabase(str(disk.folder / "rota.db"), clock)
    await store.open()
    await store.close()


async def test_a_backup_that_finds_no_room_leaves_nothing(disk, clock, opened_file, tmp_path):
    store = await opened_file(str(tmp_path / "rota.db"))
    bench = Bench(store, clock)
    await bench.queue(await bench.task(), 3_000)
    target = disk.folder / "backups"
    target.mkdir()
    for pages in range(0, 300, 12):
        disk.fill(pages)
        try:
            await store.backup(str(target / "backup.zip"))
        except Unavailable as fault:
            assert "no space left on device" in str(fault) or "no room is left" in str(fault)
            assert list(target.iterdir()) == []
        else:
            break
    assert pages > 12
    assert [path.name for path in target.iterdir()] == ["backup.zip"]


async def test_a_restore_that_finds_no_room_leaves_the_old_database(disk, clock, tmp_path):
    path = str(disk.folder / "rota.db")
    store = SqliteDatabase(path, clock)
    await store.open()
    bench = Bench(store, clock)
    await bench.queue(await bench.task(), 3_000)
    backup = await store.backup(str(tmp_path / "backup.zip"))
    await bench.queue(await bench.task())
    before = store.database.incarnation
    await store.close()
    for pages in range(0, 1_500, 60):
        disk.fill(pages)
        try:
            await SqliteDatabase(path, clock).restore(backup.path, None, force=True)
        except Unavailable as fault:
            assert "no space left on device" in str(fault) or "no room is left" in str(fault)
            disk.free()
            connection = apsw.Connection(path)
            found = connection.execute("select value from facts where name = 'incarnation'").get
            assert (found, connection.execute("select count(*) from runs").get) == (before, 3_001)
            connection.close()
        else:
            break
    assert pages > 60
    again = SqliteDatabase(path, clock)
    await again.open_read_only()
    assert (await verify(again)).counts["runs"] == 3_000
    await again.close()


async def test_a_server_without_room_is_survived(disk, clock, postgres_server, postgres_address):
    owner, name = postgres_server.folder.stat(), f"small_{os.getpid()}"
    os.chown(disk.folder, owner.st_uid, owner.st_gid)
    store = PostgresDatabase(postgres_address, clock, own_clock=True)
    await store.open()
    bench = Bench(store, clock)
    task = await bench.task()
    admin = await asyncpg.connect(postgres_address)
    await admin.execute(f"create tablespace {name} location '{disk.folder}'")
    try:
        await admin.execute(f"alter table rota.runs set tablespace {name}")
        queued = set(await bench.queue(task, 100))
        disk.fill()
        with pytest.raises(Unavailable, match="it has no room left: free disk or memory"):
            for _ in range(100):
                queued.update(await bench.queue(task, 100))
        disk.free()
        queued.update(await bench.queue(task, 100))
        found = {run.id for run in await store.read(list_runs, RunFilter(limit=100_000))}
        assert queued <= found
        assert (await verify(store)).violations == ()
    finally:
        await store.close()
        await admin.execute("drop table rota.runs")
        await admin.execute(f"drop tablespace {name}")
        await admin.close()
