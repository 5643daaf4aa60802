"""How much clients that follow every event slow the work of the daemon they follow."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from bench.kit import call
from bench.measures.api import Daemon, _rota, daemon
from bench.measures.base import Bench, of
from bench.table import Row

CLIENTS = 200
MOST_SLOWED = 10.0
LOOK_EVERY = 0.05


def measure(bench: Bench) -> Iterator[Row]:
    n = bench.size(60_000, 20_000)
    for store, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if store not in bench.stores:
            continue
        with daemon(bench.fresh(store, "ours")) as on:
            _rota(on, "task", "create", "busy", "--call", "bench.sides.work:noop")
            asyncio.run(_drain(on, n // 4, 0))  # the first time pays for what is loaded late
            takes = bench.takes(
                alone=lambda: asyncio.run(_drain(on, n, 0)),
                followed=lambda: asyncio.run(_drain(on, n, CLIENTS)),
            )
        alone, followed = of(takes["alone"], "rate"), of(takes["followed"], "rate")
        slowed = 100 * (1 - followed.median / alone.median)
        spent = [of(takes[side], "cpu_us", "us").median for side in ("alone", "followed")]
        yield Row(
            measure=f"drain, followed by {CLIENTS} clients, {name}", rota=followed,
            ratio=f"alone {alone.median:,.0f}/s; slowed {slowed:.0f} %; processor time a run "
            f"{spent[0]:,.0f} us alone, {spent[1]:,.0f} us followed",
            target=f"slowed <= {MOST_SLOWED:.0f} %", met=slowed <= MOST_SLOWED,
        )  # fmt: skip


def _ask(on: Daemon, method: str, path: str) -> Any:
    headers = {"Authorization": f"Bearer {on.key}", "Content-Type": "application/json"}
    data = b"{}" if method == "POST" else None
    with urlopen(Request(on.url + path, data, headers, method=method)) as answer:
        return json.load(answer)


async def _drain(on: Daemon, n: int, clients: int) -> dict[str, Any]:
    """Queue runs while everything is paused, and time them from the resume to the last end."""
    _ask(on, "POST", "/v1/pause-all")
    call("ours", "queue", address=on.environment["ROTA_STORE"], task="busy", n=n)
    read = [0]
    followers = [await _follow(on, read) for _ in range(clients)]
    busy = _cpu_seconds(on.pid)
    began = time.perf_counter()
    _ask(on, "POST", "/v1/resume-all")
    await asyncio.to_thread(_until_done, on)
    took = time.perf_counter() - began
    busy = _cpu_seconds(on.pid) - busy
    for follower in followers:
        follower.cancel()
    await asyncio.gather(*followers, return_exceptions=True)
    return {"rate": n / took, "bytes": read[0], "cpu_us": busy / n * 1_000_000}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _until_done(on: Daemon) -> None:
    while True:
        queue = _ask(on, "GET", "/v1/status")["queue"]
        if not queue["ready"] + queue["running"] + queue["held"]:
            return
        time.sleep(LOOK_EVERY)


async def _follow(on: Daemon, read: list[int]) -> asyncio.Task[None]:
    place = urlsplit(on.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    lines = ["GET /v1/events HTTP/1.1", f"Host: {place.netloc}", f"Authorization: Bearer {on.key}"]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    await reader.readuntil(b"\r\n\r\n")

    async def swallow() -> None:
        try:
            while chunk := await reader.read(1 << 18):
                read[0] += len(chunk)
        finally:
            writer.close()

    return asyncio.create_task(swallow())
