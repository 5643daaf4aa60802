"""1,000 of 100,000 schedules due at one instant: how late their handlers begin."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measures.base import Bench, of
from bench.table import Row

LATEST = {"sqlite": 0.27, "postgres": 0.55}
"""100 and 200 ms where APScheduler needs 366 ms: parts of what it needs here."""


def measure(bench: Bench) -> Iterator[Row]:
    sizes = {"schedules": bench.size(100_000, 20_000), "due": 1_000}
    sides = {store: bench.on(store, "ours", "lateness", **sizes) for store in bench.stores}
    sides["apscheduler"] = bench.on("sqlite", "apscheduler_side", "lateness", **sizes)
    sides["celery"] = bench.on("sqlite", "celery_side", "lateness", schedules=1_000, due=1_000)
    takes = bench.takes(**sides)
    peer, beat = of(takes["apscheduler"], "p99", "ms"), of(takes["celery"], "p99", "ms")
    for store, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if store in bench.stores:
            rota, middle = of(takes[store], "p99", "ms"), of(takes[store], "p50", "ms")
            yield Row(
                measure=f"lateness p99, 1,000 due of {sizes['schedules']:,}, {name}", rota=rota, peer=peer,
                peer_name="APScheduler", ratio=f"{rota.median / peer.median:.2f} of peer (p50 {middle.median:.0f} ms)",
                target=f"<= {LATEST[store]} of peer", met=rota.median <= LATEST[store] * peer.median,
            )  # fmt: skip
    yield Row(
        measure="lateness p99 at the broker, 1,000 due of 1,000",
        peer=beat,
        peer_name="Celery beat",
        note="-",
    )
