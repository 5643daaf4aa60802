"""From the return of enqueue to the start of the handler, with an idle worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.kit import HOME, Marks, call, start, stop
from bench.measures.base import Bench, of
from bench.table import Row

TARGETS = {"sqlite": (1.0, 3.0), "postgres": (1.5, 4.0)}
GAP = 0.05


def measure(bench: Bench) -> Iterator[Row]:
    count = bench.size(200, 60)
    if "sqlite" in bench.stores:
        takes = bench.takes(
            rota=bench.on("sqlite", "ours", "pickup_same", count=count, gap=GAP),
            other=_between(bench, "sqlite", "ours", count),
            huey=_between(bench, "sqlite", "huey_side", count),
        )
        yield from _rows(
            "SQLite, same process", takes["rota"], takes["huey"], "Huey", TARGETS["sqlite"]
        )
        yield from _rows("SQLite, other process", takes["other"], takes["huey"], "Huey", None)
    if "postgres" in bench.stores:
        takes = bench.takes(
            rota=_between(bench, "postgres", "ours", count),
            pgqueuer=_between(bench, "postgres", "pgqueuer_side", count),
        )
        yield from _rows(
            "PostgreSQL, other process",
            takes["rota"],
            takes["pgqueuer"],
            "PgQueuer",
            TARGETS["postgres"],
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
    peer_name: str,
    targets: tuple[float, float] | None,
) -> Iterator[Row]:
    for index, key in enumerate(("p50", "p99")):
        rota, peer = of(ours, key, "ms"), of(theirs, key, "ms")
        limit = None if targets is None else targets[index]
        yield Row(
            measure=f"pick-up {key}, {name}", rota=rota, peer=peer, peer_name=peer_name,
            ratio=f"{rota.median / peer.median:.2f} of peer", target="" if limit is None else f"<= {limit} ms",
            met=None if limit is None else rota.median <= limit, note="-",
        )  # fmt: skip
