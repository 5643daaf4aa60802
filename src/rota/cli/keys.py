"""`rota key` and `rota audit`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.arguments import (
    LARGEST,
    DryRun,
    SpaceName,
    Yes,
    optional_whole_number,
    run_number,
    whole_number,
)
from rota.cli.context import CliContext, Record
from rota.cli.display import wall_time
from rota.flow.observe.time_text import first_line

key_app = typer.Typer(
    help="Keys: what programs and people open the API with.\n\n"
    "Example: rota key create grafana --scope read",
    rich_markup_mode=None,
)


@key_app.command()
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
    desk = CliContext(context, makes=True)
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


@key_app.command("list")
def list_keys(
    context: typer.Context,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Only of this space.")
    ] = None,
) -> None:
    """List keys, oldest first; tokens are nowhere.

    Example: rota key list
    """
    desk = CliContext(context)
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
            "revoked" if key["revoked_at"] else wall_time(key["used_at"], zone),
            key["name"],
        ]
        for key in found["keys"]
    ]
    columns = ["key", "begins", "space", "role", "scopes", f"used ({zone})", "name"]
    desk.out.table(columns, rows, "No keys.")


@key_app.command()
def revoke(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key's number.")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Let a key open nothing any more, at once and everywhere.

    Example: rota key revoke 3
    """
    desk = CliContext(context)
    number = run_number(key, "key")
    desk.out.confirm(f"Revoke key {number}?", yes=yes or dry_run)
    gone = desk.call("DELETE", f"/v1/keys/{number}", dry_run=dry_run)
    desk.out.record(gone)
    desk.out.line(f"Revoked key {gone['id']} ({gone['name']}).")


def _scopes(key: Record) -> str:
    return ",".join(key["scopes"])


MAX_LISTED = 1_000


def list_audit(
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

    Example: rota audit --limit 5
    """
    desk = CliContext(context)
    wanted = {
        "limit": whole_number("limit", limit, 1, MAX_LISTED),
        "before": optional_whole_number("before", before, 1, LARGEST),
        "space": space,
    }
    found = desk.call("GET", "/v1/audit", wanted)
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(space)
    rows = [
        [
            str(one["id"]),
            wall_time(one["at"], zone),
            one["caller"],
            one["command"],
            first_line(" ".join(f"{name}={value}" for name, value in one["subject"].items())),
        ]
        for one in found["entries"]
    ]
    desk.out.table(["id", f"at ({zone})", "caller", "command", "subject"], rows, "No entries.")
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --before {found['next']}")


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(key_app, name="key")
    app.command("audit")(list_audit)
