"""From the return of enqueue to the start of the handler, with an idle worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.kit import HOME, Marks, call, start, stop
from bench.measures.base import Bench, of
from bench.table import Row

MOST = {"sqlite": ((1.0, 0.53), (3.0, 0.73)), "postgres": ((1.5, 0.79), (4.0, 0.98))}
"""The most milliseconds at p50 and p99; or, on a slower machine, the same parts of what PgQueuer
needs there: it needed 1.9 and 4.1 ms where the figures were set. Huey looks at the clock and not at
the queue, and is no measure."""

GAP = 0.05


def measure(bench: Bench) -> Iterator[Row]:
    count = bench.size(200, 60)
    sides = {"pgqueuer": _between(bench, "postgres", "pgqueuer_side", count)}
    if "sqlite" in bench.stores:
        sides |= {
            "same": bench.on("sqlite", "ours", "pickup_same", count=count, gap=GAP),
            "other": _between(bench, "sqlite", "ours", count),
            "huey": _between(bench, "sqlite", "huey_side", count),
        }
    if "postgres" in bench.stores:
        sides["postgres"] = _between(bench, "postgres", "ours", count)
    takes = bench.takes(**sides)
    peer = takes["pgqueuer"]
    if "sqlite" in bench.stores:
        yield from _rows("SQLite, same process", takes["same"], peer, most=MOST["sqlite"])
        yield from _rows("SQLite, other process", takes["other"], takes["huey"], "Huey")
    if "postgres" in bench.stores:
        yield from _rows(
            "PostgreSQL, other process", takes["postgres"], peer, most=MOST["postgres"]
        )


def _between(bench: Bench, store: str, side: str, count: int) -> Callable[[], dict[str, Any]]:
    """A worker in one process, an enqueuer in another."""

    def take() -> dict[str, Any]:
        address, marks = bench.fresh(store, side), str(HOME / "marks")
        if side == "pgqueuer_side":
            call(side, "install", address=address)
        Marks(marks, count + 1)
        worker = start(side, "worker", address=address, marks=marks)
        try:
            return call(side, "pickup_other", address=address, marks=marks, count=count, gap=GAP)
        finally:
            stop(worker)

    return take


def _rows(
    name: str,
    ours: list[dict[str, Any]],
    theirs: list[dict[str, Any]],
    peer_name: str = "PgQueuer",
    most: tuple[tuple[float, float], tuple[float, float]] | None = None,
) -> Iterator[Row]:
    for index, key in enumerate(("p50", "p99")):
        rota, peer = of(ours, key, "ms"), of(theirs, key, "ms")
        ratio, target, met = rota.median / peer.median, "", None
        if most is not None:
            limit, part = most[index]
            target = f"<= {limit:g} ms, or {part} of peer"
            met = rota.median <= limit or ratio <= part
        yield Row(
            measure=f"pick-up {key}, {name}", rota=rota, peer=peer, peer_name=peer_name,
            ratio=f"{ratio:.2f} of peer", target=target, met=met, note="-",
        )  # fmt: skip
