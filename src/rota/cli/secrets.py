"""`rota secret`."""

from __future__ import annotations

import sys
from getpass import getpass
from typing import Annotated
from urllib.parse import quote

import typer

from rota.cli.arguments import DryRun, Yes
from rota.cli.context import CliContext
from rota.cli.display import Column
from rota.errors import Invalid

MAX_INPUT = 1 << 20
COLUMNS = (
    Column("secret", "name"),
    Column("source", "source"),
    Column("upstreams", lambda secret: ",".join(secret["upstreams"])),
    Column("set", "set_at", is_time=True),
    Column("last used", "used_at", is_time=True),
    Column("problem", "problem"),
)

secret_app = typer.Typer(
    help="Manage secrets that the gateway uses on behalf of programs.\n\n"
    "Example: rota secret set anthropic",
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the secret")]


@secret_app.command("set")
def set_secret(context: typer.Context, name: Name, dry_run: DryRun = False) -> None:
    """Store a secret, encrypted; prompts for the value, or reads it from standard input.

    The name of an upstream (anthropic, openai, or one of gateway.toml) enables it in the gateway.
    See docs/how-to/secrets.md.

    Example: rota secret set anthropic < key.txt
    """
    cli = CliContext(context, creates_home=True)
    body = {"value": _read_value(name)}
    secret = cli.change("PUT", _path(name), body, "Stored the secret {name}.", dry_run=dry_run)
    if secret["upstreams"]:
        cli.out.line(f"The gateway uses it for {', '.join(secret['upstreams'])}.")


@secret_app.command("list")
def list_secrets(context: typer.Context) -> None:
    """List secrets with their sources and last use, without values.

    Example: rota secret list
    """
    cli = CliContext(context)
    cli.show_list(cli.call("GET", "/v1/secrets"), "secrets", COLUMNS, "No secrets found.")


@secret_app.command()
def remove(context: typer.Context, name: Name, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Remove a stored secret; requests that need it fail from now on.

    Example: rota secret remove anthropic
    """
    cli = CliContext(context)
    cli.out.confirm(f"Remove the secret {name}?", yes=yes or dry_run)
    cli.change("DELETE", _path(name), None, "Removed the secret {name}.", dry_run=dry_run)


def _path(name: str) -> str:
    return f"/v1/secrets/{quote(name, safe='')}"


def _read_value(name: str) -> str:
    """Return a value that appears in no process list and on no screen."""
    if sys.stdin.isatty():
        return getpass(f"Value of {name}: ")
    value = sys.stdin.read(MAX_INPUT).removesuffix("\n").removesuffix("\r")
    if not value:
        raise Invalid("value", "", "write it to standard input, or run this on a terminal")
    return value


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(secret_app, name="secret")
