"""Queueing inside a transaction of the program's own."""

from __future__ import annotations

import asyncio
import json

import asyncpg
import pytest

from rota.errors import Invalid, Unavailable
from rota.store.views import get_run


async def test_a_run_queued_within_a_transaction_exists_once_that_commits(bench, connection):
    task = await bench.task()
    async with connection.transaction():
        ((outcome,),) = await bench.store.enqueue_within(connection, [bench.batch(task, ["x"])])
        assert await bench.store.read(get_run, outcome.run_id) is None
        assert await bench.claim() == []
    assert await bench.claim_ids() == [outcome.run_id]


async def test_a_run_queued_within_a_transaction_vanishes_with_it(bench, connection):
    task = await bench.task()
    transaction = connection.transaction()
    await transaction.start()
    batches = [bench.batch(task, ["x"], ["key"]), bench.batch(task, ["y"] * 20)]
    outcomes = await bench.store.enqueue_within(connection, batches)
    await transaction.rollback()
    for outcome in outcomes[0] + outcomes[1]:
        assert await bench.store.read(get_run, outcome.run_id) is None
    assert await bench.claim() == []


async def test_the_commit_of_the_programs_transaction_wakes_workers(bench, connection):
    task = await bench.task()
    woken = asyncio.Event()
    await bench.store.take_roles()
    bench.store.subscribe(lambda topic: topic == "runs" and woken.set())
    async with connection.transaction():
        await bench.store.enqueue_within(connection, [bench.batch(task)])
        assert not woken.is_set()
    await woken.wait()


async def test_a_connection_from_a_pool_and_one_with_codecs_will_do(bench, postgres_address):
    async def prepare(connection):
        await connection.set_type_codec(
            "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
        )

    task = await bench.task()
    async with (
        asyncpg.create_pool(postgres_address, min_size=1, max_size=1, init=prepare) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        await bench.store.enqueue_within(connection, [bench.batch(task, ["x"], ["key"])])
    assert len(await bench.claim()) == 1


async def test_a_long_transaction_of_a_program_stops_nobody(bench, connection):
    task = await bench.task()
    async with connection.transaction():
        await bench.store.enqueue_within(connection, [bench.batch(task, ["mine"])])
        others = await bench.queue(task, 3)
        leases = await bench.claim()
        assert [lease.run_id for lease in leases] == others
        for lease in leases:
            assert await bench.end(lease)


async def test_a_connection_without_a_transaction_is_refused(bench, connection):
    task = await bench.task()
    with pytest.raises(Invalid, match="in no transaction"):
        await bench.store.enqueue_within(connection, [bench.batch(task)])


async def test_what_is_no_connection_is_refused(bench):
    task = await bench.task()
    with pytest.raises(Invalid, match="asyncpg connection"):
        await bench.store.enqueue_within(object(), [bench.batch(task)])


async def test_a_connection_to_a_database_without_rota_is_refused(bench, bare_address):
    task = await bench.task()
    stranger = await asyncpg.connect(bare_address)
    try:
        async with stranger.transaction():
            with pytest.raises(Unavailable, match="Rota's tables are missing"):
                await bench.store.enqueue_within(stranger, [bench.batch(task)])
    except asyncpg.InFailedSQLTransactionError:
        pass
    finally:
        await stranger.close()
