"""`rota logs`: what happened in a run, and what happens."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.run_words import FINISHED, event_row
from rota.doors.cli.show import compact
from rota.doors.cli.values import SpaceName
from rota.doors.kit.faults import INTERRUPTED
from rota.errors import NotFound, RotaError

LOOK_SECONDS = 0.5
WIDTH = 18


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("logs")(logs)


def logs(
    context: typer.Context,
    which: Annotated[
        str | None,
        typer.Argument(metavar="RUN|TASK", help="A run's number, or a task's newest run."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the run has ended.")
    ] = False,
    space: SpaceName = None,
) -> None:
    """Tell what happened in a run: its events, its messages, its result or error.

    The newest run is told if none is named. Ctrl-C only stops the telling. With --json every event
    is a line.

    Example: rota logs report -f
    """
    desk = Desk(context)
    number = _number(desk, which, space)
    told = 0
    try:
        while True:
            run = desk.call("GET", f"/v1/runs/{number}")
            if not told and not desk.out.as_json:
                desk.out.line(f"run {run['id']} of {run['task']}")
            for event in (event for event in run["events"] if event["id"] > told):
                _tell(desk, event, run)
                told = event["id"]
            sys.stdout.flush()
            if run["state"] in FINISHED or not follow:
                break
            time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        desk.out.talk(f"Detached: run {number} goes on.")
        raise typer.Exit(INTERRUPTED) from None
    _end(desk, run)


def _number(desk: Desk, which: str | None, space: str | None) -> int:
    digits = (which or "").removeprefix("#")
    if digits.isascii() and digits.isdigit():
        return int(digits)
    wanted: Record = {"limit": 1, "space": space}
    try:
        if which is not None:
            wanted["task"] = desk.reference(which, space)
        found = desk.call("GET", "/v1/runs", wanted)["runs"]
    except RotaError as fault:
        raise (fault if which is None else desk.better(fault, which, space)) from None
    if not found:
        raise NotFound("run", which or "at all", f"nothing has run yet: rota run {which or 'TASK'}")
    return int(found[0]["id"])


def _tell(desk: Desk, event: Record, run: Record) -> None:
    desk.out.entry(event)
    if not desk.out.as_json:
        name, at, data = event_row(event, desk.zone(run["space"]))
        desk.out.line(f"{at}  {name:<{WIDTH}}  {data}".rstrip())


def _end(desk: Desk, run: Record) -> None:
    for delivery in run["deliveries"]:
        to = f"{delivery['channel']}:{delivery['target']}"
        desk.out.line(f"message to {to} ({delivery['state']}): {delivery['body']}")
    if run["state"] == "succeeded" and run["result"] is not None:
        result = run["result"]
        desk.out.line(result if isinstance(result, str) else compact(result))
    elif run["error"]:
        desk.out.line(str(run["error"]).rstrip())
    if run["state"] not in FINISHED:
        desk.out.talk(f"Run {run['id']} is {run['state']}.")
