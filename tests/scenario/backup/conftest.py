"""Stores that outlive a test's steps: a file or a server, and the same place again."""

from __future__ import annotations

import apsw
import asyncpg
import pytest

from rota.store.postgres.database import PostgresDatabase
from rota.store.sqlite.database import SqliteDatabase

READ = "select * from {} order by 1, 2"
OF_THE_SERVER = "xact"
"""Transactions have numbers of their own on every server, so a backup holds none."""
TABLES = (
    "spaces", "threads", "tasks", "schedules", "runs", "attempts", "ledger", "questions",
    "deliveries", "events", "limits",
)  # fmt: skip


class FilePlace:
    """Files in a folder."""

    def __init__(self, folder, clock):
        self._folder = folder
        self._clock = clock

    def store(self, name="one"):
        return SqliteDatabase(str(self._folder / f"{name}.db"), self._clock)

    async def rows(self, name="one"):
        connection = apsw.Connection(str(self._folder / f"{name}.db"))
        found = {t: list(connection.execute(READ.format(t))) for t in TABLES}
        connection.close()
        return found


class ServerPlace:
    """Databases of a server."""

    def __init__(self, addresses, clock):
        self._addresses = addresses
        self._clock = clock

    def store(self, name="one"):
        return PostgresDatabase(self._addresses[name], self._clock, own_clock=True)

    async def rows(self, name="one"):
        connection = await asyncpg.connect(self._addresses[name])
        found = {
            t: [
                tuple(value for column, value in row.items() if column != OF_THE_SERVER)
                for row in await connection.fetch(READ.format(f"rota.{t}"))
            ]
            for t in TABLES
        }
        await connection.close()
        return found


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, clock, tmp_path, runner):
    """Somewhere with room for two databases."""
    if request.param == "sqlite":
        yield FilePlace(tmp_path, clock)
        return
    server = request.getfixturevalue("postgres_server")
    addresses = {name: runner.run(server.create()) for name in ("one", "two")}
    yield ServerPlace(addresses, clock)
    for address in addresses.values():
        runner.run(server.drop(address))


@pytest.fixture
def opened_at(place, runner):
    """Open a store of the place inside a test; whatever is open at its end is closed."""
    stores = []

    async def open_at(name="one"):
        store = place.store(name)
        await store.open()
        stores.append(store)
        return store

    yield open_at
    for store in stores:
        runner.run(store.close())
