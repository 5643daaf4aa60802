"""How fast many runs are queued at once: batches of 1,000, and one of 100,000."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measures.base import Bench, of
from bench.table import Row, times


def measure(bench: Bench) -> Iterator[Row]:
    n = bench.size(100_000, 20_000)
    for batch in (1_000, n):
        sides = {"pgqueuer": bench.on("postgres", "pgqueuer_side", "bulk", n=n, batch=batch)}
        for store in bench.stores:
            sides[f"rota_{store}"] = bench.on(store, "ours", "bulk", n=n, batch=batch)
            sides[f"raw_{store}"] = bench.on(store, "raw", f"bulk_{store}", n=n, batch=batch)
        takes = bench.takes(**sides)
        peer = of(takes["pgqueuer"], "rate")
        for store, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
            if store not in bench.stores:
                continue
            rota, raw = of(takes[f"rota_{store}"], "rate"), of(takes[f"raw_{store}"], "rate")
            ratio = times(rota, peer)
            yield Row(
                measure=f"bulk enqueue by {batch:,}, {name}", rota=rota, peer=peer, peer_name="PgQueuer",
                raw=raw, ratio=f"{ratio:.1f}x peer, {times(rota, raw):.2f} raw", target=">= 1x", met=ratio >= 1,
            )  # fmt: skip
