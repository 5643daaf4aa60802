"""Compare two checkouts of Rota: python bench/compare.py OLD NEW [--short] [--only drain,claim].

Both are measured in one run, one after the other, and each take swaps their order; so what else the
machine does hits both alike. Each checkout runs its own bench/sides/ours.py with its own .venv (make
setup): the work is the same, in the words of its own store. A ratio is the median of the ratios of
all takes, new by old.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # so that bench/profile.py does not stand in for the standard library's

from bench.kit import HOME, Marks, busy_percent, call, rss_mb, start, stop  # noqa: E402
from bench.server import Server  # noqa: E402

STORES = ("sqlite", "postgres")
MIN_RATE, MAX_P99, MAX_MEMORY = 0.95, 1.15, 1.01
"""What the new checkout must reach of the old one, by the medians over all measures of a kind."""
TAKES = 5
SETTLE_SECONDS = 5.0
GAP = 0.05


@dataclass
class Run:
    """One comparison: the sizes, the databases and the server."""

    server: Server | None
    short: bool

    def size(self, full: int, short: int) -> int:
        return short if self.short else full

    def fresh(self, store: str, name: str) -> str:
        """Return the address of an empty database."""
        if store == "postgres":
            assert self.server is not None
            return self.server.fresh(f"compare_{name}")
        path = HOME / "sqlite" / f"compare-{name}.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()
        return f"sqlite:///{path}"


@dataclass(frozen=True)
class Side:
    """One of the two checkouts."""

    name: str
    tree: Path

    @property
    def commit(self) -> str:
        words = ["git", "-C", str(self.tree), "rev-parse", "--short", "HEAD"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    def does(self, verb: str, **options: Any) -> dict[str, Any]:
        return call("ours", verb, tree=self.tree, within=1800, **options)


Take = Callable[[], dict[str, Any]]


def drain(run: Run, store: str, side: Side) -> Take:
    n = run.size(100_000, 2_000)
    return lambda: side.does("drain", address=run.fresh(store, side.name), n=n)


def bulk(run: Run, store: str, side: Side) -> Take:
    n = run.size(100_000, 20_000)
    return lambda: side.does("bulk", address=run.fresh(store, side.name), n=n, batch=1_000)


def enqueue(run: Run, store: str, side: Side) -> Take:
    n = run.size(64_000, 1_280)
    return lambda: side.does("single", address=run.fresh(store, side.name), n=n, callers=64)


def pickup(run: Run, store: str, side: Side) -> Take:
    """A worker in one process, an enqueuer in another."""
    count = run.size(400, 20)

    def take() -> dict[str, Any]:
        address, marks = run.fresh(store, side.name), str(HOME / "compare.marks")
        Marks(marks, count + 1)
        worker = start("ours", "worker", tree=side.tree, address=address, marks=marks)
        try:
            return side.does("pickup_other", address=address, marks=marks, count=count, gap=GAP)
        finally:
            stop(worker)

    return take


def lateness(run: Run, store: str, side: Side) -> Take:
    sizes = {"schedules": run.size(100_000, 2_000), "due": run.size(1_000, 100)}
    return lambda: side.does("lateness", address=run.fresh(store, side.name), **sizes)


def claim(run: Run, store: str, side: Side) -> Take:
    """All takes claim from one database, which is filled once."""
    address = run.fresh(store, f"{side.name}_claims")
    spaces, queued = run.size(10_000, 100), run.size(1_000_000, 5_000)
    side.does("prepare_claims", address=address, spaces=spaces, queued=queued)
    samples = run.size(600, 50)
    return lambda: side.does("claims", address=address, samples=samples)


def memory(run: Run, store: str, side: Side) -> Take:
    """What an idle daemon holds, with uvloop."""
    seconds = SETTLE_SECONDS / 5 if run.short else SETTLE_SECONDS

    def take() -> dict[str, Any]:
        check_uvloop(side)
        home = HOME / f"compare-home-{side.name}"
        shutil.rmtree(home, ignore_errors=True)
        environment = {name: v for name, v in os.environ.items() if not name.startswith("ROTA_")}
        environment |= {"ROTA_HOME": str(home), "ROTA_STORE": run.fresh(store, side.name)}
        if store == "sqlite":
            del environment["ROTA_STORE"]
        with (HOME / "logs" / "up.log").open("a") as log:
            process = subprocess.Popen(
                [str(side.tree / ".venv" / "bin" / "rota"), "up", "--port", "0"],
                env=environment, cwd=side.tree, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        try:
            assert process.stdout is not None
            if not any("stop" in line for line in process.stdout):
                raise RuntimeError("the daemon ended at once: see .bench/logs/up.log")
            time.sleep(seconds)
            return {"rss_mb": rss_mb(process.pid)}
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)

    return take


def check_uvloop(side: Side) -> None:
    python = str(side.tree / ".venv" / "bin" / "python")
    if subprocess.run([python, "-c", "import uvloop"], check=False, capture_output=True).returncode:
        raise RuntimeError(f"{side.tree} has no uvloop: make setup")


@dataclass(frozen=True)
class Figure:
    """One figure of a take; more is better for a rate, less for all others."""

    key: str
    kind: str
    unit: str


RATE = Figure("rate", "throughput", "/s")
MEASURES: dict[str, tuple[Callable[[Run, str, Side], Take], tuple[Figure, ...]]] = {
    "drain": (drain, (RATE,)),
    "bulk": (bulk, (RATE,)),
    "enqueue": (enqueue, (RATE, Figure("p99_ms", "p99", "ms"))),
    "pickup": (pickup, (Figure("p50", "p50", "ms"), Figure("p99", "p99", "ms"))),
    "lateness": (lateness, (Figure("p50", "p50", "ms"), Figure("p99", "p99", "ms"))),
    "claim": (claim, (Figure("claim_p99", "p99", "ms"), Figure("both_p99", "p99", "ms"))),
    "memory": (memory, (Figure("rss_mb", "memory", "MB"),)),
}
LABELS = {"claim_p99": "claim(5) p99", "both_p99": "claim(5) + settle(5) p99"}


@dataclass(frozen=True)
class Row:
    """One figure of one measure on one store, from both checkouts."""

    measure: str
    store: str
    figure: Figure
    old: tuple[float, ...]
    new: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return statistics.median(n / o for o, n in zip(self.old, self.new, strict=True))

    def cells(self) -> tuple[str, ...]:
        key, unit = self.figure.key, self.figure.unit
        ratios = sorted(n / o for o, n in zip(self.old, self.new, strict=True))
        name = LABELS.get(key, f"{self.measure} {self.figure.kind}")
        old, new = statistics.median(self.old), statistics.median(self.new)
        spread = f"{ratios[0]:.2f}..{ratios[-1]:.2f}"
        return (
            f"{name}, {self.store}",
            f"{shown(old)} {unit}",
            f"{shown(new)} {unit}",
            f"{self.ratio:.2f}",
            spread,
        )


def shown(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2f}"


def compared(run: Run, name: str, store: str, sides: tuple[Side, Side], takes: int) -> list[Row]:
    """Measure both checkouts in turn; the one that was second is first in the next take."""
    make, figures = MEASURES[name]
    ready = {side.name: make(run, store, side) for side in sides}
    found: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    order = list(sides)
    for _ in range(takes):
        for side in order:
            os.sync()
            found[side.name].append(ready[side.name]())
        order.reverse()
    return [
        Row(name, store, figure, *(tuple(t[figure.key] for t in found[s.name]) for s in sides))
        for figure in figures
    ]


def table(rows: list[Row]) -> Iterator[str]:
    head = ("measure", "old", "new", "new/old", "lowest..highest")
    cells = [head, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    for line in cells:
        yield "  ".join(
            cell.ljust(width) for cell, width in zip(line, widths, strict=True)
        ).rstrip()


def verdicts(rows: list[Row]) -> Iterator[tuple[str, bool]]:
    """Yield a sentence for each kind of figure, and whether the new checkout is good enough."""
    bounds = {"throughput": MIN_RATE, "p99": MAX_P99, "memory": MAX_MEMORY}
    for kind, bound in bounds.items():
        ratios = [row.ratio for row in rows if row.figure.kind == kind]
        if ratios:
            middle = statistics.median(ratios)
            met = middle >= bound if kind == "throughput" else middle <= bound
            word = ">=" if kind == "throughput" else "<="
            yield f"median {kind} ratio {middle:.3f}, wanted {word} {bound}", met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path, help="the checkout to compare with, with a .venv")
    parser.add_argument("new", type=Path, help="the checkout that is compared, with a .venv")
    parser.add_argument("--only", default=",".join(MEASURES), help=f"some of {','.join(MEASURES)}")
    parser.add_argument("--stores", default=",".join(STORES), help="sqlite, postgres or both")
    parser.add_argument("--takes", type=int, default=TAKES)
    parser.add_argument("--short", action="store_true", help="tiny sizes: does it work")
    asked = parser.parse_args()
    names, stores = asked.only.split(","), asked.stores.split(",")
    for given, known in ((names, MEASURES), (stores, STORES)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"{', '.join(unknown)}: choose from {', '.join(known)}")
    sides = (Side("old", asked.old.resolve()), Side("new", asked.new.resolve()))
    (HOME / "logs").mkdir(parents=True, exist_ok=True)
    for side in sides:
        print(f"{side.name}: {side.commit} in {side.tree}")
    server = Server() if "postgres" in stores else None
    rows: list[Row] = []
    try:
        for name in names:
            for store in stores:
                busy, began = busy_percent(), time.monotonic()
                rows += compared(Run(server, asked.short), name, store, sides, asked.takes)
                took = time.monotonic() - began
                print(f"{name}, {store}: {took:.0f} s, others kept {busy:.0f} % busy before")
    finally:
        if server is not None:
            server.close()
        record = [{**row.__dict__, "figure": row.figure.key, "ratio": row.ratio} for row in rows]
        (HOME / "compare.json").write_text(json.dumps(record, indent=1))
    print("", *table(rows), "", sep="\n")
    judged = [*verdicts(rows)]
    for sentence, met in judged:
        print(f"{'ok' if met else 'NOT MET'}  {sentence}")
    return 0 if all(met for _, met in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
