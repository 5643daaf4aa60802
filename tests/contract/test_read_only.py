"""A store that was opened to look cannot be written to, and needs nothing that writes."""

from __future__ import annotations

import asyncpg
import pytest

from rota.errors import SchemaMismatch, Unavailable
from rota.flow.observe.verification import verify
from rota.store.postgres.database import PostgresDatabase
from rota.store.sqlite.database import SqliteDatabase
from rota.store.tasks import add_thread
from tests.tools.store_bench import Bench


async def looked_at(made):
    await made.open_read_only()
    try:
        with pytest.raises(Unavailable):
            await made.write(add_thread, 1, "x")
        return await verify(made)
    finally:
        await made.close()


async def test_a_file_is_looked_at_beside_whoever_writes_to_it(tmp_path, clock, opened_file):
    path = str(tmp_path / "rota.db")
    bench = Bench(await opened_file(path), clock)
    await bench.queue(await bench.task(), 3)
    assert (await looked_at(SqliteDatabase(path, clock))).counts["runs"] == 3
    await bench.queue(await bench.task(), 3)
    assert (await looked_at(SqliteDatabase(path, clock))).counts["runs"] == 6


async def test_a_server_is_looked_at_without_a_right_to_write(postgres_address, clock):
    store = PostgresDatabase(postgres_address, clock, own_clock=True)
    await store.open()
    bench = Bench(store, clock)
    await bench.queue(await bench.task(), 3)
    found = await looked_at(PostgresDatabase(postgres_address, clock, own_clock=True))
    assert found.counts["runs"] == 3
    await store.close()


async def test_a_server_without_rota_is_left_as_it_is(postgres_server, clock):
    async with postgres_server.database(migrated=False) as address:
        with pytest.raises(Unavailable, match="there is nothing of Rota in the database"):
            await PostgresDatabase(address, clock).open_read_only()
        connection = await asyncpg.connect(address)
        assert await connection.fetchval("select to_regnamespace('rota')") is None
        await connection.close()


async def test_a_server_with_another_schema_is_refused(postgres_address, clock):
    connection = await asyncpg.connect(postgres_address)
    await connection.execute("update rota.facts set value = '999' where name = 'schema'")
    await connection.close()
    with pytest.raises(SchemaMismatch, match="999"):
        await PostgresDatabase(postgres_address, clock).open_read_only()
