"""`rota notification`: where a space sends its notifications."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.arguments import DryRun, SpaceName, Yes
from rota.cli.context import CliContext

Place = Annotated[
    str, typer.Argument(metavar="CHANNEL:TARGET", help="A place, for example log: or log:ops.")
]

nouns = typer.Typer(
    help="Where people are told of runs that fail for good, expire or wait for an answer, and of "
    "tasks that were disabled by their failures.\n\n"
    "Example: rota notification set log:ops --level high",
    rich_markup_mode=None,
)


@nouns.command("set")
def change(
    context: typer.Context,
    to: Place,
    level: Annotated[
        str,
        typer.Option(
            "--level", metavar="LEVEL", help="From which priority up: normal, high or urgent."
        ),
    ] = "normal",
    default: Annotated[
        bool,
        typer.Option("--default", help="Results of tasks created without --deliver-to go there."),
    ] = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Tell people in a place, in the place of what was said of it before.

    Example: rota notification set log: --default
    """
    desk = CliContext(context, makes=True)
    wanted = {"to": to, "min_level": level, "default": default, "space": space}
    found = desk.call("PUT", "/v1/notification-targets", wanted, dry_run=dry_run)
    desk.out.record(found)
    also = ", and results go there that name no place" if found["default"] else ""
    desk.out.line(f"{found['space']} is told in {found['to']} from {found['min_level']} up{also}.")


@nouns.command("list")
def list_all(context: typer.Context, space: SpaceName = None) -> None:
    """List where people are told.

    Example: rota notification list
    """
    desk = CliContext(context)
    found = desk.call("GET", "/v1/notification-targets", {"space": space})
    desk.out.record(found)
    rows = [
        [one["space"], one["to"], one["min_level"], "yes" if one["default"] else ""]
        for one in found["targets"]
    ]
    desk.out.table(["space", "to", "from", "default"], rows, "Nobody is told anything.")


@nouns.command()
def remove(
    context: typer.Context,
    to: Place,
    yes: Yes = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Tell people in a place no more.

    Example: rota notification remove log:ops
    """
    desk = CliContext(context)
    desk.out.confirm(f"Tell nobody in {to} any more?", yes=yes or dry_run)
    gone = desk.call(
        "DELETE", "/v1/notification-targets", {"to": to, "space": space}, dry_run=dry_run
    )
    desk.out.record(gone)
    desk.out.line(f"{gone['space']} is told no more in {gone['to']}.")


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="notification")
