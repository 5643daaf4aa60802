"""Opening: the schema is made once, a newer one is refused, and faults are told plainly."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from rota.errors import SchemaMismatch, Unavailable
from rota.runtime.clock import SystemClock
from rota.store.postgres.database import PostgresDatabase
from rota.store.postgres.transactions import place_of
from rota.store.views import list_spaces


async def test_processes_that_open_at_once_make_one_schema(bare_address):
    stores = [PostgresDatabase(bare_address, SystemClock()) for _ in range(4)]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        assert len({store.incarnation for store in stores}) == 1
        assert len(stores[0].incarnation) == 32
    finally:
        for store in stores:
            await store.close()


async def test_opening_again_changes_nothing(bare_address):
    store = PostgresDatabase(bare_address, SystemClock())
    await store.open()
    first = store.incarnation
    await store.close()
    await store.open()
    assert store.incarnation == first
    await store.close()


async def test_a_schema_from_a_newer_rota_is_refused(postgres_address, connection):
    await connection.execute("update rota.facts set value = '999' where name = 'schema'")
    with pytest.raises(SchemaMismatch, match="999"):
        await PostgresDatabase(postgres_address, SystemClock()).open()


async def test_rota_lives_in_its_own_schema(bare_address):
    connection = await asyncpg.connect(bare_address)
    await connection.execute("create table runs (mine text); create table tasks (mine text)")
    store = PostgresDatabase(bare_address, SystemClock())
    await store.open()
    await store.close()
    tables = await connection.fetch(
        "select tablename from pg_tables where schemaname = 'public' order by 1"
    )
    assert [row[0] for row in tables] == ["runs", "tasks"]
    await connection.close()


async def test_a_user_who_may_not_create_the_schema_is_told_what_to_do(bare_address):
    connection = await asyncpg.connect(bare_address)
    user = "weak_" + bare_address.partition("?")[0].rpartition("_")[2]
    await connection.execute(f"create role {user} login")
    try:
        weak = PostgresDatabase(bare_address.replace("//postgres:", f"//{user}:"), SystemClock())
        with pytest.raises(Unavailable, match="create schema rota authorization"):
            await weak.open()
        await connection.execute(f"create schema rota authorization {user}")
        await weak.open()
        await weak.close()
    finally:
        await connection.execute(f"drop owned by {user} cascade; drop role {user}")
        await connection.close()


async def test_a_database_that_is_not_there_is_named_with_what_to_do(postgres_server):
    store = PostgresDatabase(postgres_server.address("nowhere"), SystemClock())
    with pytest.raises(Unavailable, match=r"nowhere: the database does not exist: create it"):
        await store.open()


async def test_a_server_that_is_not_there_is_named_without_the_password():
    store = PostgresDatabase("postgresql://me:secret@127.0.0.1:1/mine", SystemClock())
    with pytest.raises(Unavailable, match=r"cannot reach the database 127.0.0.1:1/mine") as caught:
        await store.open()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("postgresql://me:secret@db.example:5433/roster", "db.example:5433/roster"),
        ("postgresql:///roster?host=/run/pg", "/run/pg/roster"),
        ("postgres://me@db/", "db/"),
    ],
)
def test_an_address_is_shown_without_user_and_password(address, place):
    assert place_of(address) == place


async def test_a_store_that_is_not_open_says_so(postgres_address):
    store = PostgresDatabase(postgres_address, SystemClock())
    with pytest.raises(Unavailable, match="not open"):
        store.now()
    with pytest.raises(Unavailable, match="not open"):
        await store.read(list_spaces)


async def test_a_connection_whose_first_question_fails_is_closed(postgres_address, monkeypatch):
    made = []

    async def too_late(connection):
        made.append(connection)
        await connection.execute("set statement_timeout = 1")
        await connection.execute("select pg_sleep(60)")

    store = PostgresDatabase(postgres_address, SystemClock())
    await store.open()
    monkeypatch.setattr("rota.store.postgres.database.read_incarnation", too_late)
    try:
        with pytest.raises(Unavailable):
            await store.take_roles()
        assert [connection.is_closed() for connection in made] == [True]
    finally:
        await store.close()
