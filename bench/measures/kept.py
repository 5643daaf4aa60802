"""Scripts and agents in a real daemon: how many, and how soon one sees what they say."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.request import Request, urlopen

from bench.kit import call, percentile, value
from bench.measures.api import Daemon, daemon
from bench.measures.base import Bench
from bench.table import Row

MANY = {f"ROTA_LIMIT_{scope}BACKGROUND": "1000" for scope in ("", "SPACE_")}
TALKERS = 100
MOST_EVENT_MS = 20.0
AGENTS_BESIDE = 20
SCRIPTS_A_MINUTE = 600
SETTLED = 3.0
"""Seconds after agents were begun until slots count."""
TALKING = """
import os, sys, time
while True:
    time.sleep(float(sys.argv[1]))
    os.write(1, b"%d\\n" % time.time_ns())
"""
CHATTY, USUAL = 0.5, 5.0
"""Every how many seconds a program says something: one that is heard, and an agent at work."""


def measure(bench: Bench) -> Iterator[Row]:
    for store, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if store not in bench.stores:
            continue
        with daemon(bench.fresh(store, "ours"), **MANY) as on:
            yield _scripts(on, bench, name)
            yield _heard(on, bench, name)


def _scripts(on: Daemon, bench: Bench, name: str) -> Row:
    """Keep a pace of short scripts beside agents that live."""
    for task, every in (("chatty", CHATTY), ("agent", USUAL)):
        _create(on, task, ["python3", "-S", "-c", TALKING, str(every)])
    _create(on, "short", ["true"])
    agents = [_queue(on, "agent") for _ in range(AGENTS_BESIDE)]
    count = bench.size(SCRIPTS_A_MINUTE, SCRIPTS_A_MINUTE // 6)
    gap, began, runs = 60 / SCRIPTS_A_MINUTE, time.monotonic(), []
    for number in range(count):
        time.sleep(max(0.0, began + number * gap - time.monotonic()))
        runs.append(_queue(on, "short"))
    took = _until_done(on, runs) - began
    waits = [_seconds(_ask(on, "GET", f"/v1/runs/{run}")) for run in runs]
    _cancel(on, agents)
    pace = value([count / took * 60], "a minute")
    return Row(
        measure=f"short scripts a minute beside {AGENTS_BESIDE} agents, {name}", rota=pace,
        ratio=f"queued to ended p50 {percentile(waits, 50) * 1e3:.0f} ms, p99 {percentile(waits, 99) * 1e3:.0f} ms",
        target=f"{SCRIPTS_A_MINUTE} sustained", met=took <= count * gap + 2.0,
    )  # fmt: skip


def _heard(on: Daemon, bench: Bench, name: str) -> Row:
    """Start many programs that talk, and see how soon their words arrive."""
    chatty = [_queue(on, "chatty") for _ in range(TALKERS)]
    _until_running(on, chatty)
    heard = call("follow", "follow", url=on.url, key=on.key, seconds=bench.size(30, 10))
    _cancel(on, chatty)
    event = value([heard["recorded_p99"]], "ms")
    return Row(
        measure=f"written to event, p99, {TALKERS} keepers, {name}", rota=event,
        ratio=f"p50 {heard['recorded_p50']:.1f} ms; at a client p50 {heard['arrived_p50']:.1f} ms, p99 {heard['arrived_p99']:.1f} ms",
        target=f"<= {MOST_EVENT_MS:.0f} ms", met=event.median <= MOST_EVENT_MS,
    )  # fmt: skip


def _ask(on: Daemon, method: str, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {on.key}", "Content-Type": "application/json"}
    data = None if method == "GET" else json.dumps(body or {}).encode()
    with urlopen(Request(on.url + path, data, headers, method=method)) as answer:
        return json.load(answer)


def _create(on: Daemon, name: str, command: list[str]) -> None:
    _ask(on, "POST", "/v1/tasks", {"name": name, "command": command, "policy": {"timeout": "1h"}})


def _queue(on: Daemon, task: str) -> int:
    return _ask(on, "POST", "/v1/runs", {"task": task})["run"]


def _state(on: Daemon, run: int) -> str:
    return _ask(on, "GET", f"/v1/runs/{run}")["state"]


def _until_done(on: Daemon, runs: list[int]) -> float:
    """Wait until the last has ended; all must have succeeded."""
    while _state(on, runs[-1]) in {"queued", "running"}:
        time.sleep(0.02)
    states = {_state(on, run) for run in runs}
    while states & {"queued", "running"}:
        time.sleep(0.02)
        states = {_state(on, run) for run in runs}
    if states != {"succeeded"}:
        raise RuntimeError(f"scripts ended as {states}")
    return time.monotonic()


def _until_running(on: Daemon, runs: list[int]) -> None:
    for run in runs:
        while _state(on, run) == "queued":
            time.sleep(0.05)
    time.sleep(SETTLED)


def _cancel(on: Daemon, runs: list[int]) -> None:
    for run in runs:
        _ask(on, "POST", f"/v1/runs/{run}/cancel")
    for run in runs:
        while _state(on, run) == "running":
            time.sleep(0.05)


def _seconds(run: dict[str, Any], since: str = "created_at", until: str = "finished_at") -> float:
    begun, ended = (datetime.fromisoformat(run[name]) for name in (since, until))
    return (ended - begun).total_seconds()
