"""Attacks S7 and S9: bombs, and readers that do not end."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import apsw
import pytest

from rota.errors import Busy, Unavailable
from rota.store.sql_console import SECONDS, ConcurrencyGate, SqlQuery
from rota.store.sqlite import sql_console_process

STOPPED = {"sql_refused", "sql_failed", "sql_timeout"}
SLACK = 1.0
"""Seconds beyond the bound that a loaded machine may take to start a process or a connection."""


async def test_s07_a_bomb_is_cut_in_time_and_bounded_in_memory_and_disk(room, tmp_path):
    endless = (
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"
    )
    many = "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000)"
    cross = "s a CROSS JOIN s b CROSS JOIN s c CROSS JOIN events e"
    grow = "WITH RECURSIVE c(s) AS (SELECT 'x' UNION ALL SELECT {} FROM c) SELECT {} FROM c"
    wide = (
        "WITH RECURSIVE c(n, s) AS (SELECT 1, '' UNION SELECT n + 1, printf('%.*c', 100000, n)"
        " FROM c) SELECT * FROM c ORDER BY s DESC LIMIT 1"
    )
    heaviest = 0
    listed = {
        "both": [
            endless,
            f"{many} SELECT count(*) FROM {cross}",
            f"{many} SELECT a.n FROM {cross} ORDER BY e.data, b.n, c.n DESC LIMIT 1 OFFSET 99999999",
            f"{many} SELECT string_agg(e.data, ',') FROM {cross}",
        ],
        "sqlite": [
            grow.format("printf('%.*c', 900000, s)", "count(DISTINCT s)"),
            wide,
            "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT json_group_array(n) FROM c",
            "SELECT printf('%.*c', 2000000000, 'x')",
            "SELECT printf('%2000000000d', 1)",
            "SELECT hex(hex(hex(hex(hex(hex(printf('%.*c', 100000, 'x')))))))",
            "SELECT replace(printf('%.*c', 1000000, 'x'), 'x', printf('%.*c', 1000000, 'x'))",
            "SELECT " + "abs(" * 500 + "1" + ")" * 500,
            "SELECT " + " UNION ALL SELECT ".join(str(n) for n in range(600)),
            "SELECT " + ", ".join(str(n) for n in range(300)),
        ],
        "postgres": [
            "SELECT count(*) FROM generate_series(1, 1000000000000)",
            "SELECT generate_series(1, 1000000000000) ORDER BY 1 DESC LIMIT 1",
            f"{many} SELECT array_agg(e.id) FROM {cross}",
            "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b",
        ],
    }
    for sql in (*listed["both"], *listed[room.kind]):
        begun = time.monotonic()
        assert await room.verdict(sql, space="ann") in STOPPED, sql
        assert time.monotonic() - begun <= SECONDS + SLACK, sql
        if room.kind == "sqlite":
            heaviest = max([heaviest, *map(peak_kib, room.inquirer._idle)])
    if room.kind == "sqlite":
        assert 0 < heaviest < 64 * 1024, heaviest
        assert sql_console_process.MEMORY == 64 * 1024 * 1024
        assert sql_console_process.TEMPORARY * (sql_console_process.FILES - 6) <= 100 * 1024 * 1024


def peak_kib(process):
    """The most memory a process has ever had."""
    lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


async def test_s07_what_does_not_look_up_is_ended_by_its_timer(room):
    """A pattern that is tried in ever more ways, inside one call of one function."""
    bombs = {
        "sqlite": "SELECT printf('%.*c', 900000, 'a') LIKE '%_a_%a_%_a%_a_%a_%_a%_a_%a_%_a%_b'",
        "postgres": f"SELECT regexp_replace('{'a' * 9000}', '((a*)*)*b\\1', 'x')",
    }
    begun = time.monotonic()
    assert await room.verdict(bombs[room.kind]) in {*STOPPED, "answered"}
    assert time.monotonic() - begun <= SECONDS + SLACK
    assert await room.rows("select 1") == [(1,)]


async def test_s07_the_queue_goes_on_beside_bombs(room):
    bench = room.bench
    task = await bench.task("steady", space="ann")
    bomb = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"

    bombs = [asyncio.ensure_future(room.verdict(bomb, space=s)) for s in ("ann", "bob")]
    served = 0
    while not all(done.done() for done in bombs):
        await bench.queue(task)
        (lease,) = await bench.claim(1)
        assert await bench.end(lease)
        served += 1
    assert STOPPED.issuperset(await asyncio.gather(*bombs))
    assert served > 10


async def test_s09_a_reader_that_does_not_end_holds_nothing_back(sqlite_room):
    room = sqlite_room
    await room.fill()
    log = f"{room.store.database.path}-wal"
    slow = (
        "WITH RECURSIVE c(n) AS (SELECT id FROM events UNION ALL SELECT n + 1 FROM c)"
        " SELECT count(*) FROM c"
    )
    bench = room.bench
    task = await bench.task("busy", space="bob")
    asked = asyncio.ensure_future(room.verdict(slow, space="ann"))
    while not asked.done():
        await bench.enqueue(bench.batch(task, [{"x": "y" * 10_000}] * 20))
    assert await asked == "sql_timeout"
    keeper = apsw.Connection(room.store.database.path)
    try:
        keeper.set_busy_timeout(5_000)
        busy, _, _ = keeper.execute("pragma wal_checkpoint(truncate)").fetchall()[0]
        assert busy == 0
        assert os.path.getsize(log) == 0  # noqa: ASYNC240, PTH202 - it is only looked at
    finally:
        keeper.close()


async def test_s09_no_transaction_stays_open(postgres_room, postgres_address):
    import asyncpg

    room = postgres_room
    await room.fill()
    watch = await asyncpg.connect(postgres_address)
    try:
        left = (
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and application_name = 'rota-sql'"
        )
        endless = "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 100000) b"
        asked = asyncio.ensure_future(room.verdict(endless, space="ann"))
        while not asked.done() and await watch.fetchval(left) == 0:
            await asyncio.sleep(0.01)
        assert await asked == "sql_timeout"
        async with asyncio.timeout(5):
            while await watch.fetchval(left):
                await asyncio.sleep(0.05)
    finally:
        await watch.close()


async def test_at_most_two_are_answered_at_once_and_one_of_a_space(sqlite_room):
    room = sqlite_room
    await room.fill()
    room.inquirer._turns = ConcurrencyGate(patience=0.2)
    bomb = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) FROM c"
    first = asyncio.ensure_future(room.verdict(bomb, space="ann"))
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await room.ask("select 1", space="ann")
    assert await room.rows("select 1", space="bob") == [(1,)]
    second = asyncio.ensure_future(room.verdict(bomb, space="bob"))
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await room.ask("select 1")
    assert await asyncio.gather(first, second) == ["sql_timeout"] * 2
    assert await room.rows("select 1", space="ann") == [(1,)]
    assert room.inquirer._turns._of == {}


async def test_a_role_that_may_do_more_is_refused(postgres_room, postgres_address):
    from rota.store.postgres.sql_console import PostgresSqlConsole

    await postgres_room.fill()
    mighty = PostgresSqlConsole(postgres_address, postgres_address)
    with pytest.raises(Unavailable, match="may do too much"):
        await mighty.ask(SqlQuery(sql="select 1"))


async def test_views_of_another_version_are_refused(postgres_room, postgres_address):
    import asyncpg

    connection = await asyncpg.connect(postgres_address)
    await connection.execute("comment on schema rota_sql is 'older'")
    await connection.close()
    with pytest.raises(Unavailable, match="rota sql role"):
        await postgres_room.ask("select 1")
