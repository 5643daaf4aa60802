"""What a keeper costs by itself: its start, its memory, a flood of output, and how soon one hears."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.kit import percentile, value
from bench.measures.base import Bench
from bench.table import Row
from rota.executors.process.executor import START
from rota.keeper.client import read_spool
from rota.keeper.linux import descendants
from rota.model.programs import ResourceLimits
from rota.ports.executor import ProcessTreeMode
from rota.testing.program_bench import ProgramRun
from tests.tools.keepers.attempts import Attempts

MIB = 1 << 20
MOST_START_MS = 25.0
MOST_MIB = 8.0
MOST_TAIL_MS = 20.0
MOST_GROWTH_MIB = 8.0
BOUNDED = (sys.executable, "-I", "-S", START, "--limit", "NOFILE", "1024", "--")
"""What the executor `process` puts before a program that has bounds."""
TALKING = """
import os, time
for n in range(60):
    time.sleep(0.25)
    os.write(1, b"%d\\n" % time.monotonic_ns())
time.sleep(60)
"""


def measure(bench: Bench) -> Iterator[Row]:
    for tree, name in ((ProcessTreeMode.PIDNS, "PID namespace"), (ProcessTreeMode.GUARD, "guard")):
        ways = (
            ("start to the program's main", ()),
            ("the same with a bound on open files", BOUNDED),
        )
        for what, behind in ways:
            mains = _starts(tree, bench.size(200, 60), behind)
            middle = value([percentile(mains, 50)], "ms")
            yield Row(
                measure=f"keeper: {what}, p50, {name}", rota=middle,
                ratio=f"p99 {percentile(mains, 99):.1f} ms of {len(mains)}",
                target=f"<= {MOST_START_MS:.0f} ms", met=middle.median <= MOST_START_MS,
            )  # fmt: skip
        size = value([_memory(tree, 50)], "MiB")
        yield Row(
            measure=f"keeper: memory (PSS) an attempt, 50 at once, {name}", rota=size,
            target=f"<= {MOST_MIB:.0f} MiB", met=size.median <= MOST_MIB,
        )  # fmt: skip
    size = bench.size(10 << 30, 1 << 30)
    rate, most = _flood(size)
    grown = value([most], "MiB")
    yield Row(
        measure=f"keeper: a flood of {size >> 30} GiB, memory at most", rota=grown,
        ratio=f"{rate:.1f} GiB a second", target=f"<= {2 * MOST_GROWTH_MIB:.0f} MiB",
        met=most <= 2 * MOST_GROWTH_MIB,
    )  # fmt: skip
    late = _tail(100)
    tail = value([percentile(late, 99)], "ms")
    yield Row(
        measure="keeper: written to read from the spool, p99, 100 keepers", rota=tail,
        ratio=f"p50 {percentile(late, 50):.2f} ms of {len(late)} lines",
        target=f"<= {MOST_TAIL_MS:.0f} ms", met=tail.median <= MOST_TAIL_MS,
    )  # fmt: skip
    if left := descendants(os.getpid()):
        raise RuntimeError(f"{len(left)} processes survived")


def _starts(tree: ProcessTreeMode, count: int, behind: Sequence[str] = ()) -> list[float]:
    found = []
    with Attempts(tree) as attempts:
        for _ in range(count):
            before = time.time_ns()
            attempt = attempts.start([*behind, "/usr/bin/date", "+%s%N"])
            attempt.ending()
            found.append((int(attempt.out()) - before) / 1e6)
    return found


def _memory(tree: ProcessTreeMode, count: int) -> float:
    with Attempts(tree) as attempts:
        made = [attempts.start(["sleep", "60"]) for _ in range(count)]
        pids = [pid for attempt in made for pid in attempt.pids()[:2]]
        size = sum(_pss_mib(pid) for pid in pids) / count
        _end(made)
    return size


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _flood(size: int) -> tuple[float, float]:
    """Return GiB a second, and the most memory the keeper had."""
    with Attempts(ProcessTreeMode.AUTO) as attempts:
        began, most = time.monotonic(), 0.0
        command = ["head", "-c", str(size), "/dev/zero"]
        attempt = attempts.start(command, bounds=ResourceLimits(output_bytes=64 * MIB))
        keeper = attempt.pids()[0]
        while not (attempt.folder / "exit").exists():
            try:
                most = max(most, _pss_mib(keeper))
            except OSError:
                break
            time.sleep(0.05)
        if attempt.ending(600.0).out.total != size:
            raise RuntimeError("a part of the flood is missing")
        return size / (time.monotonic() - began) / (1 << 30), most


def _tail(count: int, lines: int = 40) -> list[float]:
    """Return how many milliseconds after it was written each line was read."""
    with Attempts(ProcessTreeMode.AUTO) as attempts:
        made: dict[str, list] = {}
        for _ in range(count):
            attempt = attempts.start(attempts.python(TALKING))
            made[attempt.identity.name] = [attempt, 0]
        late, poll, deadline = [], select.poll(), time.monotonic() + 25
        poll.register(attempts.wake, select.POLLIN)
        for attempt, _ in made.values():
            attempt.pids()
        for _ in range(20):  # what was written while everybody started says nothing
            poll.poll(50)
            attempts.wake.read_names()
        for each in made.values():
            each[1] = (each[0].folder / "out").stat().st_size
        while len(late) < count * lines and time.monotonic() < deadline:
            poll.poll(1000)
            for name in attempts.wake.read_names():
                attempt, offset = made[name]
                data = read_spool(attempt.folder, "out", offset, 1 << 16)
                now = time.monotonic_ns()
                late += [(now - int(line)) / 1e6 for line in data.split()]
                made[name][1] = offset + len(data)
        _end([attempt for attempt, _ in made.values()])
    return late


def _end(made: list[ProgramRun]) -> None:
    for attempt in made:
        attempt.cancel(0.0)
    for attempt in made:
        attempt.ending()
