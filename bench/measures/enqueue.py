"""Durable enqueue one by one: a lone caller beside the bare database, and 64 callers at once."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measures.base import Bench, of
from bench.table import Row, times

LEAST = {"sqlite": 0.35, "postgres": 0.5}
LEAST_TOGETHER = {"sqlite": 4.9, "postgres": 11.8}
"""40,000 a second where the bare database does 8,200 and 3,400: times what it does here."""


def measure(bench: Bench) -> Iterator[Row]:
    n = bench.size(6_000, 1_500)
    for store, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if store not in bench.stores:
            continue
        sides = {
            "rota": bench.on(store, "ours", "single", n=n, callers=1),
            "raw": bench.on(store, "raw", f"single_{store}", n=n),
            "many": bench.on(store, "ours", "single", n=bench.size(128_000, 32_000), callers=64),
        }
        if store == "postgres":
            sides["pgqueuer"] = bench.on(store, "pgqueuer_side", "single", n=n // 2)
        takes = bench.takes(**sides)
        rota, raw, many = (of(takes[side], "rate") for side in ("rota", "raw", "many"))
        ratio = times(rota, raw)
        yield Row(
            measure=f"enqueue, 1 caller, {name}", rota=rota, raw=raw, ratio=f"{ratio:.2f} of raw",
            peer=of(takes["pgqueuer"], "rate") if "pgqueuer" in takes else None, peer_name="PgQueuer",
            target=f">= {LEAST[store]} of raw", met=ratio >= LEAST[store],
        )  # fmt: skip
        waits, together = of(takes["many"], "p99_ms", "ms"), times(many, raw)
        yield Row(
            measure=f"enqueue, 64 callers, {name}", rota=many, raw=raw,
            ratio=f"{together:.1f} times raw (call p99 {waits.median:.1f} ms)",
            target=f">= {LEAST_TOGETHER[store]} times raw", met=together >= LEAST_TOGETHER[store],
        )  # fmt: skip
