"""Running a task now, as several commands do."""

from __future__ import annotations

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.values import json_value, text_or_input
from rota.errors import Invalid

PAYLOAD = "What the run is given; - reads it, @FILE a file."


def queue_run(desk: Desk, task: str, asked: Record, *, dry_run: bool) -> Record:
    """Queue a run of a task and return the answer."""
    if asked.get("payload") == asked.get("input") == "-":
        raise Invalid("payload", "-", "standard input is read for --input: name a file, @FILE")
    wanted = {**asked, "payload": json_value("payload", asked.get("payload"))}
    if wanted.get("input") is not None:
        wanted["input"] = text_or_input(wanted["input"])
    return desk.task("POST", task, "/run-now", wanted, dry_run=dry_run)
