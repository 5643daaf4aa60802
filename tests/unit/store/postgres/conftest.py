"""A PostgreSQL server for all tests, and a database for each."""

from __future__ import annotations

import asyncpg
import pytest

from rota.runtime.clock import SystemClock
from rota.store.postgres.database import PostgresDatabase
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
        store = PostgresDatabase(postgres_address, SystemClock())
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
