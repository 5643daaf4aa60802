"""Mailboxes of a real daemon: how soon commands are answered, and how soon beside a hostile program."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

from bench.kit import percentile, value
from bench.measures.api import Daemon, daemon
from bench.measures.base import Bench
from bench.measures.kept import MANY, _ask, _cancel, _create, _queue, _until_running
from bench.table import Row

MAILBOXES = 200
A_SECOND = 100
"""Commands in all, spread over the mailboxes; each is written down with its own commit."""
MOST_P50_MS, MOST_P99_MS, MOST_BESIDE_MS = 20.0, 100.0, 150.0
HOSTILE = """
import os, sys, time
out = os.environ["ROTA_MAILBOX"] + "/out/"
bomb = b'{"a":[' + b",".join([b"9" * 4200] * 240) + b"]}"
def put(name, data):
    with open(out + name + ".tmp", "wb") as file:
        file.write(data)
    os.rename(out + name + ".tmp", out + name + ".json")
if sys.argv[1] == "flood":
    for n in range(10_000):
        put("f%d" % n, b"rubbish")
for n in range(90):
    put("b%d" % n, bomb)
time.sleep(600)
"""


def measure(bench: Bench) -> Iterator[Row]:
    for store, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if store not in bench.stores:
            continue
        with daemon(bench.fresh(store, "ours"), **MANY) as on:
            yield from _on(on, bench, name)


def _on(on: Daemon, bench: Bench, name: str) -> Iterator[Row]:
    count = bench.size(MAILBOXES, 20)
    _create(on, "quiet", ["sleep", "600"])
    for how in ("flood", "bombs"):
        _create(on, how, ["python3", "-S", "-c", HOSTILE, how])
    runs = [_queue(on, "quiet") for _ in range(count)]
    _until_running(on, runs)
    boxes = [_box(on, run) for run in runs]
    seconds = bench.size(20, 5)
    _latencies(boxes, 2)
    alone = _latencies(boxes, seconds)
    hostile = [_queue(on, "bombs"), _queue(on, "flood")]
    beside = _latencies(boxes, bench.size(10, 5))
    end = _ask(on, "GET", f"/v1/runs/{hostile[1]}")["state"]
    _cancel(on, hostile[:1])
    _cancel(on, runs)
    p50, p99 = (value([percentile(alone, percent)], "ms") for percent in (50, 99))
    yield Row(
        measure=f"command file to reply, p50, {count} mailboxes, {name}", rota=p50,
        ratio=f"{len(alone)} commands, each a commit", target=f"<= {MOST_P50_MS:.0f} ms",
        met=p50.median <= MOST_P50_MS,
    )  # fmt: skip
    yield Row(
        measure=f"command file to reply, p99, {count} mailboxes, {name}", rota=p99,
        ratio=f"at most {max(alone):.0f} ms", target=f"<= {MOST_P99_MS:.0f} ms",
        met=p99.median <= MOST_P99_MS,
    )  # fmt: skip
    late = value([percentile(beside, 99)], "ms")
    yield Row(
        measure=f"command file to reply, p99, beside hostile programs, {name}", rota=late,
        ratio=f"10,000 files (run {end}), and bombs; p50 {percentile(beside, 50):.1f} ms",
        target=f"<= {MOST_BESIDE_MS:.0f} ms", met=late.median <= MOST_BESIDE_MS and end == "failed",
    )  # fmt: skip


def _box(on: Daemon, run: int) -> Path:
    tries = (on.home / "keepers" / "mailboxes" / f"{run}-1").iterdir()
    return max(tries, key=lambda box: box.stat().st_mtime_ns)  # an earlier bench may have left one


def _latencies(boxes: list[Path], seconds: int) -> list[float]:
    """Put commands into mailboxes at a pace, as their programs would; return milliseconds."""
    found: list[float] = []
    waiting: dict[Path, float] = {}
    began, sent = time.monotonic(), 0
    while sent < seconds * A_SECOND or waiting:
        now = time.monotonic()
        if sent < seconds * A_SECOND and now >= began + sent / A_SECOND:
            reply = _put(boxes[sent % len(boxes)], f"r{time.monotonic_ns()}")
            waiting[reply] = time.monotonic()
            sent += 1
        for reply, since in list(waiting.items()):
            if reply.exists():
                found.append((time.monotonic() - since) * 1e3)
                del waiting[reply]
                if json.loads(reply.read_text())["ok"] is not True:
                    raise RuntimeError(reply.read_text())
            elif now - since > 30.0:
                raise RuntimeError(f"no reply {reply}")
        time.sleep(0.0005)
    return found


def _put(box: Path, name: str) -> Path:
    asked = {"request_id": name, "type": "set_state", "task": "quiet", "key": "k", "value": name}
    aside = box / "out" / f"{name}.tmp"
    aside.write_text(json.dumps(asked))
    aside.rename(box / "out" / f"{name}.json")
    return box / "in" / "replies" / f"{name}.json"
