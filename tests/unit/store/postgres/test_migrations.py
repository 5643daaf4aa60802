"""A schema is brought up to date step by step, on both stores, and keeps what is in it."""

from __future__ import annotations

import apsw
import asyncpg
import pytest

from rota.errors import SchemaMismatch, Unavailable
from rota.store.postgres import backup as postgres_backup
from rota.store.postgres import connection as postgres
from rota.store.postgres.database import PostgresDatabase
from rota.store.sql_files import Migration, load_migrations
from rota.store.sqlite import backup as sqlite_backup
from rota.store.sqlite import connection as sqlite
from rota.store.sqlite.database import SqliteDatabase
from rota.timing.rule_builders import every
from tests.tools.store_bench import Bench

COLOUR = "alter table {0}tasks add column colour text not null default 'green'"
COPY = "update {0}tasks set title = colour || ' ' || name"
LOSE = "delete from {0}schedules"


class Upgradable:
    """A database whose Rota may be given further steps of the schema."""

    def __init__(self, kind, address, clock, monkeypatch):
        self.kind = kind
        self.address = address
        self.prefix = "rota." if kind == "postgres" else ""
        self._clock = clock
        self._monkeypatch = monkeypatch

    def install(self, *steps):
        """Let every store that is opened from now on know these steps after Rota's own."""
        known = load_migrations(f"rota.store.{self.kind}")
        further = [
            Migration(number=known[-1].number + n, name=f"step_{n}", sql=sql.format(self.prefix))
            for n, sql in enumerate(steps, 1)
        ]
        for module in (postgres, postgres_backup, sqlite, sqlite_backup):
            self._monkeypatch.setattr(module, "load_migrations", lambda _: [*known, *further])

    def store(self):
        if self.kind == "postgres":
            return PostgresDatabase(self.address, self._clock)
        return SqliteDatabase(self.address, self._clock)

    async def ask(self, sql):
        """Return the first column of a query's first row, and the number of the last step."""
        if self.kind == "sqlite":
            connection = apsw.Connection(self.address)
            value, version = connection.execute(sql.format("")).get, sqlite.read_version(connection)
            connection.close()
            return value, version
        connection = await asyncpg.connect(self.address)
        value = await connection.fetchval(sql.format("rota."))
        version = await postgres.read_version(connection)
        await connection.close()
        return value, version

    async def fill(self):
        """Leave a task with one schedule in the database."""
        store = self.store()
        await store.open()
        bench = Bench(store, self._clock)
        await bench.schedule(await bench.task("kept"), every("5m", anchor=self._clock.now()))
        incarnation = store.incarnation
        await store.close()
        return incarnation


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path, clock, monkeypatch):
    if request.param == "postgres":
        address = request.getfixturevalue("bare_address")
    else:
        address = str(tmp_path / "rota.db")
    return Upgradable(request.param, address, clock, monkeypatch)


async def test_steps_are_applied_once_and_in_order_and_keep_the_rows(database):
    incarnation = await database.fill()
    _, version = await database.ask("select 1")
    database.install(COLOUR, COPY)
    for _ in range(2):
        store = database.store()
        await store.open()
        assert store.incarnation == incarnation
        assert [task.title for task in await store.list_tasks(1)] == ["green kept"]
        await store.close()
    assert await database.ask("select count(*) from {0}schedules") == (1, version + 2)


async def test_a_step_that_loses_a_schedule_is_rolled_back_and_earlier_ones_stay(database):
    await database.fill()
    _, version = await database.ask("select 1")
    database.install(COLOUR, LOSE)
    with pytest.raises(Unavailable, match="step_2 would change 1 schedules to 0: not applied"):
        await database.store().open()
    assert await database.ask("select count(*) from {0}schedules") == (1, version + 1)
    assert await database.ask("select colour from {0}tasks") == ("green", version + 1)


async def test_who_may_only_look_is_told_to_start_the_daemon_first(database):
    await database.fill()
    database.install(COLOUR)
    with pytest.raises(SchemaMismatch, match="start `rota up` once"):
        await database.store().look()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_file_is_copied_before_its_first_step(database, tmp_path):
    await database.fill()
    _, version = await database.ask("select 1")
    database.install(COLOUR, COPY)
    store = database.store()
    await store.open()
    await store.close()
    (copy,) = tmp_path.glob("rota.db.before-*")
    assert copy.name == f"rota.db.before-{version + 1:04}"
    connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)
    assert sqlite.read_version(connection) == version
    assert connection.execute("select title from tasks").get == ""
    connection.close()


async def test_a_backup_of_an_older_schema_is_brought_up_to_date(database, tmp_path):
    await database.fill()
    _, version = await database.ask("select 1")
    store = database.store()
    await store.open()
    await store.backup(str(tmp_path / "backup"))
    await store.close()
    database.install(COLOUR, COPY)
    restored = await database.store().restore(str(tmp_path / "backup"), None, force=True)
    assert restored.backup.schema == version
    assert await database.ask("select title from {0}tasks") == ("green kept", version + 2)
    assert await database.ask("select count(*) from {0}schedules") == (1, version + 2)
