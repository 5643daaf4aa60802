"""`rota why`: what became of a task's slots, in words."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import instant
from rota.doors.cli.values import SpaceName, maybe_run
from rota.errors import Invalid
from rota.flow.observe.telling import clock, wall


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("why")(why)


def why(
    context: typer.Context,
    which: Annotated[
        str, typer.Argument(metavar="TASK|RUN", help="A task's name, or a run's number.")
    ],
    time: Annotated[
        list[str] | None,
        typer.Argument(metavar="TIME", help="'7:00', 'yesterday', ISO 8601 [the last 24 h]."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option("--timezone", metavar="ZONE", help="Zone of TIME [the schedule's]."),
    ] = None,
    space: SpaceName = None,
) -> None:
    """Say what became of a task's slots: ran, late, skipped, missed, waiting, and why.

    At most 40 slots are told, the newest that have come; the answer says so. Of a run that goes on
    it tells when it was last heard of.

    Example: rota why report "yesterday 7:00"
    """
    desk = Desk(context)
    number = maybe_run(which)
    if number is None:
        wanted = {"at": " ".join(time) if time else None, "timezone": timezone, "space": space}
        told = desk.task("GET", which, "/why", wanted)
    elif time or timezone:
        raise Invalid("time", " ".join(time or [timezone or ""]), "goes with a task, not a run")
    else:
        told = desk.call("GET", f"/v1/runs/{number}/why")
    desk.out.record(told)
    desk.out.line(f"{told['task']}  ({told['timezone']})")
    for note in told["notes"]:
        desk.out.line(note)
    place = ZoneInfo(told["timezone"])
    slots = told["slots"]
    several = len({slot["schedule"] for slot in slots if slot["schedule"]}) > 1
    rows = []
    for slot in slots:
        until = "" if slot["until"] is None else f" to {clock(instant(slot['until']), place)}"
        name = f"{slot['schedule']}: " if several and slot["schedule"] else ""
        at = f"{wall(instant(slot['at']), place)}{until}"
        rows.append([at, slot["verdict"], f"{name}{slot['sentence']}"])
    desk.out.table(["slot", "what", "why"], rows, "Nothing was planned and nothing ran.")
