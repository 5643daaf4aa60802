"""What 100,000 schedules cost while none is due, beside 100."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.kit import call
from bench.measures.base import Bench, of
from bench.table import Row

FLAT = 1.25
FLOOR = 0.1
"""The same thing measured twice differs by a quarter, or by 0.1 ms a step and 0.1 s of CPU a minute."""


def measure(bench: Bench) -> Iterator[Row]:
    many, few = bench.size(100_000, 20_000), 100
    seconds = bench.size(20, 5)
    for store, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if store not in bench.stores:
            continue
        takes = bench.takes(
            few=_ours(bench, store, few, seconds),
            many=_ours(bench, store, many, seconds),
        )
        for key, unit, what in (
            ("cpu_s_per_min", "s", "CPU a minute"),
            ("step_ms", "ms", "planner step"),
        ):
            less, more = of(takes["few"], key, unit), of(takes["many"], key, unit)
            ratio = more.median / max(less.median, 1e-9)
            yield Row(
                measure=f"idle, {many:,} schedules, {what}, {name}", rota=more,
                ratio=f"{ratio:.2f}x of {less.median:.3f} {unit} with {few}", target="flat", met=ratio <= FLAT or more.median - less.median <= FLOOR,
            )  # fmt: skip
    for side, peer_name in (("apscheduler_side", "APScheduler"), ("celery_side", "Celery beat")):
        takes = bench.takes(
            few=bench.on("sqlite", side, "idle", schedules=few),
            many=bench.on("sqlite", side, "idle", schedules=many),
        )
        less, more = of(takes["few"], "step_ms", "ms"), of(takes["many"], "step_ms", "ms")
        yield Row(
            measure=f"idle, {many:,} schedules, tick", peer=more, peer_name=peer_name,
            ratio=f"{more.median / less.median:.1f}x of {less.median:.3f} ms with {few}", note="-",
        )  # fmt: skip


def _ours(bench: Bench, store: str, schedules: int, seconds: int) -> Callable[[], dict[str, Any]]:
    """Fill in one process and measure in another, so that what filling left behind is not counted."""

    def take() -> dict[str, Any]:
        address = bench.fresh(store, "ours")
        call("ours", "prepare_idle", address=address, schedules=schedules)
        return call("ours", "idle", address=address, seconds=seconds)

    return take
