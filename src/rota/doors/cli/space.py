"""`rota space`: a person's or group's own corner."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.values import DryRun

Name = Annotated[str, typer.Argument(metavar="NAME", help="The space's name.")]

nouns = typer.Typer(
    help="Spaces: a person's or group's own corner, with a time zone.\n\n"
    "Example: rota space create alice --timezone Europe/Berlin",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="space")


@nouns.command("list")
def list_all(context: typer.Context) -> None:
    """List spaces.

    Example: rota space list
    """
    desk = Desk(context)
    found = desk.call("GET", "/v1/spaces")
    desk.out.record(found)
    rows = [[space["name"], space["role"], space["timezone"]] for space in found["spaces"]]
    desk.out.table(["space", "role", "time zone"], rows, "No spaces.")


@nouns.command()
def create(
    context: typer.Context,
    name: Name,
    timezone: Annotated[str, typer.Option("--timezone", metavar="ZONE", help="IANA zone.")] = "UTC",
    dry_run: DryRun = False,
) -> None:
    """Create a space; it may act only for itself.

    Example: rota space create alice --timezone Europe/Berlin
    """
    desk = Desk(context, makes=True)
    space = desk.call("POST", "/v1/spaces", {"name": name, "timezone": timezone}, dry_run=dry_run)
    desk.out.record(space)
    desk.out.line(f"Created space {space['name']}, {space['timezone']}.")


@nouns.command("set")
def change(
    context: typer.Context,
    name: Name,
    timezone: Annotated[str, typer.Option("--timezone", metavar="ZONE", help="IANA zone.")],
    dry_run: DryRun = False,
) -> None:
    """Change a space's time zone; schedules that exist keep theirs.

    Example: rota space set main --timezone Europe/Berlin
    """
    desk = Desk(context)
    path = f"/v1/spaces/{quote(name, safe='')}"
    space = desk.call("PATCH", path, {"timezone": timezone}, dry_run=dry_run)
    desk.out.record(space)
    desk.out.line(f"Space {space['name']} is in {space['timezone']} now.")
