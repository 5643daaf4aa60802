"""`rota limit`: how much may go on at once, and how often something may start."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import NOTHING
from rota.doors.cli.values import maybe_whole, whole
from rota.doors.cli.wire import limit_record
from rota.errors import Invalid
from rota.flow.define import limits
from rota.flow.observe.telling import span
from rota.model.spaces import Limit, Scope
from rota.ports.store import Store
from rota.rules.permission import LOCAL
from rota.timing.durations import parse_duration
from rota.timing.options import choice

MOST = 1_000_000

ScopeName = Annotated[str, typer.Argument(metavar="SCOPE", help="total, pool, space or group.")]
Key = Annotated[
    str,
    typer.Argument(
        metavar="[KEY]",
        help="pool: foreground or background; space: a pool, or pool/space; group: its name.",
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

    async def work(store: Store) -> list[tuple[Limit, str]]:
        return await limits.list_limits(store, LOCAL)

    found = desk.ask(work)
    desk.out.record([limit_record(limit, key) for limit, key in found])
    rows = [
        [limit.scope.value, key or NOTHING, _number(limit.cap), _rate(limit)]
        for limit, key in found
    ]
    desk.out.table(["scope", "key", "at once", "starts"], rows, "No limits.")


@nouns.command("set")
def change(
    context: typer.Context,
    scope: ScopeName,
    key: Key = "",
    cap: Annotated[str | None, typer.Option("--cap", metavar="N", help="Runs at once.")] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="N/LENGTH", help="Starts, '10/1m' (groups).")
    ] = None,
) -> None:
    """Set a limit, replacing the one of its scope and key.

    Example: rota limit set pool background --cap 3
    """
    desk = Desk(context)
    kind = choice(Scope, scope, "scope")
    most = maybe_whole("cap", cap, 0, MOST)
    count, period = _read_rate(rate)
    if most is None and count is None:
        raise Invalid("cap", "", "give --cap, --rate or both; or use `rota limit remove`")
    wanted = Limit(scope=kind, key=key, cap=most, rate=count, period=period)
    desk.ask(lambda store: limits.set_limit(store, LOCAL, wanted))
    desk.out.record(limit_record(wanted, key))
    desk.out.line(f"Limit {kind} {key}".rstrip() + f": {_number(most)} at once, {_rate(wanted)}.")


@nouns.command()
def remove(context: typer.Context, scope: ScopeName, key: Key = "") -> None:
    """Take a limit away; `rota up` writes the defaults again where none stands.

    Example: rota limit remove group mail
    """
    desk = Desk(context)
    kind = choice(Scope, scope, "scope")
    desk.ask(lambda store: limits.remove_limit(store, LOCAL, kind, key))
    desk.out.record({"removed": {"scope": kind.value, "key": key}})
    desk.out.line(f"Removed limit {kind} {key}".rstrip() + ".")


def _read_rate(text: str | None) -> tuple[int | None, timedelta | None]:
    if text is None:
        return None, None
    count, slash, length = text.partition("/")
    if not slash:
        raise Invalid("rate", text, "write it as 10/1m: ten starts a minute")
    return whole("rate", count.strip(), 1, MOST), parse_duration(length, field="rate")


def _number(value: int | None) -> str:
    return "any number" if value is None else str(value)


def _rate(limit: Limit) -> str:
    if limit.rate is None or limit.period is None:
        return "as they come"
    return f"{limit.rate} in {span(limit.period)}"
