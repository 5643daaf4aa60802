"""What every side and measure shares; only the standard library, because peers import it too."""

from __future__ import annotations

import json
import mmap
import os
import signal
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench"
PEERS = HOME / "peers"
SLOT = struct.Struct("<q")


@dataclass(frozen=True)
class Value:
    """The median of several takes, and how far they lay apart."""

    median: float
    low: float
    high: float
    unit: str = "/s"

    def __str__(self) -> str:
        digits = (
            0
            if self.unit == "/s" or abs(self.median) >= 1000
            else 2
            if abs(self.median) < 10
            else 1
        )
        middle, low, high = (f"{x:,.{digits}f}" for x in (self.median, self.low, self.high))
        unit = "" if self.unit == "/s" else f" {self.unit}"
        return f"{middle}{unit} ({low}..{high})"

    def record(self) -> dict[str, Any]:
        return asdict(self)


def value(takes: Sequence[float], unit: str = "/s") -> Value:
    return Value(statistics.median(takes), min(takes), max(takes), unit)


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]


class Tally:
    """What the no-op handlers do: count, and note when the first one began."""

    def __init__(self) -> None:
        self.count = 0
        self.first = 0.0

    def hit(self) -> None:
        if not self.count:
            self.first = time.monotonic()
        self.count += 1


class Marks:
    """Instants by number in a file that several processes share; CLOCK_MONOTONIC is one for all."""

    def __init__(self, path: str | Path, size: int = 0) -> None:
        if size:
            Path(path).write_bytes(bytes(size * SLOT.size))
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def mark(self, number: int) -> None:
        SLOT.pack_into(self._map, number * SLOT.size, time.monotonic_ns())

    def at(self, number: int) -> int:
        return SLOT.unpack_from(self._map, number * SLOT.size)[0]

    def wait(self, number: int, seconds: float) -> int:
        until = time.monotonic() + seconds
        while not self.at(number):
            if time.monotonic() > until:
                raise TimeoutError(f"nothing picked up number {number} within {seconds} s")
            time.sleep(0.02)
        return self.at(number)


def python_of(side: str, tree: Path) -> str:
    if side not in {"ours", "raw", "load"}:
        return str(PEERS / "bin" / "python")
    return sys.executable if tree == ROOT else str(tree / ".venv" / "bin" / "python")


def start(side: str, verb: str, *, tree: Path = ROOT, **options: Any) -> subprocess.Popen[str]:
    """Start a side's verb in a process group of its own; its answer is the last line it prints.

    A `tree` is another checkout, whose own side is started by its own Python.
    """
    (HOME / "logs").mkdir(parents=True, exist_ok=True)
    with (HOME / "logs" / f"{side}.log").open("a") as log:
        return subprocess.Popen(
            [python_of(side, tree), "-m", f"bench.sides.{side}", verb, json.dumps(options)],
            cwd=tree,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )


def stop(process: subprocess.Popen[str]) -> None:
    """End a process that `start` made, and only that."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def call(side: str, verb: str, *, within: float = 600, **options: Any) -> dict[str, Any]:
    """Run a side's verb and return what it measured."""
    process = start(side, verb, **options)
    try:
        printed, _ = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{side} {verb}: no answer within {within:.0f} s") from None
    finally:
        stop(process)
    if process.returncode:
        tail = (HOME / "logs" / f"{side}.log").read_text().strip().splitlines()[-1:]
        raise RuntimeError(f"{side} {verb}: {' '.join(tail)}")
    return json.loads(printed.strip().splitlines()[-1])


def serve(*verbs: Callable[..., dict[str, Any] | None]) -> None:
    """The main of a side: do the verb that was asked for."""
    known = {verb.__name__: verb for verb in verbs}
    answer = known[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps(answer), flush=True)


def rss_mb(pid: int | str = "self") -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no VmRSS")


def busy_percent(seconds: float = 0.5) -> float:
    """How busy all cores are while we do nothing: other people's load."""

    def look() -> tuple[int, int]:
        fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    total, idle = look()
    time.sleep(seconds)
    total_after, idle_after = look()
    return 100 * (1 - (idle_after - idle) / max(1, total_after - total))
