"""`rota key` and `rota audit`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.arguments import Before, DryRun, Limit, SpaceFilter, SpaceName, Yes, page, run_number
from rota.cli.context import CliContext, Record
from rota.cli.display import Column, wall_time
from rota.flow.observe.time_text import first_line

key_app = typer.Typer(
    help="Manage API keys.\n\nExample: rota key create grafana --scope read",
    rich_markup_mode=None,
)


@key_app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Purpose of the key")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="Scope of the key, repeatable [possible values: read, run, define, admin, sql] "
            "[default: read, run, define]",
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            "--role", metavar="ROLE", help="Role, main or member [default: that of the space]"
        ),
    ] = None,
    expires_at: Annotated[
        str | None,
        typer.Option("--expires-at", metavar="TIME", help="Expiry in ISO 8601 [default: never]"),
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Create an API key and write its token to standard output, this once.

    Example: rota key create grafana --scope read
    """
    cli = CliContext(context, creates_home=True)
    body = {
        "name": name,
        "scopes": scope or None,
        "role": role,
        "expires_at": expires_at,
        "space": space,
    }
    key = cli.call("POST", "/v1/keys", body, dry_run=dry_run)
    cli.out.record(key)
    cli.out.talk(
        f"Created key {key['id']} for space {key['space']} with the scopes {_scopes(key)}. "
        "The token is not shown again:"
    )
    cli.out.line(key["token"])


@key_app.command("list")
def list_keys(context: typer.Context, space: SpaceFilter = None) -> None:
    """List API keys, oldest first, without their tokens.

    Example: rota key list
    """
    cli = CliContext(context)
    found = cli.call("GET", "/v1/keys", {"space": space})
    zone = "" if cli.out.as_json else cli.zone(space)
    columns = (
        Column("key", "id"),
        Column("prefix", lambda key: f"{key['prefix']}…"),
        Column("space", "space"),
        Column("role", "role"),
        Column("scopes", _scopes),
        Column(
            f"last used ({zone})",
            lambda key: "revoked" if key["revoked_at"] else wall_time(key["used_at"], zone),
        ),
        Column("name", "name"),
    )
    cli.show_list(found, "keys", columns, "No keys found.")


@key_app.command()
def revoke(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Number of the key")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Revoke an API key.

    Example: rota key revoke 3
    """
    cli = CliContext(context)
    number = run_number(key, "key")
    cli.out.confirm(f"Revoke key {number}?", yes=yes or dry_run)
    sentence = "Revoked key {id} ({name})."
    cli.change("DELETE", f"/v1/keys/{number}", None, sentence, dry_run=dry_run)


def _scopes(key: Record) -> str:
    return ",".join(key["scopes"])


AUDIT_COLUMNS = (
    Column("id", "id"),
    Column("at", "at", is_time=True),
    Column("caller", "caller"),
    Column("command", "command"),
    Column(
        "subject",
        lambda entry: first_line(" ".join(f"{name}={v}" for name, v in entry["subject"].items())),
    ),
)


def list_audit(
    context: typer.Context,
    limit: Limit = "20",
    before: Before = None,
    space: SpaceFilter = None,
) -> None:
    """List changes with their callers, newest first.

    Example: rota audit --limit 5
    """
    cli = CliContext(context)
    found = cli.call("GET", "/v1/audit", {**page(limit, before), "space": space})
    cli.show_list(found, "entries", AUDIT_COLUMNS, "No changes found.", space=space)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(key_app, name="key")
    app.command("audit")(list_audit)
