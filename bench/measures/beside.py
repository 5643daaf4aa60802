"""Slots beside 100 agents: later than alone, and later than beside as many strangers?"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from statistics import fmean
from typing import Any, TypeAlias

from bench.kit import HOME, percentile, value
from bench.measures.api import Daemon, _rota, daemon
from bench.measures.base import Bench
from bench.measures.kept import (
    MANY,
    TALKERS,
    TALKING,
    USUAL,
    _ask,
    _cancel,
    _create,
    _queue,
    _seconds,
    _until_running,
)
from bench.table import Row

TICKING = 50
MOST_LATER = 1.2
TURNS = 6
"""Of alone, beside strangers and beside agents: a machine's pace drifts, and every turn has some of each."""
TIDIED = 30.0
"""Seconds after agents were ended until slots count again: what they leave is taken away."""
BEGUN = 10.0
"""Seconds until two hundred interpreters have started, and a little more."""
PROGRAM = ["python3", "-S", "-c", TALKING, str(USUAL)]
STAND_IN = ["python3", "-I", "-S", "-c", "import os, time; os.fork(); time.sleep(3600)"]
"""As many processes as a keeper and what it has forked, but they do nothing."""

Late: TypeAlias = tuple[float, float]
"""How late a slot was planned and how late its work began, in milliseconds."""


def measure(bench: Bench) -> Iterator[Row]:
    for store, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if store in bench.stores:
            with daemon(bench.fresh(store, "ours"), **MANY) as on:
                yield from _slots(on, bench, name)


def _slots(on: Daemon, bench: Bench, name: str) -> Iterator[Row]:
    _create(on, "agent", PROGRAM)
    for number in range(TICKING):
        when = ("--call", "bench.sides.work:when", "--every", "1s")
        _rota(on, "task", "create", f"tick{number}", *when)
    seconds = bench.size(20, 5)
    takes = [_turn(on, seconds) for _ in range(bench.size(TURNS, 1))]
    alone, strangers, agents = ([late for turn in takes for late in turn[n]] for n in range(3))
    for stage, word in ((0, "planned"), (1, "begun")):
        before, among, after = ([late[stage] for late in s] for s in (alone, strangers, agents))
        mean = fmean(after) / fmean(before)
        yield Row(
            measure=f"{word}: mean lateness of {TICKING} slots a second beside {TALKERS} agents, {name}",
            rota=value([fmean(after)], "ms"),
            ratio=f"{mean:.2f} of alone; {_shares(after, before, (50, 95, 99))}; {len(after):,} slots each",
            target=f"<= {MOST_LATER} of alone", met=mean <= MOST_LATER,
        )  # fmt: skip
        last, control = percentile(after, 99), percentile(among, 99)
        yield Row(
            measure=f"{word}: lateness p99 of the same, {name}", rota=value([last], "ms"),
            ratio=f"{last / control:.2f} of beside strangers, {_shares(among, before, (99,))} of alone",
            target=f"<= {MOST_LATER} of strangers", met=last <= MOST_LATER * control,
        )  # fmt: skip


def _shares(these: list[float], those: list[float], percents: tuple[int, ...]) -> str:
    """Return how late some are in terms of others, at some percentiles."""
    found = ((p, percentile(these, p), percentile(those, p)) for p in percents)
    return ", ".join(f"p{p} {one:.1f} ms ({one / other:.2f})" for p, one, other in found)


def _turn(on: Daemon, seconds: int) -> tuple[list[Late], list[Late], list[Late]]:
    """Return how late slots came alone, beside strangers, and beside agents.

    The strangers are the programs of the agents and as many processes as keep one, without Rota
    having to do with any: what a machine does to everybody on it because they are there is in
    both. The slots of all turns are judged together: of those of one the hundredth part are a few.
    """
    time.sleep(TIDIED)
    alone = _lateness(on, seconds)
    with _strangers():
        time.sleep(BEGUN)
        strangers = _lateness(on, seconds)
    agents = [_queue(on, "agent") for _ in range(TALKERS)]
    _until_running(on, agents)
    beside = _lateness(on, seconds)
    _cancel(on, agents)
    return alone, strangers, beside


@contextmanager
def _strangers() -> Iterator[None]:
    started: list[subprocess.Popen[bytes]] = []
    try:
        with (HOME / "strangers.out").open("wb") as said:
            for _ in range(TALKERS):
                for command in (["nice", "-n", "5", *PROGRAM], STAND_IN):
                    process = subprocess.Popen(command, stdout=said, start_new_session=True)
                    started.append(process)
        yield
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
        for process in started:
            process.wait()


def _lateness(on: Daemon, seconds: int) -> list[Late]:
    """Watch for some seconds, and return how late the slots of them were."""
    time.sleep(seconds)
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
