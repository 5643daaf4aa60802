"""`rota key`: who may come in, and to what."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.show import wall
from rota.doors.cli.values import DryRun, SpaceName, Yes, run_number

nouns = typer.Typer(
    help="Keys: what programs and people open the API with.\n\n"
    "Example: rota key create grafana --scope read",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="key")


@nouns.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for, for people.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="read, run, define, admin or sql; several [read, run and define].",
        ),
    ] = None,
    role: Annotated[
        str | None, typer.Option("--role", metavar="ROLE", help="main or member [the space's].")
    ] = None,
    expires_at: Annotated[
        str | None, typer.Option("--expires-at", metavar="TIME", help="ISO 8601 [never].")
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Make a key; its token is shown this once, on standard output.

    Example: rota key create grafana --scope read
    """
    desk = Desk(context, makes=True)
    wanted = {
        "name": name,
        "scopes": scope or None,
        "role": role,
        "expires_at": expires_at,
        "space": space,
    }
    made = desk.call("POST", "/v1/keys", wanted, dry_run=dry_run)
    desk.out.record(made)
    desk.out.talk(f"Key {made['id']} for {made['space']}: {_scopes(made)}. Shown this once:")
    desk.out.line(made["token"])


@nouns.command("list")
def list_all(
    context: typer.Context,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Only of this space.")
    ] = None,
) -> None:
    """List keys, oldest first; tokens are nowhere.

    Example: rota key list
    """
    desk = Desk(context)
    found = desk.call("GET", "/v1/keys", {"space": space})
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(space)
    rows = [
        [
            str(key["id"]),
            f"{key['prefix']}…",
            key["space"],
            key["role"],
            _scopes(key),
            "revoked" if key["revoked_at"] else wall(key["used_at"], zone),
            key["name"],
        ]
        for key in found["keys"]
    ]
    columns = ["key", "begins", "space", "role", "scopes", f"used ({zone})", "name"]
    desk.out.table(columns, rows, "No keys.")


@nouns.command()
def revoke(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key's number.")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Let a key open nothing any more, at once and everywhere.

    Example: rota key revoke 3
    """
    desk = Desk(context)
    number = run_number(key, "key")
    desk.out.confirm(f"Revoke key {number}?", yes=yes or dry_run)
    gone = desk.call("DELETE", f"/v1/keys/{number}", dry_run=dry_run)
    desk.out.record(gone)
    desk.out.line(f"Revoked key {gone['id']} ({gone['name']}).")


def _scopes(key: Record) -> str:
    return ",".join(key["scopes"])
