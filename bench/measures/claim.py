"""Claiming five with every limit on, from a million queued in 10,000 spaces."""

from __future__ import annotations

from collections.abc import Iterator

from bench.kit import call
from bench.measures.base import Bench, forget, of
from bench.table import Row

SLOWEST = {"sqlite": 25.0, "postgres": 10.0}


def measure(bench: Bench) -> Iterator[Row]:
    spaces, queued = bench.size(10_000, 2_000), bench.size(1_000_000, 100_000)
    samples = bench.size(600, 200)
    for store, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if store not in bench.stores:
            continue
        address = bench.fresh(store, "ours_claims")
        call("ours", "prepare_claims", address=address, spaces=spaces, queued=queued)
        takes = bench.takes(
            rota=lambda a=address: call("ours", "claims", address=a, samples=samples)
        )["rota"]
        forget(address)
        for key, what in (("claim", "claim(5)"), ("both", "claim(5) + settle(5)")):
            slow, middle = of(takes, f"{key}_p99", "ms"), of(takes, f"{key}_p50", "ms")
            limit = SLOWEST[store]
            yield Row(
                measure=f"{what} p99, limits, {spaces:,} spaces, {queued:,} queued, {name}", rota=slow,
                ratio=f"p50 {middle.median:.2f} ms", target=f"<= {limit:.0f} ms" if key == "claim" else "",
                met=slow.median <= limit if key == "claim" else None, note="-",
            )  # fmt: skip
