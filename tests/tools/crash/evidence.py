"""The evidence: a database as plain SQL finds it, with none of the engine's own queries."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import apsw
import asyncpg

Rows = list[dict[str, Any]]

TABLES = (
    *("tasks", "schedules", "runs", "attempts", "ledger", "questions"),
    *("deliveries", "events", "workers", "keys", "requests", "state", "seen"),
    *("deferred", "effects"),
    *("messages", "message_files"),
)
OPEN = (
    "select 'run ' || id || ' is ' || state || coalesce(' ' || place, '') from {0}runs"
    " where finished_at is null"
    " union all select 'delivery ' || id || ' is ' || state from {0}deliveries"
    " where state in ('pending', 'sending')"
)

VERSION = "select value from rota.facts where name = 'schema'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Every row that matters, and what the database says of its own health."""

    tables: dict[str, Rows]
    health: str

    def __getitem__(self, table: str) -> Rows:
        return self.tables[table]


class Database:
    """A database to look into; each look opens it anew, so that no process inherits anything."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._file = address.removeprefix("sqlite:///") if "sqlite:" in address else None

    def left_open(self) -> list[str]:
        """Return what has not ended, one sentence each."""
        if self._file is None:
            return asyncio.run(self._ask(OPEN.format("rota.")))
        connection = self._connect()
        try:
            return [str(row[0]) for row in connection.execute(OPEN.format(""))]
        finally:
            connection.close()

    def version(self) -> int:
        """Return the number of the schema's newest step."""
        if self._file is None:
            return int(asyncio.run(self._ask(VERSION))[0])
        connection = self._connect()
        try:
            return int(str(connection.execute("pragma user_version").get))
        finally:
            connection.close()

    def read(self) -> Evidence:
        """Return everything."""
        if self._file is None:
            return asyncio.run(self._read_server())
        connection = self._connect()
        try:
            connection.execute("begin")
            tables = {name: _rows(connection, f"select * from {name}") for name in TABLES}  # noqa: S608
            health = str(connection.execute("pragma integrity_check").get)
        finally:
            connection.close()
        return Evidence(tables=tables, health=health)

    def _connect(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READONLY
        connection = apsw.Connection(str(self._file), flags=flags)
        connection.set_busy_timeout(10_000)
        return connection

    async def _ask(self, sql: str) -> list[str]:
        connection = await asyncpg.connect(self.address)
        try:
            return [str(row[0]) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    async def _read_server(self) -> Evidence:
        connection = await asyncpg.connect(self.address)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                tables = {}
                for name in TABLES:
                    found = await connection.fetch(f"select * from rota.{name}")  # noqa: S608
                    tables[name] = [dict(row) for row in found]
        finally:
            await connection.close()
        return Evidence(tables=tables, health="ok")


def _rows(connection: apsw.Connection, sql: str) -> Rows:
    cursor = connection.execute(sql)
    names = [column[0] for column in cursor.get_description()] if _has_rows(cursor) else []
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _has_rows(cursor: apsw.Cursor) -> bool:
    try:
        cursor.get_description()
    except apsw.ExecutionCompleteError:
        return False
    return True
