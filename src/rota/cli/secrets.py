"""`rota secret`."""

from __future__ import annotations

import sys
from getpass import getpass
from typing import Annotated
from urllib.parse import quote

import typer

from rota.cli.arguments import DryRun, Yes
from rota.cli.context import CliContext
from rota.cli.display import wall_time
from rota.errors import Invalid

LONGEST_INPUT = 1 << 20

nouns = typer.Typer(
    help="Secrets: keys that the gateway shows to providers and no program ever has.\n\n"
    "Example: rota secret set anthropic",
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The secret's name.")]


@nouns.command("set")
def put(context: typer.Context, name: Name, dry_run: DryRun = False) -> None:
    """Keep a secret, encrypted; its value is asked for, or read from standard input.

    What is kept under the name of an upstream (anthropic, openai, those of gateway.toml) opens
    the gateway to it at once. See docs/how-to/secrets.md.

    Example: rota secret set anthropic < key.txt
    """
    desk = CliContext(context, makes=True)
    kept = desk.call(
        "PUT", f"/v1/secrets/{quote(name, safe='')}", {"value": _value(name)}, dry_run=dry_run
    )
    desk.out.record(kept)
    opens = f"; the gateway shows it to {', '.join(kept['upstreams'])}" if kept["upstreams"] else ""
    desk.out.line(f"Kept the secret {kept['name']}{opens}.")


@nouns.command("list")
def list_all(context: typer.Context) -> None:
    """List secrets by name: where they come from and when they were used. Values are nowhere.

    Example: rota secret list
    """
    desk = CliContext(context)
    found = desk.call("GET", "/v1/secrets")
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(None)
    rows = [
        [
            secret["name"],
            secret["source"],
            ",".join(secret["upstreams"]),
            wall_time(secret["set_at"], zone),
            wall_time(secret["used_at"], zone),
            secret["problem"] or "",
        ]
        for secret in found["secrets"]
    ]
    columns = ["secret", "from", "for", f"set ({zone})", f"used ({zone})", "problem"]
    desk.out.table(columns, rows, "No secrets.")


@nouns.command()
def remove(context: typer.Context, name: Name, yes: Yes = False, dry_run: DryRun = False) -> None:
    """Forget a secret that was set; whatever needs it is turned away from now on.

    Example: rota secret remove anthropic
    """
    desk = CliContext(context)
    desk.out.confirm(f"Forget the secret {name}?", yes=yes or dry_run)
    gone = desk.call("DELETE", f"/v1/secrets/{quote(name, safe='')}", dry_run=dry_run)
    desk.out.record(gone)
    desk.out.line(f"Forgot the secret {name}.")


def _value(name: str) -> str:
    """Return a value that is in no list of processes and on no screen."""
    if sys.stdin.isatty():
        return getpass(f"Value of {name}: ")
    read = sys.stdin.read(LONGEST_INPUT).removesuffix("\n").removesuffix("\r")
    if not read:
        raise Invalid("value", "", "write it to standard input, or run this on a terminal")
    return read


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="secret")
