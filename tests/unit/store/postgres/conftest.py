"""A PostgreSQL server for all tests, and a database for each."""

from __future__ import annotations

import apsw
import asyncpg
import pytest

from rota.runtime.clock import SystemClock
from rota.store.postgres import connection as postgres
from rota.store.postgres.store import PostgresStore
from rota.store.sql_files import load_migrations
from rota.store.sqlite import connection as sqlite
from rota.store.sqlite.store import SqliteStore
from tests.tools.postgres import PostgresServer, shared_folder
from tests.tools.store_bench import Bench


@pytest.fixture(scope="session")
def postgres_server():
    server = PostgresServer(shared_folder())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def postgres_address(postgres_server, runner):
    address = runner.run(postgres_server.create())
    yield address
    runner.run(postgres_server.drop(address))


@pytest.fixture
def bare_address(postgres_server, runner):
    """A database without Rota's schema."""
    address = runner.run(postgres_server.create(migrated=False))
    yield address
    runner.run(postgres_server.drop(address))


@pytest.fixture
def open_bench(postgres_address, runner):
    """Open any number of stores on the test's database, each as a process would."""
    stores = []

    async def open_one():
        store = PostgresStore(postgres_address, SystemClock())
        await store.open()
        stores.append(store)
        return Bench(store, SystemClock())

    yield open_one
    for store in reversed(stores):
        runner.run(store.close())


@pytest.fixture
def bench(open_bench, runner):
    return runner.run(open_bench())


@pytest.fixture
def connection(postgres_address, runner):
    """A connection of the test's own."""
    made = runner.run(asyncpg.connect(postgres_address))
    yield made
    runner.run(made.close())


@pytest.fixture(params=["sqlite", "postgres"])
def old_store(request, tmp_path, clock):
    """Make a database as it was before a step of its schema, with some rows, for a store of now."""
    if request.param == "postgres":
        address = request.getfixturevalue("bare_address")

    async def sqlite_before(last, rows):
        path = str(tmp_path / "rota.db")
        made = apsw.Connection(path)
        for step in load_migrations("rota.store.sqlite"):
            if step.number > last:
                break
            sqlite.apply_step(made, step)
        made.execute(rows.format(""))
        made.close()
        return SqliteStore(path, clock)

    async def postgres_before(last, rows):
        made = await asyncpg.connect(address)
        for step in load_migrations("rota.store.postgres"):
            if step.number > last:
                break
            await postgres.apply_step(made, step)
        await made.execute(rows.format("rota."))
        await made.close()
        return PostgresStore(address, clock)

    return sqlite_before if request.param == "sqlite" else postgres_before
