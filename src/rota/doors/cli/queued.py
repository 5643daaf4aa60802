"""Why a queued run has not begun, beside what was asked of it; `rota why` tells the same."""

from __future__ import annotations

import time

from rota.doors.cli.desk import Desk, Record
from rota.errors import RotaError

SILENT_SECONDS = 3.0
"""How long a run may be in the queue before it is told why."""


def why_queued(desk: Desk, run: Record) -> str:
    """Return what a queued run waits for; empty for any other, and if nobody can tell."""
    if run["state"] != "queued":
        return ""
    try:
        told = desk.call("GET", f"/v1/runs/{run['id']}/why")["slots"]
    except RotaError:  # who may ask for work may not look, and a daemon may be restarting
        return ""
    own = [slot["sentence"] for slot in told if slot["run"] == run["id"]]
    sentence = own[0].removesuffix(f"; run {run['id']}") if own else ""
    asked_for = run["slot_at"] is None
    return str(sentence.partition("; ")[2] if asked_for else sentence)


class Waiting:
    """Tells why a run that is waited for stays in the queue: once, and again after each attempt."""

    def __init__(self, desk: Desk, *, silent_seconds: float = SILENT_SECONDS) -> None:
        self._desk = desk
        self._from = time.monotonic() + silent_seconds
        self._told: set[int] = set()

    def told(self, run: Record) -> None:
        """Take in that it was told already."""
        self._told.add(run["attempt"])

    def look(self, run: Record) -> None:
        """Tell why a run is in the queue, if that is due."""
        tried = run["attempt"] > 0
        if run["state"] != "queued" or run["attempt"] in self._told:
            return
        if not tried and time.monotonic() < self._from:
            return
        self.told(run)
        words = why_queued(self._desk, run)
        if words:
            self._desk.out.talk(f"Run {run['id']} waits: {words}.")
