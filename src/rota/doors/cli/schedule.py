"""`rota schedule`: when things run."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import wall_named
from rota.doors.cli.tables import NOTHING
from rota.doors.cli.values import SpaceName, whole
from rota.errors import RotaError
from rota.flow.observe.telling import first_line

MOST_LISTED = 1_000
LONGEST_WORDS = 60

nouns = typer.Typer(
    help="Schedules: when tasks run. `rota task edit` changes them.\n\n"
    "Example: rota schedule list report",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="schedule")


@nouns.command("list")
def list_all(
    context: typer.Context,
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Those of one task [all].")
    ] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "1000",
    space: SpaceName = None,
) -> None:
    """List schedules, by task and name.

    Example: rota schedule list report
    """
    desk = Desk(context)
    most = whole("limit", limit, 1, MOST_LISTED)
    try:
        found = desk.call("GET", "/v1/schedules", {"task": task, "space": space, "limit": most})
    except RotaError as fault:
        raise (fault if task is None else desk.better(fault, task, space)) from None
    desk.out.record(found)
    rows = [
        [
            one["task"],
            one["name"],
            one["state"],
            first_line(one["words"], LONGEST_WORDS),
            NOTHING if one["next_at"] is None else wall_named(one["next_at"], one["timezone"]),
        ]
        for one in found["schedules"]
    ]
    columns = ["task", "schedule", "state", "when", "next"]
    desk.out.table(columns, rows, 'No schedules: rota add "weekdays 7:00" "..." makes one.')
