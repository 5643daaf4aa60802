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
        message = "use a whole number of 64 bits, or text"
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
    """One query; `$1`, `$2` and so on in it stand for the parameters."""

    sql: Annotated[str, Field(min_length=1, max_length=LONGEST_SQL)]
    params: list[_Param] = Field(default_factory=list, max_length=MOST_PARAMS)


class SqlResponse(ResponseModel):
    """What a query found: `truncated` says that there was more than is given."""

    request_id: str
    columns: list[str]
    rows: list[list[Any]]
    truncated: bool
    seconds: float


@command("POST", "/v1/sql", KeyScope.SQL, writes=False)
async def ask_sql(office: RequestContext, asked: SqlInput) -> SqlResponse:
    """Ask one SELECT over the documented views; at most 1,000 rows, 1 MiB and 2 seconds."""
    if office.app.sql_console is None:
        message = "SQL cannot be asked here: ask the daemon, with `rota up` running"
        raise Unavailable(message)
    space = None
    if office.caller.role is not SpaceRole.MAIN:
        space = (await office.store.read(find_space, office.caller.space)).id
    inquiry = SqlQuery(sql=asked.sql, params=tuple(asked.params), space_id=space)
    request_id = f"sql_{secrets.token_hex(6)}"
    begun = time.monotonic()
    try:
        found = await office.app.sql_console.ask(inquiry)
    except RotaError as fault:
        _note(request_id, office, begun, fault.code, None)
        raise
    _note(request_id, office, begun, "answered", found)
    return SqlResponse(
        request_id=request_id,
        columns=list(found.columns),
        rows=[list(row) for row in found.rows],
        truncated=found.truncated,
        seconds=round(time.monotonic() - begun, 3),
    )


def _note(
    request_id: str, office: RequestContext, begun: float, how: str, found: SqlResult | None
) -> None:
    """Write down that somebody asked, and nothing of what: a query may hold anything."""
    facts = {
        "request": request_id,
        "caller": office.caller.id,
        "space": office.caller.space,
        "how": how,
        "rows": 0 if found is None else len(found.rows),
        "seconds": round(time.monotonic() - begun, 3),
    }
    log.info("sql.asked", extra=facts)
