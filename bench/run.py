"""Measure Rota beside its peers and the raw limits: python bench/run.py [--only a,b] [--quick]."""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # so that bench/profile.py does not stand in for the standard library's

from bench.kit import HOME, PEERS, busy_percent, call  # noqa: E402
from bench.measures.base import Bench, Measure  # noqa: E402
from bench.server import Server  # noqa: E402
from bench.table import Row, keep, table  # noqa: E402

MEASURES = (
    *("drain", "growth", "bulk", "enqueue", "pickup"),
    *("lateness", "idle", "claim", "memory", "api", "sse"),
    *("keeper", "kept", "beside", "programs", "mailbox", "gateway"),
)
STORES = ("sqlite", "postgres")
PINS = ROOT / "bench" / "peers.txt"


def install_peers() -> None:
    """Put the pinned peers into .bench/peers, once for each change of the pins."""
    stamp = PEERS / "installed.txt"
    if stamp.exists() and stamp.read_text() == PINS.read_text():
        return
    own = ROOT / ".boot/bin/uv"
    uv = str(own) if own.exists() else "uv"
    python = str(PEERS / "bin" / "python")
    subprocess.run(
        [uv, "venv", "-q", "--clear", "--python", sys.executable, str(PEERS)], check=True
    )
    subprocess.run([uv, "pip", "install", "-q", "--python", python, "-r", str(PINS)], check=True)
    stamp.write_text(PINS.read_text())


def machine(server: Server) -> dict[str, Any]:
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    import apsw

    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": f"{len(models)} x {models[0] if models else platform.machine()}",
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "postgresql": server.facts(),
        "fdatasync_us": round(call("raw", "fsync", path=str(HOME / "fsync"), n=300)["us"]),
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip(),
    }


def one(name: str, bench: Bench) -> list[Row]:
    """Run a measure; a failure becomes a row, and the rest goes on."""
    rows: list[Row] = []
    measure: Measure = import_module(f"bench.measures.{name}").measure
    busy, began = busy_percent(), time.monotonic()
    try:
        for row in measure(bench):
            rows.append(row)
            print("  " + " | ".join(cell for cell in row.cells() if cell), flush=True)
    except Exception as fault:  # noqa: BLE001 - shown, and counted as not met
        rows.append(
            Row(measure=f"{name}: FAILED", ratio=f"{type(fault).__name__}: {fault}"[:80], met=False)
        )
        print(f"  {name}: {type(fault).__name__}: {fault}", flush=True)
    print(
        f"{name}: {time.monotonic() - began:.0f} s, others kept {busy:.0f} % busy before",
        flush=True,
    )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(MEASURES), help=f"some of {','.join(MEASURES)}")
    parser.add_argument("--stores", default=",".join(STORES), help="sqlite, postgres or both")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: does it work, not how fast is it"
    )
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    names, stores = asked.only.split(","), tuple(asked.stores.split(","))
    for given, known in ((names, MEASURES), (stores, STORES)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"{', '.join(unknown)}: choose from {', '.join(known)}")
    HOME.mkdir(exist_ok=True)
    install_peers()
    server = Server()
    rows: list[Row] = []
    try:
        facts = machine(server)
        for name, fact in facts.items():
            print(f"{name}: {fact}")
        bench = Bench(server, quick=asked.quick, repeats=asked.repeats, stores=stores)
        for name in names:
            rows += one(name, bench)
            keep(
                HOME / "results.json",
                {**facts, "quick": asked.quick, "repeats": asked.repeats},
                rows,
            )
    finally:
        server.close()
    print(f"\n{table(rows)}\n\nkept in {HOME / 'results.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
