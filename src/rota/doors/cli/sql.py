"""`rota sql`: one query over the documented views; nothing can be changed by it."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import compact
from rota.doors.cli.tables import NOTHING
from rota.doors.cli.values import text_or_input

ROLE = "role"
"""Asks for the role that answers, which is no SELECT."""


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("sql")(sql)


def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT; - reads it.")],
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="TEXT", help="For $1, $2 and so on.")
    ] = None,
) -> None:
    """Ask one SELECT over the documented views.

    On PostgreSQL an administrator switches this on, with what `rota sql role` writes.

    Example: rota sql "select state, count(*) from runs group by state"
    """
    desk = Desk(context)
    if query == ROLE:
        _tell_role(desk)
        return
    wanted = {"sql": text_or_input(query), "params": [*param] if param else None}
    found = desk.call("POST", "/v1/sql", wanted)
    desk.out.record(found)
    rows = [[_cell(value) for value in row] for row in found["rows"]]
    desk.out.table(found["columns"], rows, "No rows.", every=True)
    if found["truncated"]:
        desk.out.talk("There is more than is given.")


def _tell_role(desk: Desk) -> None:
    from rota.wiring.inquiring import sql_role_ddl  # noqa: PLC0415 - seldom needed

    text = sql_role_ddl()
    desk.out.record({"sql": text})
    desk.out.line(text.rstrip())


def _cell(value: object) -> str:
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else compact(value)
