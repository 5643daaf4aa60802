"""The run that is meant by a number, or by the name of a task that has only one such run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.values import maybe_run, run_number
from rota.errors import Invalid, NotFound, RotaError

UNFINISHED = ("running", "queued", "waiting")
MOST_TOLD = 10

RunOrTask = Annotated[
    str,
    typer.Argument(metavar="RUN|TASK", help="A run's number, or a task that has one such run."),
]


def one_run(desk: Desk, which: str, states: Sequence[str], space: str | None) -> int:
    """Return the run of a number, or the one run of a task that is in one of some states."""
    if maybe_run(which) is not None:
        return run_number(which)
    found: list[Record] = []
    try:
        wanted: Record = {"task": desk.reference(which, space), "space": space, "limit": MOST_TOLD}
        for state in states:
            found += desk.call("GET", "/v1/runs", {**wanted, "state": state})["runs"]
    except RotaError as fault:
        raise desk.better(fault, which, space) from None
    if not found:
        none = f"none of it is {' or '.join(states)}: see `rota runs --task {which}`"
        raise NotFound("run", which, none)
    if len(found) > 1:
        told = ", ".join(f"{run['id']} ({run['state']})" for run in found[:MOST_TOLD])
        raise Invalid("run", which, f"it has several: say which of {told}")
    return int(found[0]["id"])
