"""The HTTP API of a real daemon under load, idle and beside its own work; and the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.kit import HOME, ROOT, Value, call, rss_mb, stop, value
from bench.measures.base import Bench, of
from bench.table import Row

CONNECTIONS = 50
LEAST_IDLE = 1_500
LEAST_BUSY = 600
MOST_LIST_MS = 20.0
MOST_CLI_MS = 200.0
MOST_MB = 120.0
TASKS = 100
ROTA = str(Path(sys.executable).parent / "rota")
LATER = json.dumps({"task": "later", "at": "2100-01-01", "payload": {"n": 1}})


class Daemon(NamedTuple):
    url: str
    key: str
    pid: int
    home: Path
    environment: dict[str, str]


def measure(bench: Bench) -> Iterator[Row]:
    n = bench.size(6_000, 2_000)
    for store, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if store not in bench.stores:
            continue
        with daemon(bench.fresh(store, "ours")) as on:
            _fill(on)
            idle = _takes(bench, on, "POST", "/v1/runs", n, LATER)
            lists = _takes(bench, on, "GET", f"/v1/tasks?limit={TASKS}", n)
            cli = value([_cli_ms(on) for _ in range(5)], "ms")
            size = value([rss_mb(on.pid)], "MB")
            _make_busy(on, bench.size(400_000, 100_000))
            busy = _takes(bench, on, "POST", "/v1/runs", n // 4, LATER)
        yield _rate(f"POST /v1/runs, idle, {name}", idle, LEAST_IDLE)
        yield _rate(f"POST /v1/runs, beside a busy worker, {name}", busy, LEAST_BUSY)
        waits = of(lists, "p99_ms", "ms")
        yield Row(
            measure=f"GET /v1/tasks, {TASKS} rows, {CONNECTIONS} connections, p99, {name}",
            rota=waits, ratio=f"{of(lists, 'rate').median:,.0f} a second",
            target=f"<= {MOST_LIST_MS:.0f} ms", met=waits.median <= MOST_LIST_MS,
        )  # fmt: skip
        yield Row(
            measure=f"rota task list, {TASKS} tasks, {name}", rota=cli, ratio="a process of its own",
            target=f"<= {MOST_CLI_MS:.0f} ms", met=cli.median <= MOST_CLI_MS,
        )  # fmt: skip
        yield Row(
            measure=f"memory of a daemon whose API was used, {name}", rota=size,
            target=f"<= {MOST_MB:.0f} MB", met=size.median <= MOST_MB,
        )  # fmt: skip


def _rate(measure: str, takes: list[dict[str, Any]], least: int) -> Row:
    rate: Value = of(takes, "rate")
    waits = of(takes, "p99_ms", "ms").median
    return Row(
        measure=measure, rota=rate, ratio=f"{CONNECTIONS} connections, p99 {waits:.1f} ms",
        target=f">= {least:,}", met=rate.median >= least,
    )  # fmt: skip


def _takes(
    bench: Bench, on: Daemon, method: str, path: str, n: int, body: str = ""
) -> list[dict[str, Any]]:
    options = {"method": method, "path": path, "n": n, "connections": CONNECTIONS, "body": body}
    return [call("load", "ask", url=on.url, key=on.key, **options) for _ in range(bench.repeats)]


@contextmanager
def daemon(address: str, **settings: str) -> Iterator[Daemon]:
    home = HOME / "api"
    home.mkdir(exist_ok=True)
    place = home / "api.json"
    place.unlink(missing_ok=True)
    more = {"ROTA_HOME": str(home), "ROTA_STORE": address, "ROTA_LOG_LEVEL": "warning"}
    environment = {**os.environ, **more, **settings, "PYTHONPATH": str(ROOT)}
    with (HOME / "logs" / "api.log").open("a") as log:
        process = subprocess.Popen(
            [ROTA, "up", "--port", "0"], env=environment, cwd=ROOT, stdout=log, stderr=log,
            start_new_session=True, text=True,
        )  # fmt: skip
    try:
        until = time.monotonic() + 20
        while not place.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the daemon did not come up: see .bench/logs/api.log")
            time.sleep(0.05)
        url = json.loads(place.read_text())["url"]
        yield Daemon(url, (home / "admin.key").read_text().strip(), process.pid, home, environment)
    finally:
        process.send_signal(signal.SIGTERM)
        stop(process)


def _rota(on: Daemon, *words: str) -> None:
    subprocess.run([ROTA, *words], env=on.environment, check=True, capture_output=True, cwd=ROOT)


def _fill(on: Daemon) -> None:
    _rota(on, "task", "create", "later", "--call", "bench.sides.work:noop")
    for n in range(TASKS):
        body = {
            "name": f"t{n}",
            "instructions": f"do {n}",
            "schedule": {"cron": f"{n % 60} 7 * * *"},
        }
        options = {"method": "POST", "path": "/v1/tasks", "n": 1, "connections": 1}
        call("load", "ask", url=on.url, key=on.key, body=json.dumps(body), **options)


def _make_busy(on: Daemon, runs: int) -> None:
    _rota(on, "task", "create", "busy", "--call", "bench.sides.work:noop")
    call("ours", "queue", address=on.environment["ROTA_STORE"], task="busy", n=runs)


def _cli_ms(on: Daemon) -> float:
    """Ask the daemon, which is found by its home: a store that is named is asked itself."""
    environment = {name: word for name, word in on.environment.items() if name != "ROTA_STORE"}
    began = time.perf_counter()
    command = [ROTA, "task", "list"]
    subprocess.run(command, env=environment, check=True, capture_output=True, cwd=ROOT)
    return (time.perf_counter() - began) * 1_000
