"""The same drain in a database that has a million finished runs, or a million for tomorrow."""

from __future__ import annotations

from collections.abc import Iterator

from bench.kit import call
from bench.measures.base import Bench, forget, of
from bench.table import Row

MOST_LOST = 10.0
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def measure(bench: Bench) -> Iterator[Row]:
    for store in bench.stores:
        yield from _of(bench, store)


def _of(bench: Bench, store: str) -> Iterator[Row]:
    n, count = bench.size(100_000, 20_000), bench.size(1_000_000, 100_000)
    full = {what: bench.fresh(store, f"ours_{what}") for what in ("finished", "future")}
    for what, address in full.items():
        call("ours", "history", address=address, what=what, count=count)
    takes = bench.takes(
        empty=bench.on(store, "ours", "drain", n=n),
        finished=lambda: call("ours", "drain", address=full["finished"], n=n),
        future=lambda: call("ours", "drain", address=full["future"], n=n),
    )
    for address in full.values():
        forget(address)
    peers = _pgqueuer(bench, count) if store == "postgres" else {}
    empty = of(takes["empty"], "rate")
    for what in ("finished", "future"):
        rate = of(takes[what], "rate")
        change = 100 * (rate.median / empty.median - 1)
        peer = peers.get(what)
        other = (
            ""
            if peer is None
            else f", peer {100 * (peer.median / peers['empty'].median - 1):+.0f} %"
        )
        yield Row(
            measure=f"drain, {NAMES[store]}, {count:,} {what}", rota=rate, peer=peer,
            peer_name="PgQueuer" if peer else "",
            ratio=f"{change:+.0f} % of {empty.median:,.0f}{other}", target=f"<= {MOST_LOST:.0f} % slower",
            met=change >= -MOST_LOST,
        )  # fmt: skip


def _pgqueuer(bench: Bench, count: int) -> dict[str, object]:
    n = bench.size(20_000, 5_000)
    full = {what: bench.fresh("postgres", f"peer_{what}") for what in ("finished", "future")}
    for what, address in full.items():
        call("pgqueuer_side", "history", address=address, what=what, count=count)
    takes = bench.takes(
        empty=bench.on("postgres", "pgqueuer_side", "drain", n=n),
        finished=lambda: call("pgqueuer_side", "drain", address=full["finished"], n=n),
        future=lambda: call("pgqueuer_side", "drain", address=full["future"], n=n),
    )
    return {what: of(found, "rate") for what, found in takes.items()}
