"""Procrastinate on psycopg and uvloop, 30 at a time, jobs kept: the fastest of what was tried."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import procrastinate
import uvloop

from bench.kit import Tally, serve

COUNT = "select count(*) from procrastinate_jobs where status <> 'succeeded'"


def drain(address: str, n: int) -> dict[str, Any]:
    return uvloop.run(_drain(address, n))


async def _drain(address: str, n: int) -> dict[str, Any]:
    connector = procrastinate.PsycopgConnector(conninfo=address, min_size=4, max_size=20)
    app, tally = procrastinate.App(connector=connector), Tally()

    @app.task(name="noop")
    async def noop(number: int) -> None:  # noqa: ARG001
        tally.hit()

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for begin in range(0, n, 500):
            await noop.batch_defer_async(
                *({"number": i} for i in range(begin, min(n, begin + 500)))
            )
        running = asyncio.ensure_future(
            app.run_worker_async(concurrency=30, install_signal_handlers=False)
        )
        while tally.count < n or (await connector.execute_query_one_async(COUNT))["count"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        seconds = time.monotonic() - tally.first
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return {"rate": n / seconds}


if __name__ == "__main__":
    serve(drain)
