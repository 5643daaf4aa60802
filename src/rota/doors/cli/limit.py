"""`rota limit`: how much may go on at once, and how often something may start."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.tables import NOTHING
from rota.doors.cli.values import DryRun, Yes, maybe_whole, whole
from rota.errors import Invalid
from rota.flow.observe.telling import span

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

nouns = typer.Typer(
    help="Limits: how many runs at once, and how many starts in a period.\n\n"
    "Callables created on the command line count against groups and worker slots only.\n\n"
    "Example: rota limit set group mail --cap 2 --rate 10/1m",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="limit")


@nouns.command("list")
def list_all(context: typer.Context) -> None:
    """List limits.

    Example: rota limit list
    """
    desk = Desk(context)
    found = desk.call("GET", "/v1/limits")
    desk.out.record(found)
    rows = [
        [limit["scope"], limit["key"] or NOTHING, _number(limit["cap"]), _rate(limit)]
        for limit in found["limits"]
    ]
    desk.out.table(["scope", "key", "at once", "starts"], rows, "No limits.")


@nouns.command("set", context_settings={"allow_extra_args": True})
def change(
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
    desk = Desk(context, makes=True)
    most = maybe_whole("cap", cap, 0, MOST)
    count, period = _read_rate(rate)
    if most is None and count is None:
        raise Invalid("cap", "", "give --cap, --rate or both; or use `rota limit remove`")
    wanted = {"scope": scope, "key": key, "cap": most, "rate": count, "period": period}
    limit = desk.call("PUT", "/v1/limits", wanted, dry_run=dry_run)
    desk.out.record(limit)
    name = f"{limit['scope']} {limit['key']}".rstrip()
    desk.out.line(f"Limit {name}: {_number(limit['cap'])} at once, {_rate(limit)}.")


@nouns.command()
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
    desk = Desk(context)
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
    return whole("rate", count.strip(), 1, MOST), length


def _number(value: int | None) -> str:
    return "any number" if value is None else str(value)


def _rate(limit: Record) -> str:
    if limit["rate"] is None or limit["period"] is None:
        return "as they come"
    return f"{limit['rate']} in {span(timedelta(seconds=limit['period']))}"
