"""Huey on SQLite with its defaults (synchronous FULL), one thread, no results: its fastest durable way."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from huey import SqliteHuey

from bench.kit import Marks, Tally, percentile, serve

POLL = 0.01


def _huey(address: str) -> SqliteHuey:
    path = address.removeprefix("sqlite:///")
    return SqliteHuey("bench", filename=path, results=False, cache_mb=64)


def _consumer(huey: SqliteHuey) -> Any:
    return huey.create_consumer(
        workers=1,
        worker_type="thread",
        initial_delay=POLL,
        max_delay=POLL,
        backoff=1,
        periodic=False,
    )


def drain(address: str, n: int) -> dict[str, Any]:
    huey, tally = _huey(address), Tally()

    @huey.task(name="noop")
    def noop(number: int) -> None:  # noqa: ARG001
        tally.hit()

    rows = [("bench", sqlite3.Binary(huey.serialize_task(noop.s(i))), 0) for i in range(n)]
    with sqlite3.connect(address.removeprefix("sqlite:///")) as connection:
        connection.executemany("insert into task (queue, data, priority) values (?, ?, ?)", rows)
    consumer = _consumer(huey)
    consumer.start()
    while tally.count < n or huey.pending_count():
        time.sleep(0.02)
    seconds = time.monotonic() - tally.first
    consumer.stop(graceful=True)
    return {"rate": n / seconds}


def worker(address: str, marks: str) -> None:
    huey, board = _huey(address), Marks(marks)
    huey.task(name="noop")(board.mark)
    _consumer(huey).run()


def pickup_other(address: str, marks: str, count: int, gap: float) -> dict[str, Any]:
    huey, board = _huey(address), Marks(marks)
    noop = huey.task(name="noop")(board.mark)
    noop(0)
    board.wait(0, 30)
    time.sleep(1)
    returned = []
    for number in range(1, count + 1):
        time.sleep(gap)
        noop(number)
        returned.append(time.monotonic_ns())
    waits = [(board.wait(n + 1, 30) - at) / 1e6 for n, at in enumerate(returned)]
    return {"p50": percentile(waits, 50), "p99": percentile(waits, 99)}


if __name__ == "__main__":
    serve(drain, worker, pickup_other)
