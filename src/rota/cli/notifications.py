"""`rota notification`: the notification targets of a space."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.arguments import DryRun, SpaceName, Yes
from rota.cli.context import CliContext
from rota.cli.display import Column

Target = Annotated[
    str, typer.Argument(metavar="CHANNEL:TARGET", help="Notification target, such as log:ops")
]
COLUMNS = (
    Column("space", "space"),
    Column("target", "to"),
    Column("level", "min_level"),
    Column("default", "default"),
)

notification_app = typer.Typer(
    help="Manage the targets for notifications about failed, expired and waiting runs and disabled "
    "tasks.\n\nExample: rota notification set log:ops --min-level high",
    rich_markup_mode=None,
)


@notification_app.command("set")
def set_target(
    context: typer.Context,
    to: Target,
    level: Annotated[
        str,
        typer.Option(
            "--min-level",
            metavar="LEVEL",
            help="Lowest level to notify about [possible values: normal, high, urgent]",
        ),
    ] = "normal",
    default: Annotated[
        bool, typer.Option("--default", help="Use as --deliver-to of new tasks that have none")
    ] = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Notify a target; replaces its earlier settings.

    Example: rota notification set log: --default
    """
    cli = CliContext(context, creates_home=True)
    body = {"to": to, "min_level": level, "default": default, "space": space}
    sentence = "Notifications of space {space} go to {to} (level {min_level} and above)."
    found = cli.change("PUT", "/v1/notification-targets", body, sentence, dry_run=dry_run)
    if found["default"]:
        cli.out.line("Results of new tasks without --deliver-to go there, too.")


@notification_app.command("list")
def list_targets(context: typer.Context, space: SpaceName = None) -> None:
    """List notification targets.

    Example: rota notification list
    """
    cli = CliContext(context)
    found = cli.call("GET", "/v1/notification-targets", {"space": space})
    cli.show_list(found, "targets", COLUMNS, "No notification targets found.")


@notification_app.command()
def remove(
    context: typer.Context,
    to: Target,
    yes: Yes = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Remove a notification target.

    Example: rota notification remove log:ops
    """
    cli = CliContext(context)
    cli.out.confirm(f"Remove the notification target {to}?", yes=yes or dry_run)
    body = {"to": to, "space": space}
    sentence = "Removed the notification target {to} of space {space}."
    cli.change("DELETE", "/v1/notification-targets", body, sentence, dry_run=dry_run)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(notification_app, name="notification")
