"""`make attacks`: everything that a member and strangers can do to a daemon, all at once.

A schedule of another space fires every second meanwhile, and an honest client of a third one asks
for ordinary things. It fails if the schedule is late, or if anything honest was refused.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.client import HTTPException
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.attacks.attackers import ATTACKS, Target, ask, bearer, carry_out

LATENESS = 0.1
CALL = "rota.samples:hello"
PAUSE = 0.05
PATIENCE = 60.0


class Daemon:
    """A `rota up` in a home of its own."""

    def __init__(self, home: Path) -> None:
        place = json.loads((home / "api.json").read_text())
        self.port = urlsplit(place["url"]).port or 0
        self._admin = (home / "admin.key").read_text().strip()

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        """Ask for something that must be done."""
        status, told = ask(self.port, method, path, body, **bearer(self._admin))
        if status >= 300:
            message = f"{method} {path}: {status} {told}"
            raise RuntimeError(message)
        return told

    def member(self, space: str, scopes: Sequence[str] = ("read", "run", "define")) -> str:
        """Return a new key of a member space."""
        key = {"name": space, "space": space, "role": "member", "scopes": list(scopes)}
        return str(self.admin("POST", "/v1/keys", key)["token"])


@contextmanager
def daemon(home: Path, log: Path) -> Iterator[Daemon]:
    """Start a daemon and end it again."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    own = {"ROTA_HOME": str(home), "ROTA_PORT": "0", "ROTA_CALLABLES": CALL}
    words = [sys.executable, "-m", "rota.cli.main", "up"]
    with log.open("w") as errors:
        process = subprocess.Popen(
            words, cwd=home.parent, env={**kept, **own}, stdout=subprocess.PIPE, stderr=errors
        )
    try:
        if process.stdout is None or b"running" not in process.stdout.readline():
            raise RuntimeError(log.read_text())
        until = time.monotonic() + PATIENCE
        while not (home / "api.json").exists() and time.monotonic() < until:
            time.sleep(0.05)
        yield Daemon(home)
    finally:
        process.terminate()
        process.wait(PATIENCE)


class Honest(threading.Thread):
    """A client with a key of its own, which asks for ordinary things all the time."""

    def __init__(self, port: int, key: str) -> None:
        super().__init__()
        self.refused: Counter[str] = Counter()
        self.seconds: list[float] = []
        self._port = port
        self._key = bearer(key)
        self._over = threading.Event()

    def run(self) -> None:
        """Ask until it is over."""
        wanted = [
            ("GET", "/v1/tasks", None),
            ("POST", "/v1/tasks/hello/run-now", {}),
            ("GET", "/v1/runs?limit=5", None),
            ("POST", "/v1/tasks/hello/run-now", {"payload": "x" * 100_000}),
            ("PUT", "/v1/tasks/hello/state/note", {"value": "x"}),
            ("GET", "/healthz", None),
        ]
        while not self._over.wait(PAUSE):
            for method, path, body in wanted:
                self._ask(method, path, body)

    def _ask(self, method: str, path: str, body: Any) -> None:
        began = time.monotonic()
        try:
            status, told = ask(self._port, method, path, body, **self._key)
        except (OSError, HTTPException) as fault:
            self.refused[f"{method} {path}: {type(fault).__name__}"] += 1
            return
        self.seconds.append(time.monotonic() - began)
        if status >= 300:
            self.refused[f"{method} {path}: {status} {told}"] += 1

    def end(self) -> None:
        """Ask no more."""
        self._over.set()
        self.join(PATIENCE)


def lateness(rota: Daemon, since: datetime) -> list[float]:
    """Return how late the slots of the other space began, in seconds."""
    found: list[float] = []
    before: int | None = None
    while True:
        page = f"&before={before}" if before else ""
        told = rota.admin("GET", f"/v1/runs?task=tick&space=victim&limit=200{page}")
        for run in told["runs"]:
            slot = datetime.fromisoformat(run["slot_at"])
            if slot < since:
                return found
            begun = run["started_at"]
            late = timedelta(days=1) if begun is None else datetime.fromisoformat(begun) - slot
            found.append(late.total_seconds())
        before = told["next"]
        if before is None:
            return found


def shown(seconds: list[float]) -> str:
    """Return figures of a list of seconds in words."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    median = statistics.median(ordered)
    return (
        f"{len(ordered)}, median {median * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, "
        f"most {ordered[-1] * 1000:.1f} ms"
    )


def attacked(rota: Daemon, seconds: float, only: Sequence[str]) -> Iterator[str]:
    """Carry out attacks at once, all unless some are named, and yield what came of each."""
    chosen = [n for n, attack in enumerate(ATTACKS) if not only or attack.__name__ in only]
    keys = (rota.member("mallory"), rota.member("mallory"))
    reader = rota.member("mallory", ["read"])
    with ProcessPoolExecutor(len(chosen), mp_context=get_context("spawn")) as pool:
        target = Target(rota.port, keys, reader, time.monotonic() + seconds)
        begun = [pool.submit(carry_out, number, target) for number in chosen]
        for number, each in zip(chosen, begun, strict=True):
            told = ", ".join(f"{count} × {what}" for what, count in sorted(each.result().items()))
            yield f"{ATTACKS[number].__name__:<18} {told}"


def main() -> int:
    """Measure a quiet daemon, then one under attack; fail if that can be told."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--lateness", type=float, default=LATENESS, help="that p99 may have, in s")
    parser.add_argument("--only", nargs="*", default=[], help="names of attacks")
    given = parser.parse_args()
    seconds = given.seconds
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with daemon(Path(folder) / "home", log) as rota:
            for space in ("victim", "honest", "mallory"):
                rota.admin("POST", "/v1/spaces", {"name": space, "timezone": "UTC"})
            tick = {"name": "tick", "call": CALL, "space": "victim", "schedule": {"every": "1s"}}
            rota.admin("POST", "/v1/tasks", tick)
            rota.admin("POST", "/v1/tasks", {"name": "hello", "call": CALL, "space": "honest"})
            honest = Honest(rota.port, rota.member("honest"))
            honest.start()
            began = datetime.now().astimezone()
            print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
            time.sleep(seconds / 4)
            print(f"slots, quiet:      {shown(lateness(rota, began))}")
            print(f"requests, quiet:   {shown(honest.seconds)}")
            honest.seconds.clear()
            began = datetime.now().astimezone()
            for line in attacked(rota, seconds, given.only):
                print(f"  {line}")
            ended = datetime.now().astimezone()
            late = lateness(rota, began)
            honest.end()
            print(f"load after: {os.getloadavg()[0]:.1f}")
            print(f"slots, attacked:   {shown(late)}, in {(ended - began).total_seconds():.0f} s")
            print(f"requests, attacked: {shown(honest.seconds)}")
        print(f"log: {log.stat().st_size / 1024:.0f} KiB")
    for what, count in honest.refused.most_common(10):
        print(f"refused: {count} × {what}")
    p99 = sorted(late)[min(len(late) - 1, int(len(late) * 0.99))]
    return 1 if honest.refused or p99 > given.lateness else 0


if __name__ == "__main__":
    sys.exit(main())
