"""What a program only says does not wait for the disk; everything else does."""

from __future__ import annotations

from contextlib import asynccontextmanager

import apsw
import pytest

from rota.model.budgets import Amounts
from rota.model.keeping import ForPeople, KeptSession, Used
from rota.model.settlements import NewDelivery
from rota.stores.sqlite.store import EVENTS_GAP, SqliteStore
from rota.testing.bench import Bench
from rota.testing.contracts.keeping import kept_for, said

SESSION = KeptSession("codex", "s-1")


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
    store = SqliteStore(str(path), clock)
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
    assert await store.begin_kept(kept_for(lease), "w1")
    return lease


async def test_words_alone_are_written_lightly(disks, clock, tmp_path):
    spent = said(4, 8, "two")._replace(used=Used(Amounts(tokens=1), priced=False))
    async with opened(tmp_path / "rota.db", clock) as store:
        lease = await begun(store, clock)

        async def syncs(heard, session=None):
            before = disks.syncs
            assert await store.hear(lease.run_id, lease.epoch, "w1", [heard], session)
            return disks.syncs - before

        assert await syncs(said(0, 4, "one")) == 0
        assert await syncs(spent) > 0
        assert await syncs(said(8, 12, "three"), SESSION) > 0
        assert await syncs(said(12, 16, "four")) == 0
        note = NewDelivery(
            space_id=lease.space_id, channel="log", target="x", body="five", dedupe_key="key"
        )
        assert await syncs(said(16, 20, "five")._replace(for_people=(ForPeople(note),))) > 0
        before = disks.syncs
        await store.drop_kept(lease.run_id, lease.epoch)
        assert disks.syncs > before


async def test_who_takes_the_database_gives_no_number_of_an_event_again(clock, tmp_path):
    path = tmp_path / "rota.db"

    async def said_at(store, lease, start):
        assert await store.hear(lease.run_id, lease.epoch, "w1", [said(start, start + 4, "one")])
        return (await store.run_output(lease.run_id, 1))[-1].id

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
