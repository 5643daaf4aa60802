"""What a program only says does not wait for the disk; everything else does."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager

import apsw
import pytest

from rota.errors import Unavailable
from rota.flow.attempt.programs import write_output
from rota.model.attempts import AgentSessionRef, PricedUsage, ProgressNotice
from rota.model.budgets import Amounts
from rota.model.settlement import NewDelivery
from rota.store.attempts import drop_kept_attempt, record_launch
from rota.store.sqlite import connection
from rota.store.sqlite import database as store_module
from rota.store.sqlite.connection import EVENTS_GAP
from rota.store.sqlite.database import SqliteDatabase
from rota.store.views import list_run_output
from tests.contract.store.test_attempts import kept_for, said
from tests.tools.store_bench import Bench

SESSION = AgentSessionRef("codex", "s-1")


class Disks(apsw.VFS):
    """Counts how often a file is to be on the disk, whoever opens it."""

    def __init__(self):
        self.syncs = 0
        super().__init__("rota-test-disks", "unix", makedefault=True)

    def xOpen(self, name, flags):  # noqa: N802 - its name in SQLite
        return Disk(self, name, flags)


class Disk(apsw.VFSFile):
    def __init__(self, disks, name, flags):
        self._disks = disks
        super().__init__("unix", name, flags)

    def xSync(self, flags):  # noqa: N802
        self._disks.syncs += 1
        super().xSync(flags)


@pytest.fixture
def disks():
    made = Disks()
    yield made
    made.unregister()


@asynccontextmanager
async def opened(path, clock):
    store = SqliteDatabase(str(path), clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def begun(store, clock):
    """Return the lease of a run that is kept."""
    bench = Bench(store, clock)
    await bench.worker("w1")
    await bench.queue(await bench.task())
    lease = await bench.claim_one()
    assert await store.write(record_launch, kept_for(lease), "w1")
    return lease


async def test_words_alone_are_written_lightly(disks, clock, tmp_path):
    spent = said(4, 8, "two")._replace(used=PricedUsage(Amounts(tokens=1), priced=False))
    async with opened(tmp_path / "rota.db", clock) as store:
        lease = await begun(store, clock)

        async def syncs(heard, session=None):
            before = disks.syncs
            assert await write_output(store, kept_for(lease), "w1", [heard], session)
            return disks.syncs - before

        assert await write_output(store, kept_for(lease), "w1", [said(0, 2, "zero")])
        assert await syncs(said(2, 4, "one")) == 0
        assert await syncs(spent) > 0
        assert await syncs(said(8, 12, "three"), SESSION) > 0
        assert await syncs(said(12, 16, "four")) == 0
        note = NewDelivery(
            space_id=lease.space_id, channel="log", target="x", body="five", dedupe_key="key"
        )
        assert await syncs(said(16, 20, "five")._replace(for_people=(ProgressNotice(note),))) > 0
        before = disks.syncs
        await store.write(drop_kept_attempt, lease.run_id, lease.epoch)
        assert disks.syncs > before


async def said_at(store, lease, start):
    """Let a run say something, and return the number of the event."""
    assert await write_output(store, kept_for(lease), "w1", [said(start, start + 4, "one")])
    return (await store.read(list_run_output, lease.run_id, 1))[-1].id


async def test_who_takes_the_database_gives_no_number_of_an_event_again(clock, tmp_path):
    path = tmp_path / "rota.db"
    async with opened(path, clock) as store:
        await store.take_roles()
        lease = await begun(store, clock)
        first = await said_at(store, lease, 0)
        await store.take_roles()
        assert await said_at(store, lease, 4) == first + 1
    async with opened(path, clock) as store:
        assert await said_at(store, lease, 8) == first + 2
        await store.take_roles()
        assert await said_at(store, lease, 12) == first + 3 + EVENTS_GAP


@pytest.fixture
def power(monkeypatch):
    """A machine whose power can be cut."""
    boot = ["first"]
    monkeypatch.setattr(store_module, "read_boot", lambda: boot[-1])
    return boot


async def cut(path, clock, tmp_path):
    """Return what the disk has of a file, the lease of its run, and the last event that was seen."""
    async with opened(path, clock) as store:
        await store.take_roles()
        lease = await begun(store, clock)
        first = await said_at(store, lease, 0)
        await Bench(store, clock).task("other")  # waits for the disk
        disk = tmp_path / "disk"
        disk.mkdir()
        for name in ("rota.db", "rota.db-wal"):
            shutil.copy(tmp_path / name, disk / name)
        for start in range(4, 40, 4):
            seen = await said_at(store, lease, start)
    assert seen > first
    return disk / "rota.db", lease, seen


async def test_who_writes_first_after_a_power_cut_gives_no_number_again(power, clock, tmp_path):
    """Nobody need take the roles for that: a command alone writes, too."""
    path, lease, seen = await cut(tmp_path / "rota.db", clock, tmp_path)
    power.append("second")
    async with opened(path, clock) as store:
        now = await said_at(store, lease, 4)
        assert now > seen
    async with opened(path, clock) as store:
        assert await said_at(store, lease, 8) == now + 1, "once is enough"
    power.append("third")
    async with opened(path, clock) as store:
        assert await said_at(store, lease, 12) > now + EVENTS_GAP, "it was light in the second"


async def test_of_many_who_open_it_at_once_one_leaves_the_gap(power, clock, tmp_path):
    path, lease, _ = await cut(tmp_path / "rota.db", clock, tmp_path)
    before = number(path)
    power.append("second")
    stores = [SqliteDatabase(str(path), clock) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    assert number(path) == before + EVENTS_GAP
    await asyncio.gather(*(store.close() for store in stores))
    assert lease.run_id


def number(path):
    look = apsw.Connection(str(path))
    try:
        return look.execute("select seq from sqlite_sequence where name = 'events'").get
    finally:
        look.close()


async def test_while_the_machine_is_up_a_command_leaves_no_gap(power, clock, tmp_path):
    path, lease, _ = await cut(tmp_path / "rota.db", clock, tmp_path)
    before = number(path)
    async with opened(path, clock) as store:
        assert await said_at(store, lease, 4) == before + 1


async def test_a_machine_that_does_not_tell_its_boots_writes_nothing_lightly(
    power, disks, clock, tmp_path
):
    power.append("")
    async with opened(tmp_path / "rota.db", clock) as store:
        lease = await begun(store, clock)
        await said_at(store, lease, 0)
        before = disks.syncs
        await said_at(store, lease, 4)
        assert disks.syncs > before


async def test_whoever_cannot_leave_a_gap_does_not_keep_the_roles(clock, tmp_path, monkeypatch):
    def full(path):
        raise Unavailable("the disk is full")

    async with opened(tmp_path / "rota.db", clock) as store, opened(store.path, clock) as other:
        with monkeypatch.context() as patch:
            patch.setattr(store_module, "leave_a_gap", full)
            with pytest.raises(Unavailable):
                await store.take_roles()
        assert await other.take_roles()


def test_a_boot_is_told_from_another_or_not_at_all(monkeypatch, tmp_path):
    assert connection.read_boot() == connection.read_boot()
    monkeypatch.setattr(connection, "BOOT", tmp_path / "none")
    assert connection.read_boot() == ""
