"""What an idle daemon holds, and whether it holds more after many runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.kit import HOME, ROOT, call, rss_mb, start, stop, value
from bench.measures.base import Bench, of
from bench.table import Row

MOST_MB = 60.0
MOST_GROWN_MB = 5.0
"""Less than this is the allocator's, not ours."""


def measure(bench: Bench) -> Iterator[Row]:
    first, last = 100_000, bench.size(1_000_000, 300_000)
    for store, name in (("sqlite", "SQLite"), ("postgres", "PostgreSQL")):
        if store not in bench.stores:
            continue
        sizes = value([_daemon(bench, store) for _ in range(bench.repeats)], "MB")
        yield Row(
            measure=f"memory of an idle daemon, {name}", rota=sizes, target=f"<= {MOST_MB:.0f} MB",
            met=sizes.median <= MOST_MB, ratio="rota up" if _has_cli() else "Rota.work()",
        )  # fmt: skip
        address = bench.fresh(store, "ours")
        take = call("ours", "growth", within=1800, address=address, first=first, last=last)
        grown = of([take], "grown_mb", "MB")
        yield Row(
            measure=f"memory grown, run {first:,} to {last:,}, {name}", rota=grown,
            ratio=f"{take['first_mb']:.0f} to {take['last_mb']:.0f} MB, {take['grown_objects']:+,} objects",
            target="none", met=grown.median <= MOST_GROWN_MB,
        )  # fmt: skip


def _has_cli() -> bool:
    return (ROOT / "src" / "rota" / "cli" / "main.py").exists()


def _daemon(bench: Bench, store: str) -> float:
    address = bench.fresh(store, "ours")
    process: subprocess.Popen[Any]
    if _has_cli():
        home = HOME / "home"
        home.mkdir(exist_ok=True)
        command = [str(Path(sys.executable).parent / "rota"), "up"]
        environment = {**os.environ, "ROTA_HOME": str(home), "ROTA_STORE": address}
        with (HOME / "logs" / "up.log").open("a") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )
    else:
        process = start("ours", "worker", address=address)
    try:
        time.sleep(5)
        if process.poll() is not None:
            raise RuntimeError(
                f"the daemon ended at once with {process.returncode}: see .bench/logs/up.log"
            )
        return rss_mb(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        stop(process)
