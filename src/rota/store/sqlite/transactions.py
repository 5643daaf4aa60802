"""A SQLite transaction.

A query that returns many rows costs one step for each, and each step lets go of the interpreter's
lock and has to win it back. So a SELECT that had many rows the last time is made to answer in one
step, as one JSON text; for a few rows that would cost more than it saves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import apsw

from rota.store.sqlite.connection import MEMORY, translate
from rota.store.transactions import (
    QueryRows,
    Row,
    StoreCache,
    finish,
    reach_stage,
    with_statement_faults,
)

FEW = 16
"""Rows that are read one by one."""


class SqliteTransaction:
    """Runs named queries on one connection; never suspends."""

    def __init__(
        self,
        connection: apsw.Connection,
        queries: Mapping[str, str],
        now: Callable[[], int],
        cache: StoreCache,
    ) -> None:
        self._connection = connection
        self._queries = queries
        self.now = now
        self.cache = cache
        self._packed: dict[str, str | None] = {}
        self._had_many: set[str] = set()
        self.topics: dict[str, None] = {}

    async def rows(self, query: str, **params: object) -> list[Row]:
        """Return every row."""
        found = self._in_one_step(query, params) if query in self._had_many else None
        if found is None:
            found = list(self._connection.execute(self._queries[query], _bind(params)))
        if len(found) > FEW:
            self._had_many.add(query)
        else:
            self._had_many.discard(query)
        return found

    def _in_one_step(self, query: str, params: dict[str, object]) -> list[Row] | None:
        packed = self._packed.get(query, "")
        if packed == "":
            packed = self._packed[query] = _pack(self._connection, self._queries[query])
        if packed is None:
            return None
        found: list[Row] = json.loads(self._connection.execute(packed, _bind(params)).get)
        return found

    async def run(self, query: str, **params: object) -> None:
        """Execute a query for its effect."""
        self._connection.execute(self._queries[query], _bind(params))

    async def insert(
        self,
        query: str,
        count: int,
        *,
        last: bool = False,  # noqa: ARG002 - a transaction costs no round trip here
        **params: object,
    ) -> Sequence[int]:
        """Insert rows and return their ids, which one statement gives out in sequence."""
        self._connection.execute(self._queries[query], _bind(params))
        newest = self._connection.last_insert_rowid()
        return range(newest - count + 1, newest + 1)

    async def enter_claim(self) -> None:
        """Nothing to wait for: a write transaction is alone."""

    async def version(self) -> int:
        """Return a number that changes when another connection has written to the database."""
        return int(str(self._connection.execute("pragma data_version").get))

    def wake(self, topic: str) -> None:
        """Announce a topic once this transaction has committed."""
        self.topics[topic] = None


_ARRAYS: frozenset[type] = frozenset({list, tuple, QueryRows})


def _bind(params: dict[str, Any]) -> dict[str, Any]:
    for name, value in params.items():
        if value.__class__ in _ARRAYS:
            params[name] = json.dumps(value)
    return params


def _pack(connection: apsw.Connection, sql: str) -> str | None:
    """Return a SELECT that answers in one row, or None for anything else."""
    if not sql.lstrip().lower().startswith(("select", "with")):
        return None
    columns = ", ".join(f"c{index}" for index in range(_width(connection, sql)))
    packed = f"with packed({columns}) as ({sql})"
    return f"{packed} select json_group_array(json_array({columns})) from packed"  # noqa: S608


class _Unbound(dict[str, None]):
    """Says nothing for every name."""

    def __missing__(self, name: str) -> None:
        return None


def _width(connection: apsw.Connection, sql: str) -> int:
    """Return how many columns a query has, which is known before its first step."""
    found: list[int] = []

    def look(cursor: apsw.Cursor, _sql: str, _bound: apsw.Bindings | None) -> bool:
        found.append(len(cursor.get_description()))
        return False

    cursor = connection.cursor()
    cursor.exec_trace = look
    with suppress(apsw.ExecTraceAbort):
        cursor.execute(sql, _Unbound())
    return found[0]


class Call(NamedTuple):
    """An operation to run, with its arguments."""

    operation: Callable[..., Coroutine[Any, Any, Any]]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def transact(
    connection: apsw.Connection, tx: SqliteTransaction, calls: Sequence[Call], *, write: bool
) -> Sequence[tuple[Any, list[str]] | BaseException]:
    """Run operations in one transaction; return each one's result with its topics, or its error.

    A single operation needs no savepoint: its error is the transaction's.
    """
    if write:
        calls = [call._replace(operation=with_statement_faults(call.operation)) for call in calls]
    writing = [call.operation for call in calls] if write else []
    try:
        reach_stage("begin", *writing)
        connection.execute("begin immediate" if write else "begin")
        try:
            outcomes = [_attempt(connection, tx, call, alone=len(calls) == 1) for call in calls]
            reach_stage("commit", *writing)
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise
        reach_stage("committed", *writing)
    except Exception as error:  # noqa: BLE001 - handed to every caller it concerns
        return [_translate(error, connection)] * len(calls)
    return outcomes


def _attempt(
    connection: apsw.Connection, tx: SqliteTransaction, call: Call, *, alone: bool
) -> tuple[Any, list[str]] | BaseException:
    operation, args, kwargs = call
    tx.topics = {}
    if alone:
        return finish(operation(tx, *args, **kwargs)), list(tx.topics)
    connection.execute("savepoint one")
    try:
        result = finish(operation(tx, *args, **kwargs))
    except Exception as error:
        if not connection.in_transaction:
            raise
        connection.execute("rollback to one")
        connection.execute("release one")
        return _translate(error, connection)
    connection.execute("release one")
    return result, list(tx.topics)


def _translate(fault: Exception, connection: apsw.Connection) -> Exception:
    error = translate(fault, connection.filename or MEMORY)
    if error is None:
        return fault
    error.__cause__ = fault
    return error
