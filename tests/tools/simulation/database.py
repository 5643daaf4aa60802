"""The one durable thing in a history: a database in memory that tells what every commit changed."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import apsw

from rota.store.sqlite.connection import connect, migrate
from rota.store.sqlite.queries import load_sqlite_queries
from rota.store.sqlite.transactions import Call, SqliteTransaction, transact
from rota.store.transactions import StoreCache
from tests.tools.power_cut import BreakingTransaction

MEMORY = ":memory:"
UNWATCHED = frozenset({"heads", "pings", "threads", "facts", "sqlite_sequence"})
"""Caches, and what never changes: nothing is promised about their rows."""

KEYS = {
    "attempts": 2,
    "limits": 2,
    "workers": 1,
    "state": 2,
    "seen": 3,
    "deferred": 3,
    "effects": 3,
}
"""How many leading columns name a row of a table that has no row ids."""

Row: TypeAlias = Any
"""A named tuple with the columns of a table."""

Operation: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]


class Change(NamedTuple):
    """What one transaction did to one row; `old` or `new` is None for an insert or a delete."""

    table: str
    old: Row
    new: Row


class Database:
    """Runs operations one after the other, each as a transaction."""

    def __init__(self) -> None:
        self._connection = _SPARE.pop() if _SPARE else _connected()
        self._connection.preupdate_hook(self._note)
        queries = load_sqlite_queries()
        self._tx = SqliteTransaction(self._connection, queries, lambda: 0, StoreCache())
        self._shapes = _shapes()
        self._changes: dict[tuple[object, ...], tuple[Any, Any]] = {}

    def run(
        self,
        call: Call,
        now: Callable[[], int],
        cache: StoreCache,
        *,
        write: bool,
        fuse: int | None = None,
    ) -> tuple[Any, list[str], list[Change]] | BaseException:
        """Run an operation whole or not at all; return its result, its topics and its changes.

        With a fuse it fails at that query, in the middle of the transaction.
        """
        self._changes.clear()
        if fuse is not None:
            call = Call(_broken, (call.operation, fuse, *call.args), call.kwargs)
        self._tx.now, self._tx.cache = now, cache
        outcome = transact(self._connection, self._tx, [call], write=write)[0]
        if isinstance(outcome, BaseException):
            return outcome
        return (*outcome, self._collect())

    def forget_caches(self) -> None:
        """Lose what claiming keeps beside the runs, as after a bad restore."""
        self._connection.execute("delete from heads; delete from pings")

    def rows(self, table: str) -> list[Row]:
        """Return every row of a table as it stands."""
        shape = self._shapes[table]
        return [shape(*row) for row in self._connection.execute(f"select * from {table}")]  # noqa: S608

    def close(self) -> None:
        """Empty it, and keep the connection with its compiled queries for the next history."""
        self._connection.preupdate_hook(None)
        self._connection.execute(_emptying())
        _SPARE.append(self._connection)

    def _note(self, update: apsw.PreUpdate) -> None:
        table = update.table_name
        if table in UNWATCHED:
            return
        old, new = update.old, update.new
        width = KEYS.get(table)
        row = new or old or ()
        key = (table, *row[:width]) if width else (table, row[0])
        first = self._changes.get(key)
        self._changes[key] = (old if first is None else first[0], new)

    def _collect(self) -> list[Change]:
        shapes = self._shapes
        changes = []
        for key, (old, new) in self._changes.items():
            table = str(key[0])
            if old != new:
                shape = shapes[table]
                changes.append(
                    Change(table, None if old is None else shape(*old), new and shape(*new))
                )
        return changes


async def _broken(
    tx: SqliteTransaction, operation: Operation, fuse: int, *args: Any, **kwargs: Any
) -> object:
    return await operation(BreakingTransaction(tx, fuse), *args, **kwargs)


def _connected() -> apsw.Connection:
    connection = connect(MEMORY)
    migrate(connection, MEMORY)
    return connection


@lru_cache(maxsize=1)
def _shapes() -> dict[str, Any]:
    """Return a named tuple for every table that is watched."""
    connection = _connected()
    return {
        table: namedtuple(table, _columns(connection, table))  # noqa: PYI024 - known only now
        for table in _tables(connection)
        if table not in UNWATCHED
    }


def _tables(connection: apsw.Connection) -> list[str]:
    found = connection.execute("select name from sqlite_master where type = 'table'")
    return [str(name) for (name,) in found]


def _columns(connection: apsw.Connection, table: str) -> list[str]:
    return [str(row[1]) for row in connection.execute(f"pragma table_info({table})")]


@lru_cache(maxsize=1)
def _emptying() -> str:
    """Return what makes a used database a new one, but for the id it was given."""
    tables = [table for table in _tables(_connected()) if table != "facts"]
    deletes = "".join(f"delete from {table};" for table in tables)  # noqa: S608
    deletes += "delete from facts where name <> 'incarnation';"
    return f"pragma foreign_keys = off; begin; {deletes} commit; pragma foreign_keys = on"


_SPARE: list[apsw.Connection] = []
"""Empty databases of the newest schema that earlier histories of this process have left."""
