"""How fast one process empties a full queue, from the first handler to everything settled."""

from __future__ import annotations

from collections.abc import Iterator

from bench.measures.base import Bench, of
from bench.table import Row, times


def measure(bench: Bench) -> Iterator[Row]:
    n = bench.size(100_000, 20_000)
    if "sqlite" in bench.stores:
        takes = bench.takes(
            rota=bench.on("sqlite", "ours", "drain", n=n),
            huey=bench.on("sqlite", "huey_side", "drain", n=bench.size(12_000, 4_000)),
            raw=bench.on("sqlite", "raw", "drain_sqlite", n=n * 2),
        )
        rota, huey, raw = (of(takes[side], "rate") for side in ("rota", "huey", "raw"))
        ratio = times(rota, huey)
        yield Row(
            measure="drain, SQLite", rota=rota, peer=huey, peer_name="Huey", raw=raw,
            ratio=f"{ratio:.1f}x peer", target=">= 8x, aim 15x", met=ratio >= 8,
        )  # fmt: skip
    if "postgres" in bench.stores:
        takes = bench.takes(
            rota=bench.on("postgres", "ours", "drain", n=n),
            pgqueuer=bench.on("postgres", "pgqueuer_side", "drain", n=bench.size(50_000, 10_000)),
            raw=bench.on("postgres", "raw", "drain_postgres", n=n),
        )
        rota, pgqueuer, raw = (of(takes[side], "rate") for side in ("rota", "pgqueuer", "raw"))
        ratio = times(rota, pgqueuer)
        yield Row(
            measure="drain, PostgreSQL", rota=rota, peer=pgqueuer, peer_name="PgQueuer", raw=raw,
            ratio=f"{ratio:.1f}x peer", target=">= 1.5x, aim 3x", met=ratio >= 1.5,
        )  # fmt: skip
        take = bench.takes(
            p=bench.on("postgres", "procrastinate_side", "drain", n=bench.size(2_000, 500))
        )
        other = of(take["p"], "rate")
        yield Row(
            measure="drain, PostgreSQL", rota=rota, peer=other, peer_name="Procrastinate",
            ratio=f"{times(rota, other):.0f}x peer", note="-",
        )  # fmt: skip
