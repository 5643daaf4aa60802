"""Programs under a daemon: how soon their output is seen, and how soon they are gone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.kit import value
from bench.measures.api import ROTA, Daemon, _rota, daemon
from bench.measures.base import Bench, of
from bench.measures.sse import _ask
from bench.table import Row

MOST_LIVE_MS = 100.0
GRACE = 0.5
MOST_STOP = 1.0
LINES = 200
UNHEARD = 20
"""Lines that are written while the client starts."""
TALK = """
import sys, time
time.sleep(1.0)
for n in range(int(sys.argv[1])):
    time.sleep(0.02)
    print(time.monotonic_ns(), flush=True)
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(60)
        os._exit(0)
print("begun", flush=True)
time.sleep(60)
"""


def measure(bench: Bench) -> Iterator[Row]:
    for store, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if store not in bench.stores:
            continue
        with daemon(bench.fresh(store, "ours")) as on:
            work = on.home / "spaces" / "main" / "work"
            work.mkdir(parents=True, exist_ok=True)
            (work / "talk.py").write_text(TALK)
            (work / "stubborn.py").write_text(STUBBORN)
            lines = str(bench.size(LINES, LINES // 2))
            _rota(on, "task", "create", "talk", "--command", f"python3 talk.py {lines}")
            token = f"token-{os.getpid()}-{time.monotonic_ns()}"
            words = ["--command", f"python3 stubborn.py {token}", "--grace", f"{GRACE}s"]
            _rota(on, "task", "create", "stubborn", *words)
            live = [late for _ in range(bench.repeats) for late in _live(on)]
            stops = [_stop(on, token) for _ in range(bench.repeats * 3)]
        live.sort()
        p99 = value([live[int(len(live) * 0.99)]], "ms")
        yield Row(
            measure=f"written to shown by `rota logs -f`, p99, {name}", rota=p99,
            ratio=f"median {live[len(live) // 2]:.1f} ms, {len(live)} lines",
            target=f"<= {MOST_LIVE_MS:.0f} ms", met=p99.median <= MOST_LIVE_MS,
        )  # fmt: skip
        over = of(stops, "over", "ms")
        yield Row(
            measure=f"cancel to verified dead, beyond a grace of {GRACE} s, {name}", rota=over,
            ratio=f"7 processes that ignore SIGTERM, {len(stops)} times",
            target=f"<= {MOST_STOP * 1000:.0f} ms",
            met=max(stop["over"] for stop in stops) <= MOST_STOP * 1000,
        )  # fmt: skip


def _queued(on: Daemon, task: str) -> int:
    return int(_ask(on, "POST", f"/v1/tasks/{task}/run-now")["run"])


def _live(on: Daemon) -> list[float]:
    words = [ROTA, "logs", str(_queued(on, "talk")), "-f"]
    beside = {"ROTA_STORE"}  # with a database of its own to look at, a client asks no daemon
    around = {name: value for name, value in on.environment.items() if name not in beside}
    late = []
    with subprocess.Popen(words, env=around, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        for line in client.stdout:
            now = time.monotonic_ns()
            if line.strip().isdigit():
                late.append((now - int(line)) / 1e6)
    return late[UNHEARD:-1]  # the last line is the result, told again


def _stop(on: Daemon, token: str) -> dict[str, Any]:
    number = _queued(on, "stubborn")
    while not _ask(on, "GET", f"/v1/runs/{number}")["logs"]:
        time.sleep(0.02)
    began = time.monotonic()
    _ask(on, "POST", f"/v1/runs/{number}/cancel")
    while (run := _ask(on, "GET", f"/v1/runs/{number}"))["state"] == "running":
        time.sleep(0.005)
    took = time.monotonic() - began
    ending = run["attempts"][-1]["ending"]
    if run["state"] != "cancelled" or not ending["proven"] or _living(token):
        raise RuntimeError(f"run {number} is {run['state']}, {ending}, {_living(token)} alive")
    return {"over": (took - GRACE) * 1000}


def _living(token: str) -> int:
    found = 0
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit():
                found += token.encode() in (folder / "cmdline").read_bytes().split(b"\0")
    return found
