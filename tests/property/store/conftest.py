"""Where the machine's stores live."""

from __future__ import annotations

import secrets

import pytest

from rota.flow.maintain import restore
from rota.store.sqlite.database import MemoryDatabase, SqliteDatabase


class InMemory:
    """A store that is gone when it is closed."""

    async def open(self, clock):
        store = MemoryDatabase(clock)
        await store.open()
        return store

    async def again(self, store, clock):
        return store

    async def close(self, store):
        await store.close()


class Lasting:
    """A store that is there again."""

    def __init__(self, folder):
        self.folder = folder

    async def again(self, store, clock):
        await store.close()
        return await self.open(clock)

    async def restored(self, store, clock):
        path = str(self.folder / f"{secrets.token_hex(8)}.zip")
        await store.backup(path)
        await store.close()
        await restore(self.make(clock), path, force=True)
        return await self.open(clock)

    async def open(self, clock):
        store = self.make(clock)
        await store.open()
        return store

    async def close(self, store):
        await store.close()


class InAFile(Lasting):
    """A database file."""

    def __init__(self, folder):
        super().__init__(folder)
        self._path = str(folder / f"{secrets.token_hex(8)}.db")

    def make(self, clock):
        return SqliteDatabase(self._path, clock)


class OnAServer(Lasting):
    """A database of a server."""

    def __init__(self, folder, server):
        super().__init__(folder)
        self._server = server
        self._address = None

    async def open(self, clock):
        if self._address is None:
            self._address = await self._server.create()
        return await super().open(clock)

    def make(self, clock):
        from rota.store.postgres.database import PostgresDatabase

        return PostgresDatabase(self._address, clock, own_clock=True)

    async def close(self, store):
        await store.close()
        await self._server.drop(self._address)


@pytest.fixture
def places(request, tmp_path):
    """Make a new place of a kind."""

    def make(kind):
        if kind == "memory":
            return InMemory()
        if kind == "sqlite":
            return InAFile(tmp_path)
        return OnAServer(tmp_path, request.getfixturevalue("postgres_server"))

    return make
