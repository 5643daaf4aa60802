"""Answers SQL on PostgreSQL, as a role that sees the views and nothing else.

Every question has a connection of its own, which is closed after it: whatever a query might leave
behind in a session, no other one finds it. The query stands inside one of Rota's own, so it can be
nothing but a SELECT; its transaction is read-only and never committed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement

from rota.errors import SqlFailed, SqlRefused, SqlTimeout, Unavailable
from rota.model.inquiries import MOST_BYTES, MOST_ROWS, SECONDS, Inquiry, Table
from rota.stores.kit.sql_words import FAILED, NOT_THERE, TOO_LONG, about, plain
from rota.stores.kit.turns import Turns
from rota.stores.postgres.connection import CONNECT_SECONDS, connect
from rota.stores.postgres.connections import let_go
from rota.stores.postgres.faults import GONE, place_of, translate
from rota.stores.postgres.session import Connection
from rota.stores.postgres.sql_lexicon import look_over
from rota.stores.postgres.sql_role import SCHEMA, SETTINGS, TOKEN, mark, sign

Prepared: TypeAlias = "PreparedStatement[asyncpg.Record]"

STEP = 8
"""Rows fetched at once; each is bounded by itself."""
MOST_COLUMNS = 100
PASSED_ON: tuple[type[BaseException], ...] = (asyncpg.QueryCanceledError, *GONE)
"""What ends a question, wherever in it."""
ROLE_WORDS = "run what `rota sql role` prints"
_READ_KEY = "select value from rota.facts where name = 'sql_key'"
_STANDING = f"""
select pg_catalog.obj_description(pg_catalog.to_regnamespace('{SCHEMA}'), 'pg_namespace'),
  (select r.rolsuper or r.rolbypassrls or r.rolcreaterole from pg_catalog.pg_roles r
    where r.rolname = current_user)
  or pg_catalog.has_schema_privilege('rota', 'usage')
"""  # noqa: S608 - a constant
_SIGN = f"select pg_catalog.set_config('{TOKEN}', $1, true)"


class RoleInquirer:
    """Asks as the role at `sql_url`, about the database at `address`."""

    def __init__(self, address: str, sql_url: str, turns: Turns | None = None) -> None:
        self._address = address
        self._sql_url = sql_url
        self._place = place_of(sql_url)
        self._turns = turns or Turns()
        self._key: str | None = None

    async def ask(self, inquiry: Inquiry) -> Table:
        """Return what a query finds."""
        sql = look_over(inquiry.sql)
        async with self._turns.turn(inquiry.space_id):
            key = self._key or await self._read_key()
            async with self._connected() as connection:
                try:
                    async with asyncio.timeout(SECONDS):
                        await connection.execute("begin read only")
                        await connection.execute(_SIGN, _token(key, inquiry, connection))
                        return await _answer(connection, sql, inquiry)
                except (TimeoutError, asyncpg.QueryCanceledError):
                    raise SqlTimeout(TOO_LONG) from None
                except GONE as fault:
                    message = f"the connection to the database {self._place} was lost: try again"
                    raise Unavailable(message) from fault

    async def close(self) -> None:
        """Nothing stays open between two questions."""

    async def _read_key(self) -> str:
        """Read the key that signs, as the owner of Rota's tables."""
        connection = await connect(self._address, place_of(self._address), look=True)
        try:
            self._key = await connection.fetchval(_READ_KEY)
        finally:
            await let_go(connection)
        if self._key is None:
            message = f"SQL is not set up in the database {self._place}: {ROLE_WORDS}"
            raise Unavailable(message)
        return self._key

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        try:
            connection: Connection = await asyncpg.connect(
                self._sql_url,
                timeout=CONNECT_SECONDS,
                command_timeout=CONNECT_SECONDS,
                statement_cache_size=0,
                server_settings=_asked_for(),
            )
        except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as fault:
            error = translate(fault, self._place)
            message = f"cannot use the database {self._place}: check sql_url"
            raise (error or Unavailable(message)) from fault
        try:
            await self._check(connection)
            yield connection
        finally:
            connection.terminate()

    async def _check(self, connection: Connection) -> None:
        """Refuse a role that may do more, and views that are not this Rota's."""
        found = await connection.fetchrow(_STANDING)
        stands, mighty = (None, True) if found is None else found
        if mighty:
            message = f"the role of sql_url may do too much: {ROLE_WORDS} and use that role"
            raise Unavailable(message)
        if stands != mark():
            message = (
                f"the views in the database {self._place} are not this version's: {ROLE_WORDS}"
            )
            raise Unavailable(message)


def _asked_for() -> dict[str, str]:
    """Return what a role may set for itself; the rest it was given for good."""
    settings = {name: value for name, value in SETTINGS.items() if name != "temp_file_limit"}
    return {**settings, "application_name": "rota-sql"}


def _token(key: str, inquiry: Inquiry, connection: Connection) -> str:
    return sign(key, inquiry.space_id, connection.get_server_pid())


async def _answer(connection: Connection, sql: str, inquiry: Inquiry) -> Table:
    names, prepared = await _prepared(connection, sql)
    numbered = [f"c{index}" for index in range(len(names))]
    rows: list[tuple[Any, ...]] = []
    size, truncated = 0, False
    try:
        cursor = await prepared.cursor(*inquiry.params)
        while not truncated and (found := await cursor.fetch(STEP)):
            for (text,) in found:
                size += MOST_BYTES + 1 if text is None else len(text.encode())
                if len(rows) == MOST_ROWS or size > MOST_BYTES:
                    truncated = True
                    break
                row = json.loads(text)
                rows.append(tuple(row[name] for name in numbered))
    except asyncpg.QueryCanceledError:
        raise
    except asyncpg.InsufficientPrivilegeError:
        raise SqlRefused(NOT_THERE) from None
    except (asyncpg.InterfaceError, TypeError, OverflowError) as fault:
        if connection.is_closed():
            raise
        raise SqlRefused(plain("its parameters do not fit, in number or in kind")) from fault
    except asyncpg.PostgresError as fault:
        if isinstance(fault, GONE):
            raise
        raise SqlFailed(FAILED) from None
    return Table(columns=names, rows=tuple(rows), truncated=truncated)


async def _prepared(connection: Connection, sql: str) -> tuple[tuple[str, ...], Prepared]:
    """Return a query's columns, and the query that gives each row as one JSON text."""
    try:
        alone = await connection.prepare(sql)  # it must be whole by itself, and only one
        names = tuple(column.name for column in alone.get_attributes())
        if not 0 < len(names) <= MOST_COLUMNS:
            raise SqlRefused(plain(f"ask for 1 to {MOST_COLUMNS} columns"))
        return names, await connection.prepare(_within(sql, len(names)))
    except PASSED_ON:
        raise
    except asyncpg.InsufficientPrivilegeError:
        raise SqlRefused(NOT_THERE) from None
    except asyncpg.SyntaxOrAccessError as fault:
        # Nothing was read yet: the sentence can quote nothing but the query.
        raise SqlRefused(about(fault.message or NOT_THERE)) from None
    except asyncpg.DataError:
        raise SqlFailed(FAILED) from None
    except asyncpg.PostgresError:
        raise SqlRefused(NOT_THERE) from None


def _within(sql: str, count: int) -> str:
    columns = ", ".join(f"c{index}" for index in range(count))
    return (
        f"with asked({columns}) as (\n{sql}\n)"  # noqa: S608 - that is what it is for
        f" select case when octet_length(one.row) <= {MOST_BYTES} then one.row end"
        f" from (select row_to_json(asked.*)::text as row from asked limit {MOST_ROWS + 1}) one"
    )
