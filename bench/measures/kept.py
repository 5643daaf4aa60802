"""Scripts and agents in a real daemon: how soon one sees them, how many, and beside what."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from statistics import fmean
from typing import Any
from urllib.request import Request, urlopen

from bench.kit import call, percentile, value
from bench.measures.api import Daemon, _rota, daemon
from bench.measures.base import Bench
from bench.table import Row

MANY = {f"ROTA_LIMIT_{scope}BACKGROUND": "1000" for scope in ("", "SPACE_")}
TALKERS = 100
MOST_EVENT_MS = 20.0
AGENTS_BESIDE = 20
SCRIPTS_A_MINUTE = 600
TICKING = 50
MOST_LATER = 1.2
TURNS = 6
"""Of alone and beside: a machine's pace drifts, and every turn has some of each."""
SETTLED = 3.0
"""Seconds after agents were begun until slots count."""
TIDIED = 30.0
"""Seconds after agents were ended until slots count again: what they leave is taken away."""
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
            yield from _agents(on, bench, name)


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


def _agents(on: Daemon, bench: Bench, name: str) -> Iterator[Row]:
    """Start many agents; see how soon their words arrive, and whether slots come later for them."""
    for number in range(TICKING):
        _rota(
            on,
            "task",
            "create",
            f"tick{number}",
            "--call",
            "bench.sides.work:when",
            "--every",
            "1s",
        )
    seconds = bench.size(20, 5)
    takes = [_alone_and_beside(on, seconds) for _ in range(bench.size(TURNS, 1))]
    chatty = [_queue(on, "chatty") for _ in range(TALKERS)]
    _until_running(on, chatty)
    heard = call("follow", "follow", url=on.url, key=on.key, seconds=bench.size(30, 10))
    _cancel(on, chatty)
    event = value([heard["recorded_p99"]], "ms")
    yield Row(
        measure=f"written to event, p99, {TALKERS} keepers, {name}", rota=event,
        ratio=f"p50 {heard['recorded_p50']:.1f} ms; at a client p50 {heard['arrived_p50']:.1f} ms, p99 {heard['arrived_p99']:.1f} ms",
        target=f"<= {MOST_EVENT_MS:.0f} ms", met=event.median <= MOST_EVENT_MS,
    )  # fmt: skip
    alone, beside = ([slot for take in takes for slot in take[n]] for n in (0, 1))
    for stage, word in ((0, "planned"), (1, "begun")):
        before, after = (percentile([slot[stage] for slot in s], 99) for s in (alone, beside))
        usual = ", ".join(f"p{p} {_at(p, alone, stage, beside)}" for p in (50, 95))
        mean = fmean(late[stage] for late in beside) / fmean(late[stage] for late in alone)
        yield Row(
            measure=f"{word}: lateness p99 of {TICKING} slots a second beside {TALKERS} agents, {name}",
            rota=value([after], "ms"),
            ratio=f"{after / before:.2f} of alone ({before:.1f} ms), mean {mean:.2f}, {usual}, {len(beside):,} slots each",
            target=f"<= {MOST_LATER} of alone", met=after <= MOST_LATER * before,
        )  # fmt: skip


Late = tuple[float, float]


def _at(share: int, alone: list[Late], stage: int, beside: list[Late]) -> str:
    """Return how late that share of the slots was at most beside agents, and in terms of alone."""
    first, second = (percentile([slot[stage] for slot in s], share) for s in (alone, beside))
    return f"{second:.1f} ms ({second / first:.2f})"


def _alone_and_beside(on: Daemon, seconds: int) -> tuple[list[Late], list[Late]]:
    """Return how late slots came without agents and then with them.

    The slots of all turns are judged together: of those of one the hundredth part are a few.
    """
    time.sleep(TIDIED + seconds)
    alone = _lateness(on, seconds)
    agents = [_queue(on, "agent") for _ in range(TALKERS)]
    _until_running(on, agents)
    time.sleep(seconds)
    beside = _lateness(on, seconds)
    _cancel(on, agents)
    return alone, beside


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


def _lateness(on: Daemon, seconds: int) -> list[Late]:
    """Return how late the newest slots were planned and begun, in milliseconds."""
    found: list[Late] = []
    page: dict[str, Any] = {"next": ""}
    while len(found) < TICKING * seconds and page["next"] is not None:
        before = f"&before={page['next']}" if page["next"] else ""
        page = _ask(on, "GET", f"/v1/runs?limit=500{before}")
        ended = [run for run in page["runs"] if run["slot_at"] and run["state"] == "succeeded"]
        found += [(_seconds(run, "slot_at", "created_at") * 1e3, _begun(run)) for run in ended]
    return found[: TICKING * seconds]


def _begun(run: dict[str, Any]) -> float:
    """Return how late the work of a slot began, as it says itself."""
    return (run["result"] - datetime.fromisoformat(run["slot_at"]).timestamp()) * 1e3
