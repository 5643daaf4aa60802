"""On PostgreSQL ids are given out before the commit; readers see neither gap nor repetition."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from rota.store.events import list_events_after
from rota.store.postgres.database import PostgresDatabase

RECORD = "insert into rota.events (at, name, data) values (0, 'task.created', '{}') returning id"


@pytest.fixture
def store(postgres_address, clock, runner):
    made = PostgresDatabase(postgres_address, clock, own_clock=True)
    runner.run(made.open())
    yield made
    runner.run(made.close())


@pytest.fixture
def connections(postgres_address, runner):
    made = [runner.run(asyncpg.connect(postgres_address)) for _ in range(2)]
    yield made
    for connection in made:
        runner.run(connection.close())


async def read(store, after, *, hidden=False):
    """Read once the server's other writers keep nothing back, or at once if ours is to."""
    while True:
        page = await store.read(list_events_after, after, 100)
        if page.hidden == hidden:
            return [event.id for _, event in page.events], page
        await asyncio.sleep(0)


async def test_a_later_id_that_commits_first_waits_for_the_earlier_one(store, connections):
    early, late = connections
    slow = early.transaction()
    await slow.start()
    first = await early.fetchval(RECORD)
    second = await late.fetchval(RECORD)
    assert first < second
    seen, page = await read(store, None, hidden=True)
    assert seen == []
    await slow.commit()
    seen, page = await read(store, page.position)
    assert seen == [first, second]
    assert (await read(store, page.position))[0] == []


async def test_an_earlier_id_of_a_later_transaction_comes_after(store, connections):
    early, late = connections
    slow = early.transaction()
    await slow.start()
    await early.fetchval("select pg_current_xact_id()")
    second = late.transaction()
    await second.start()
    in_second = await late.fetchval(RECORD)
    in_slow = await early.fetchval(RECORD)
    assert in_second < in_slow
    await slow.commit()
    seen, page = await read(store, None)
    assert seen == [in_slow]
    await second.commit()
    assert (await read(store, page.position))[0] == [in_second]


async def test_what_is_taken_back_hides_nothing(store, connections):
    early, late = connections
    slow = early.transaction()
    await slow.start()
    await early.fetchval(RECORD)
    kept = await late.fetchval(RECORD)
    await slow.rollback()
    assert (await read(store, None))[0] == [kept]


async def test_reading_on_goes_by_the_index(store, connections):
    plan = await connections[0].fetch(
        "explain select * from rota.events where (xact, id) > ('5'::xid8, 5) "
        "and xact < pg_snapshot_xmin(pg_current_snapshot()) order by xact, id limit 10"
    )
    assert "events_order" in "\n".join(row[0] for row in plan)
