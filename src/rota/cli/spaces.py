"""`rota space` and `rota limit`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from urllib.parse import quote

import typer

from rota.cli.arguments import DryRun, Yes, optional_whole_number, whole_number
from rota.cli.context import CliContext, Record
from rota.cli.display import NOTHING
from rota.errors import Invalid
from rota.flow.observe.time_text import duration_text

Name = Annotated[str, typer.Argument(metavar="NAME", help="The space's name.")]

space_app = typer.Typer(
    help="Spaces: a person's or group's own corner, with a time zone.\n\n"
    "Example: rota space create alice --timezone Europe/Berlin",
    rich_markup_mode=None,
)


@space_app.command("list")
def list_spaces(context: typer.Context) -> None:
    """List spaces.

    Example: rota space list
    """
    desk = CliContext(context)
    found = desk.call("GET", "/v1/spaces")
    desk.out.record(found)
    rows = [[space["name"], space["role"], space["timezone"]] for space in found["spaces"]]
    desk.out.table(["space", "role", "time zone"], rows, "No spaces.")


@space_app.command()
def create(
    context: typer.Context,
    name: Name,
    timezone: Annotated[str, typer.Option("--timezone", metavar="ZONE", help="IANA zone.")] = "UTC",
    dry_run: DryRun = False,
) -> None:
    """Create a space; it may act only for itself.

    Example: rota space create alice --timezone Europe/Berlin
    """
    desk = CliContext(context, makes=True)
    space = desk.call("POST", "/v1/spaces", {"name": name, "timezone": timezone}, dry_run=dry_run)
    desk.out.record(space)
    desk.out.line(f"Created space {space['name']}, {space['timezone']}.")


@space_app.command("set")
def set_space(
    context: typer.Context,
    name: Name,
    timezone: Annotated[str, typer.Option("--timezone", metavar="ZONE", help="IANA zone.")],
    dry_run: DryRun = False,
) -> None:
    """Change a space's time zone; schedules that exist keep theirs.

    Example: rota space set main --timezone Europe/Berlin
    """
    desk = CliContext(context)
    path = f"/v1/spaces/{quote(name, safe='')}"
    space = desk.call("PATCH", path, {"timezone": timezone}, dry_run=dry_run)
    desk.out.record(space)
    desk.out.line(f"Space {space['name']} is in {space['timezone']} now.")


MOST = 1_000_000

ScopeName = Annotated[str, typer.Argument(metavar="SCOPE", help="total, pool, space or group.")]
Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="pool: foreground or background; space: a pool, queued or schedules, or one of these "
        "with /space; group: its name.",
    ),
]

limit_app = typer.Typer(
    help="Limits: how many runs at once, and how many starts in a period.\n\n"
    "Callables created on the command line count against groups and worker slots only.\n\n"
    "Example: rota limit set group mail --cap 2 --rate 10/1m",
    rich_markup_mode=None,
)


@limit_app.command("list")
def list_limits(context: typer.Context) -> None:
    """List limits.

    Example: rota limit list
    """
    desk = CliContext(context)
    found = desk.call("GET", "/v1/limits")
    desk.out.record(found)
    rows = [
        [limit["scope"], limit["key"] or NOTHING, _number(limit["cap"]), _rate(limit)]
        for limit in found["limits"]
    ]
    desk.out.table(["scope", "key", "at once", "starts"], rows, "No limits.")


@limit_app.command("set", context_settings={"allow_extra_args": True})
def set_limit(
    context: typer.Context,
    scope: ScopeName,
    key: Key = "",
    cap: Annotated[str | None, typer.Option("--cap", metavar="N", help="Runs at once.")] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="N/LENGTH", help="Starts, '10/1m' (groups).")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Set a limit, replacing the one of its scope and key.

    Example: rota limit set pool background --cap 3
    """
    if context.args:
        number = context.args[0]
        advice = f"it is an option: rota limit set {scope} {key} --cap {number}"
        raise Invalid("cap", number, advice)
    desk = CliContext(context, makes=True)
    most = optional_whole_number("cap", cap, 0, MOST)
    count, period = _read_rate(rate)
    if most is None and count is None:
        raise Invalid("cap", "", "give --cap, --rate or both; or use `rota limit remove`")
    wanted = {"scope": scope, "key": key, "cap": most, "rate": count, "period": period}
    limit = desk.call("PUT", "/v1/limits", wanted, dry_run=dry_run)
    desk.out.record(limit)
    name = f"{limit['scope']} {limit['key']}".rstrip()
    desk.out.line(f"Limit {name}: {_number(limit['cap'])} at once, {_rate(limit)}.")


@limit_app.command()
def remove(
    context: typer.Context,
    scope: ScopeName,
    key: Key = "",
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Take a limit away; `rota up` writes the defaults again where none stands.

    Example: rota limit remove group mail
    """
    desk = CliContext(context)
    name = f"{scope} {key}".rstrip()
    desk.out.confirm(f"Remove the limit {name}?", yes=yes or dry_run)
    gone = desk.call("DELETE", "/v1/limits", {"scope": scope, "key": key}, dry_run=dry_run)
    desk.out.record(gone)
    desk.out.line(f"Removed limit {name}.")


def _read_rate(text: str | None) -> tuple[int | None, str | None]:
    if text is None:
        return None, None
    count, slash, length = text.partition("/")
    if not slash:
        raise Invalid("rate", text, "write it as 10/1m: ten starts a minute")
    return whole_number("rate", count.strip(), 1, MOST), length


def _number(value: int | None) -> str:
    return "any number" if value is None else str(value)


def _rate(limit: Record) -> str:
    if limit["rate"] is None or limit["period"] is None:
        return "as they come"
    return f"{limit['rate']} in {duration_text(timedelta(seconds=limit['period']))}"


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(space_app, name="space")
    app.add_typer(limit_app, name="limit")
