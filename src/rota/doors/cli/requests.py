"""`rota requests`: who changed what."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import wall
from rota.doors.cli.values import LARGEST, maybe_whole, whole
from rota.flow.observe.telling import first_line

MOST_LISTED = 1_000


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("requests")(list_all)


def list_all(
    context: typer.Context,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "20",
    before: Annotated[
        str | None, typer.Option("--before", metavar="ID", help="Only older than this one.")
    ] = None,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Only of this space.")
    ] = None,
) -> None:
    """List what was changed and by whom, newest first.

    Example: rota requests --limit 5
    """
    desk = Desk(context)
    wanted = {
        "limit": whole("limit", limit, 1, MOST_LISTED),
        "before": maybe_whole("before", before, 1, LARGEST),
        "space": space,
    }
    found = desk.call("GET", "/v1/requests", wanted)
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(space)
    rows = [
        [
            str(one["id"]),
            wall(one["at"], zone),
            one["caller"],
            one["command"],
            first_line(" ".join(f"{name}={value}" for name, value in one["about"].items())),
        ]
        for one in found["requests"]
    ]
    desk.out.table(["id", f"at ({zone})", "caller", "did", "about"], rows, "No requests.")
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --before {found['next']}")
