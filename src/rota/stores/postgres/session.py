"""A PostgreSQL transaction as the shared operations see it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from rota.stores.kit.session import EVENTS, Row, Rows
from rota.stores.postgres.faults import GONE, NotBegun
from rota.stores.postgres.statements import NOTIFY, TELLING, Statements

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
AnyConnection: TypeAlias = "Connection | PoolConnectionProxy[asyncpg.Record]"

CLAIM_LOCK = "select pg_advisory_xact_lock(1919906913, 1)"
"""The first number spells `rota` in ASCII; 2 is the migrations' and 3 the pruner's lock."""

_SUSPECT = ("\\u0000", "\\ud")
"""How JSON spells what PostgreSQL's text cannot hold, and half of what looks like it."""


class PostgresSession:
    """Runs named queries on one connection, in as few round trips as their order allows.

    A write waits for the next statement and rides along with it (see `statements`), and the
    transaction begins with the first statement. An operation that only writes is therefore one
    statement, which is a transaction by itself.
    """

    def __init__(
        self, connection: AnyConnection, statements: Statements, *, begun: bool = False
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._riders: list[tuple[str, Mapping[str, object]]] = []
        self._begun = begun
        self._told = False
        self.topics: dict[str, None] = {}

    async def rows(self, query: str, **params: object) -> list[Row]:
        """Return every row."""
        await self._begin()
        await self._make_way(query)
        return await self._send(query, params)

    async def run(self, query: str, **params: object) -> None:
        """Execute a query for its effect, at the latest with the commit."""
        await self._make_way(query)
        self._riders.append((query, params))

    async def insert(
        self, query: str, count: int, *, last: bool = False, **params: object
    ) -> Sequence[int]:
        """Insert rows and return their ids in the order given.

        A last insert that nothing has begun for is a transaction by itself, topics included.
        """
        if last and not self._begun and self._may_join(query):
            rows = await self._send(query, params, telling=True)
        else:
            rows = await self.rows(query, **params)
        ids = [row[0] for row in rows]
        if len(ids) != count:
            message = f"{query} returned {len(ids)} ids for {count} rows"
            raise RuntimeError(message)
        return ids

    async def enter_claim(self) -> None:
        """Wait until no other claim is under way; each later statement has a newer snapshot."""
        if self._begun:
            await self._flush()
            await self._connection.execute(CLAIM_LOCK)
        else:
            await self._begin(f"begin; {CLAIM_LOCK}")

    def wake(self, topic: str) -> None:
        """Announce a topic to every process once this transaction has committed."""
        self.topics[topic] = None

    async def finish(self) -> None:
        """Send what has waited and the topics, without committing."""
        if self._for_others() and not self._told:
            await self._send(NOTIFY, {"topics": self._for_others()})
        else:
            await self._flush()

    async def commit(self) -> None:
        """Send what has waited and commit."""
        await self.finish()
        if self._begun:
            await self._connection.execute("commit")
            self._begun = False

    def _for_others(self) -> list[str]:
        """Return what is worth a notification; commits that notify wait for each other.

        Almost every commit records events. Other processes look for those by themselves.
        """
        return [topic for topic in self.topics if topic != EVENTS]

    async def _begin(self, how: str = "begin") -> None:
        if self._begun:
            return
        try:
            await self._connection.execute(how)
        except GONE as fault:
            raise NotBegun from fault
        self._begun = True

    def _may_join(self, query: str) -> bool:
        return self._statements.may_join(query, [name for name, _ in self._riders])

    async def _make_way(self, query: str) -> None:
        if not self._may_join(query):
            await self._begin()
            await self._flush()

    async def _flush(self) -> None:
        if self._riders:
            query, params = self._riders.pop()
            await self._send(query, params)

    async def _send(
        self, query: str, params: Mapping[str, object], *, telling: bool = False
    ) -> list[Row]:
        parts = [*self._riders, (query, params)]
        self._riders.clear()
        if telling:
            parts.append((TELLING, {"topics": self._for_others()}))
            self._told = True
        statement = self._statements.join(tuple(name for name, _ in parts))
        values = [as_value(parts[part][1][name]) for part, name in statement.parameters]
        return cast("list[Row]", await self._connection.fetch(statement.sql, *values))


class ReadingSession:
    """Runs reading queries: the first by itself, or any number on one snapshot.

    Most reads ask once, and one statement is consistent by itself. A second question without a
    snapshot raises AsksAgain, and the reader begins the operation anew with one.
    """

    def __init__(
        self, connection: AnyConnection, statements: Statements, *, snapshot: bool
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._snapshot = snapshot
        self._asked = False

    async def rows(self, query: str, **params: object) -> list[Row]:
        """Return every row."""
        if self._asked and not self._snapshot:
            raise AsksAgain
        self._asked = True
        statement = self._statements.join((query,))
        values = [as_value(params[name]) for _, name in statement.parameters]
        return cast("list[Row]", await self._connection.fetch(statement.sql, *values))

    async def run(self, query: str, **_: object) -> None:
        """Refuse: a read never writes."""
        message = f"{query} writes inside a read"
        raise RuntimeError(message)

    async def insert(
        self, query: str, count: int, *, last: bool = False, **_: object
    ) -> Sequence[int]:
        """Refuse: a read never writes."""
        message = f"{query} writes {count} rows inside a read ({last=})"
        raise RuntimeError(message)

    async def enter_claim(self) -> None:
        """Refuse: a read never claims."""
        message = "a claim inside a read"
        raise RuntimeError(message)

    def wake(self, topic: str) -> None:
        """Refuse: a read has nothing to tell."""
        message = f"a read announces {topic}"
        raise RuntimeError(message)


class AsksAgain(Exception):
    """A read needs a snapshot, because it asks more than one question."""


def as_value(value: object) -> object:
    """Return a parameter as the driver takes it: records become JSON, text becomes storable."""
    if isinstance(value, Rows):
        text = json.dumps(value)
        if any(suspect in text for suspect in _SUSPECT):
            text = json.dumps([{name: storable(v) for name, v in row.items()} for row in value])
        return text
    if isinstance(value, list):
        return [storable(item) for item in value]
    return storable(value)


def storable(value: object) -> object:
    """Return text without NUL and half surrogates, which PostgreSQL cannot store."""
    if not isinstance(value, str):
        return value
    text = str(value) if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text
