"""`rota space` and `rota limit`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from urllib.parse import quote

import typer

from rota.cli.arguments import DryRun, Yes, optional_whole_number, whole_number
from rota.cli.context import CliContext, Record
from rota.cli.display import NOTHING, Column
from rota.errors import Invalid
from rota.flow.observe.time_text import duration_text

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the space")]
ZONE = typer.Option("--timezone", metavar="ZONE", help="IANA time zone")
SPACE_COLUMNS = (
    Column("space", "name"),
    Column("role", "role"),
    Column("time zone", "timezone"),
)

space_app = typer.Typer(
    help="Manage spaces: isolated areas of a person or group, each with a time zone.\n\n"
    "Example: rota space create alice --timezone Europe/Berlin",
    rich_markup_mode=None,
)


@space_app.command("list")
def list_spaces(context: typer.Context) -> None:
    """List spaces.

    Example: rota space list
    """
    cli = CliContext(context)
    cli.show_list(cli.call("GET", "/v1/spaces"), "spaces", SPACE_COLUMNS, "No spaces found.")


@space_app.command()
def create(
    context: typer.Context,
    name: Name,
    timezone: Annotated[str, ZONE] = "UTC",
    dry_run: DryRun = False,
) -> None:
    """Create a space with the role member.

    Example: rota space create alice --timezone Europe/Berlin
    """
    cli = CliContext(context, creates_home=True)
    body = {"name": name, "timezone": timezone}
    sentence = "Created the space {name} with the time zone {timezone}."
    cli.change("POST", "/v1/spaces", body, sentence, dry_run=dry_run)


@space_app.command("set")
def set_space(
    context: typer.Context, name: Name, timezone: Annotated[str, ZONE], dry_run: DryRun = False
) -> None:
    """Change the time zone of a space; existing schedules keep theirs.

    Example: rota space set main --timezone Europe/Berlin
    """
    path = f"/v1/spaces/{quote(name, safe='')}"
    sentence = "The time zone of space {name} is now {timezone}."
    CliContext(context).change("PATCH", path, {"timezone": timezone}, sentence, dry_run=dry_run)


MAX_LIMIT = 1_000_000
Scope = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE", help="Scope of the limit [possible values: total, pool, space, group]"
    ),
]
Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="Key in the scope: for pool foreground or background; for space a pool, queued or "
        "schedules, each optionally with /SPACE; for group a name",
    ),
]


def _rate_text(limit: Record) -> str:
    if limit["rate"] is None or limit["period"] is None:
        return "unlimited"
    return f"{limit['rate']} in {duration_text(timedelta(seconds=limit['period']))}"


def _cap_text(cap: int | None) -> str:
    return "unlimited" if cap is None else str(cap)


LIMIT_COLUMNS = (
    Column("scope", "scope"),
    Column("key", lambda limit: limit["key"] or NOTHING),
    Column("concurrent runs", lambda limit: _cap_text(limit["cap"])),
    Column("rate", _rate_text),
)

limit_app = typer.Typer(
    help="Manage limits on concurrent runs and on the rate of starts.\n\n"
    "Functions created on the command line count only against groups and worker slots.\n\n"
    "Example: rota limit set group mail --cap 2 --rate 10/1m",
    rich_markup_mode=None,
)


@limit_app.command("list")
def list_limits(context: typer.Context) -> None:
    """List limits.

    Example: rota limit list
    """
    cli = CliContext(context)
    cli.show_list(cli.call("GET", "/v1/limits"), "limits", LIMIT_COLUMNS, "No limits found.")


@limit_app.command("set", context_settings={"allow_extra_args": True})
def set_limit(
    context: typer.Context,
    scope: Scope,
    key: Key = "",
    cap: Annotated[
        str | None, typer.Option("--cap", metavar="N", help="Maximum number of concurrent runs")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate", metavar="N/LENGTH", help="Starts in a period (groups), such as 10/1m"
        ),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Set a limit, replacing the one with the same scope and key.

    Example: rota limit set pool background --cap 3
    """
    if context.args:
        number = context.args[0]
        raise Invalid("cap", number, f"use --cap: rota limit set {scope} {key} --cap {number}")
    cli = CliContext(context, creates_home=True)
    limit = optional_whole_number("cap", cap, 0, MAX_LIMIT)
    count, period = _read_rate(rate)
    if limit is None and count is None:
        raise Invalid("cap", "", "give --cap, --rate or both, or use `rota limit remove`")
    body = {"scope": scope, "key": key, "cap": limit, "rate": count, "period": period}
    found = cli.call("PUT", "/v1/limits", body, dry_run=dry_run)
    cli.out.record(found)
    name, runs = f"{found['scope']} {found['key']}".rstrip(), _cap_text(found["cap"])
    cli.out.line(f"Set the limit {name}: concurrent runs {runs}, rate {_rate_text(found)}.")


@limit_app.command()
def remove(
    context: typer.Context, scope: Scope, key: Key = "", yes: Yes = False, dry_run: DryRun = False
) -> None:
    """Remove a limit; `rota up` restores missing default limits.

    Example: rota limit remove group mail
    """
    cli = CliContext(context)
    name = f"{scope} {key}".rstrip()
    cli.out.confirm(f"Remove the limit {name}?", yes=yes or dry_run)
    body = {"scope": scope, "key": key}
    cli.change("DELETE", "/v1/limits", body, f"Removed the limit {name}.", dry_run=dry_run)


def _read_rate(text: str | None) -> tuple[int | None, str | None]:
    if text is None:
        return None, None
    count, slash, length = text.partition("/")
    if not slash:
        raise Invalid("rate", text, "use the form 10/1m, for ten starts a minute")
    return whole_number("rate", count.strip(), 1, MAX_LIMIT), length


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(space_app, name="space")
    app.add_typer(limit_app, name="limit")
