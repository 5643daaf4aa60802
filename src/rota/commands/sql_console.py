"""Read-only SQL over the documented views."""

from __future__ import annotations

import logging
import secrets
import time
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.responses import RequestModel, ResponseModel
from rota.errors import RotaError, Unavailable
from rota.model.keys import KeyScope
from rota.model.spaces import SpaceRole
from rota.store.sql_console import LONGEST_SQL, MOST_PARAMS, SqlQuery, SqlResult
from rota.store.tasks import find_space

log = logging.getLogger(__name__)

_Text = Annotated[str, Field(max_length=LONGEST_SQL)]
LARGEST = 2**63


def _bounded(value: object) -> object:
    if isinstance(value, int) and not -LARGEST <= value < LARGEST:
        message = "use a 64-bit integer, or text"
        raise ValueError(message)
    return value


_Number = Annotated[int, Field(ge=-LARGEST, lt=LARGEST)]
_Fraction = Annotated[float, Field(allow_inf_nan=False)]
_Param = Annotated[
    bool | _Number | _Fraction | _Text | None,
    Field(union_mode="left_to_right"),
    BeforeValidator(_bounded),
]


class SqlInput(RequestModel):
    """A query with the parameters `$1`, `$2` and so on."""

    sql: Annotated[str, Field(min_length=1, max_length=LONGEST_SQL)]
    params: list[_Param] = Field(default_factory=list, max_length=MOST_PARAMS)


class SqlResponse(ResponseModel):
    """The result of a query; `truncated` means that rows were left out."""

    request_id: str
    columns: list[str]
    rows: list[list[Any]]
    truncated: bool
    seconds: float


@command("POST", "/v1/sql", KeyScope.SQL, writes=False)
async def ask_sql(context: RequestContext, request: SqlInput) -> SqlResponse:
    """Run one SELECT on the documented views; at most 1,000 rows, 1 MiB and 2 seconds."""
    if context.app.sql_console is None:
        message = "SQL is not available here: start the daemon with `rota up`"
        raise Unavailable(message)
    space = None
    if context.caller.role is not SpaceRole.MAIN:
        space = (await context.store.read(find_space, context.caller.space)).id
    inquiry = SqlQuery(sql=request.sql, params=tuple(request.params), space_id=space)
    request_id = f"sql_{secrets.token_hex(6)}"
    begun = time.monotonic()
    try:
        found = await context.app.sql_console.ask(inquiry)
    except RotaError as error:
        _note(request_id, context, begun, error.code, None)
        raise
    _note(request_id, context, begun, "answered", found)
    return SqlResponse(
        request_id=request_id,
        columns=list(found.columns),
        rows=[list(row) for row in found.rows],
        truncated=found.truncated,
        seconds=round(time.monotonic() - begun, 3),
    )


def _note(
    request_id: str, context: RequestContext, begun: float, how: str, found: SqlResult | None
) -> None:
    """Log that a query was run, without its text, which may contain anything."""
    facts = {
        "request": request_id,
        "caller": context.caller.id,
        "space": context.caller.space,
        "how": how,
        "rows": 0 if found is None else len(found.rows),
        "seconds": round(time.monotonic() - begun, 3),
    }
    log.info("sql.asked", extra=facts)
