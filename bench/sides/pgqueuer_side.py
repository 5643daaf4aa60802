"""PgQueuer on asyncpg and uvloop, batches of 500: the fastest of the settings that were tried."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from bench.kit import Marks, Tally, percentile, serve

BATCH = 500
HISTORY = {
    "finished": "insert into pgqueuer_log (job_id, status, priority, entrypoint, aggregated)"
    " select n, 'successful', 0, 'noop', true from generate_series(-{count}, -1) n",
    "future": "insert into pgqueuer (priority, status, entrypoint, payload, execute_after)"
    " select 0, 'queued', 'noop', '\\x30', now() + interval '1 day' from generate_series(1, {count})",
}
PENDING = "select count(*) from pgqueuer where execute_after <= now() + interval '1 hour'"


async def _enqueue(queries: Queries, n: int, batch: int) -> None:
    for begin in range(0, n, batch):
        payloads: list[bytes | None] = [b"%d" % i for i in range(begin, begin + batch)]
        await queries.enqueue(["noop"] * batch, payloads, [0] * batch)


async def _installed(address: str) -> tuple[asyncpg.Connection, Queries]:
    connection = await asyncpg.connect(address)
    queries = Queries(AsyncpgDriver(connection))
    if await connection.fetchval("select to_regclass('pgqueuer')") is None:
        await queries.install()
    return connection, queries


def drain(address: str, n: int) -> dict[str, Any]:
    return uvloop.run(_drain(address, n))


async def _drain(address: str, n: int) -> dict[str, Any]:
    side, queries = await _installed(address)
    await _enqueue(queries, n, 1000)
    await side.execute("vacuum analyze")
    await side.execute("checkpoint")
    tally = Tally()
    queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(address))

    @queue.entrypoint("noop")
    async def noop(job: Any) -> None:  # noqa: ARG001
        tally.hit()

    running = asyncio.ensure_future(
        queue.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=30))
    )
    while tally.count < n or await side.fetchval(PENDING):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    seconds = time.monotonic() - tally.first
    queue.shutdown.set()
    running.cancel()
    return {"rate": n / seconds}


def history(address: str, what: str, count: int) -> dict[str, Any]:
    return asyncio.run(_history(address, what, count))


async def _history(address: str, what: str, count: int) -> dict[str, Any]:
    connection, _ = await _installed(address)
    await connection.execute(HISTORY[what].format(count=count))
    return {}


def bulk(address: str, n: int, batch: int) -> dict[str, Any]:
    return uvloop.run(_bulk(address, n, batch))


async def _bulk(address: str, n: int, batch: int) -> dict[str, Any]:
    _, queries = await _installed(address)
    await queries.enqueue("noop", b"0", 0)
    began = time.perf_counter()
    await _enqueue(queries, n, batch)
    return {"rate": n / (time.perf_counter() - began)}


def single(address: str, n: int) -> dict[str, Any]:
    return uvloop.run(_single(address, n))


async def _single(address: str, n: int) -> dict[str, Any]:
    _, queries = await _installed(address)
    began = time.perf_counter()
    for number in range(n):
        await queries.enqueue("noop", b"%d" % number, 0)
    return {"rate": n / (time.perf_counter() - began)}


def worker(address: str, marks: str) -> None:
    uvloop.run(_worker(address, marks))


async def _worker(address: str, marks: str) -> None:
    board = Marks(marks)
    queue = PgQueuer.from_asyncpg_connection(await asyncpg.connect(address))

    @queue.entrypoint("noop")
    async def noop(job: Any) -> None:
        board.mark(int(job.payload))

    await queue.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=30))


def install(address: str) -> dict[str, Any]:
    asyncio.run(_installed(address))
    return {}


def pickup_other(address: str, marks: str, count: int, gap: float) -> dict[str, Any]:
    return uvloop.run(_pickup_other(address, marks, count, gap))


async def _pickup_other(address: str, marks: str, count: int, gap: float) -> dict[str, Any]:
    board = Marks(marks)
    _, queries = await _installed(address)
    await queries.enqueue("noop", b"0", 0)
    await asyncio.to_thread(board.wait, 0, 30)
    await asyncio.sleep(1)
    returned = []
    for number in range(1, count + 1):
        await asyncio.sleep(gap)
        await queries.enqueue("noop", b"%d" % number, 0)
        returned.append(time.monotonic_ns())
    waits = [
        (await asyncio.to_thread(board.wait, n + 1, 30) - at) / 1e6 for n, at in enumerate(returned)
    ]
    return {"p50": percentile(waits, 50), "p99": percentile(waits, 99)}


if __name__ == "__main__":
    serve(drain, history, bulk, single, worker, install, pickup_other)
