"""A PostgreSQL transaction, prepared statements and driver errors.

A write that nobody waits for may ride along with the next statement, as a data-modifying CTE, and
its round trip is saved. All parts of one statement read the same snapshot, so a part may join only
if it touches no table that an earlier part writes. A part that reads what a later one writes is
welcome: it reads the old state, exactly as if it had gone first. Tables are recognised by the
schema's name, which every query of this dialect spells out.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from rota.errors import Busy, RotaError, Unavailable
from rota.store.sql_files import PARAMETER
from rota.store.transactions import EVENTS, QueryRows, Row, StoreCache

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
AnyConnection: TypeAlias = "Connection | PoolConnectionProxy[asyncpg.Record]"

CLAIM_LOCK = "select pg_advisory_xact_lock(1919906913, 1)"
"""The first number spells `rota` in ASCII; 2 is the migrations' and 3 the pruner's lock."""

_SUSPECT = ("\\u0000", "\\ud")
"""How JSON spells what PostgreSQL's text cannot hold, and half of what looks like it."""


class PostgresTransaction:
    """Runs named queries on one connection, in as few round trips as their order allows.

    A write waits for the next statement and rides along with it (see `statements`), and the
    transaction begins with the first statement. An operation that only writes is therefore one
    statement, which is a transaction by itself.
    """

    def __init__(
        self,
        connection: AnyConnection,
        statements: Statements,
        now: Callable[[], int],
        cache: StoreCache,
        *,
        begun: bool = False,
    ) -> None:
        self._connection = connection
        self._statements = statements
        self.now = now
        self.cache = cache
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
            raise TransactionNotBegun from fault
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


class PostgresReadTransaction:
    """Runs reading queries: the first by itself, or any number on one snapshot.

    Most reads ask once, and one statement is consistent by itself. A second question without a
    snapshot raises AsksAgain, and the reader begins the operation anew with one.
    """

    def __init__(
        self,
        connection: AnyConnection,
        statements: Statements,
        now: Callable[[], int],
        cache: StoreCache,
        *,
        snapshot: bool,
    ) -> None:
        self._connection = connection
        self._statements = statements
        self.now = now
        self.cache = cache
        self._snapshot = snapshot
        self._asked = False

    async def rows(self, query: str, **params: object) -> list[Row]:
        """Return every row."""
        if self._asked and not self._snapshot:
            raise RetryTransaction
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


class RetryTransaction(Exception):
    """A read needs a snapshot, because it asks more than one question."""


def as_value(value: object) -> object:
    """Return a parameter as the driver takes it: records become JSON, text becomes storable."""
    if isinstance(value, QueryRows):
        text = json.dumps(value)
        if any(suspect in text for suspect in _SUSPECT):
            text = json.dumps([{name: storable(v) for name, v in row.items()} for row in value])
        return text
    if isinstance(value, (list, tuple)):
        return [storable(item) for item in value]
    return storable(value)


def storable(value: object) -> object:
    """Return text without NUL and half surrogates, which PostgreSQL cannot store."""
    if not isinstance(value, str):
        return value
    text = str(value) if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


NOTIFY = "notify"
"""The one statement the dialect adds: topics for every process that listens."""

TELLING = "telling"
"""Stands last: the rows are those of the query before it, and topics are told with them."""

_TELLING_SQL = (
    "select made.* from made cross join (select count(pg_notify('rota', t.topic))"
    " from unnest(:topics::text[]) as t(topic)) as told"
)
_NOTIFY_SQL = "select pg_notify('rota', t.topic) from unnest(:topics::text[]) as t(topic)"
_TABLE = re.compile(r"\brota\.(\w+)")
_WRITTEN = re.compile(r"\b(?:insert into|update|delete from)\s+rota\.(\w+)")
_WITH = re.compile(r"with\s+(recursive\s+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with numbered parameters, and where each is found: the part and its name."""

    sql: str
    parameters: tuple[tuple[int, str], ...]


class Statements:
    """Every query of the dialect, compiled on first use."""

    def __init__(self, queries: Mapping[str, str]) -> None:
        self._queries = {**queries, NOTIFY: _NOTIFY_SQL, TELLING: _TELLING_SQL}
        self._touched = {n: frozenset(_TABLE.findall(q)) for n, q in self._queries.items()}
        self._written = {n: frozenset(_WRITTEN.findall(q)) for n, q in self._queries.items()}
        self._compiled: dict[tuple[str, ...], Statement] = {}

    def may_join(self, query: str, riders: Sequence[str]) -> bool:
        """Tell whether a query may share a statement with writes that stand before it."""
        touched = self._touched[query]
        return all(touched.isdisjoint(self._written[rider]) for rider in riders)

    def join(self, names: tuple[str, ...]) -> Statement:
        """Return one statement for queries that may share it; its rows are those of the last."""
        statement = self._compiled.get(names)
        if statement is None:
            told = names[-1] == TELLING
            queries = [self._queries[name] for name in names]
            statement = self._compiled[names] = _join(queries, told=told)
        return statement


def _join(queries: Sequence[str], *, told: bool) -> Statement:
    numbers: dict[tuple[int, str], int] = {}
    parts = [_number(query, part, numbers) for part, query in enumerate(queries)]
    *riders, last = parts
    if riders:
        opening = _WITH.match(last)
        recursive = "" if opening is None else opening[1] or ""
        names = [f"ride_{part}" for part in range(len(riders))]
        if told:
            names[-1] = "made"
        ctes = ", ".join(f"{name} as ({sql})" for name, sql in zip(names, riders, strict=True))
        rest = f" {last}" if opening is None else f", {last[opening.end() :]}"
        last = f"with {recursive}{ctes}{rest}"
    return Statement(last, tuple(numbers))


def _number(query: str, part: int, numbers: dict[tuple[int, str], int]) -> str:
    def number(match: re.Match[str]) -> str:
        return f"${numbers.setdefault((part, match[1]), len(numbers) + 1)}"

    return PARAMETER.sub(number, query)


class TransactionNotBegun(Exception):
    """The connection had died before the transaction could begin; nothing has happened."""


GONE: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""The connection is of no further use."""

ANY: tuple[type[BaseException], ...] = (asyncpg.PostgresError, Unavailable, *GONE)
"""Whatever can come of talking to a server."""

AGAIN: tuple[type[BaseException], ...] = (
    TransactionNotBegun,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.UniqueViolationError,
)
"""Another transaction was faster; the same operation on a new snapshot sees what it did."""

_ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidPasswordError, "it refuses the password: check user and password"),
    (asyncpg.InvalidAuthorizationSpecificationError,
     "it refuses the user: check its name and rights"),
    (asyncpg.InvalidCatalogNameError, "the database does not exist: create it with createdb"),
    (asyncpg.TooManyConnectionsError, "it has no connection left: raise max_connections"),
    (asyncpg.CannotConnectNowError, "it is starting or stopping: try again in a moment"),
    (asyncpg.ReadOnlySQLTransactionError,
     "it may only be read: allow writing, or use the primary's address"),
    (asyncpg.InsufficientPrivilegeError,
     "the user lacks rights: as its owner run `create schema rota authorization <user>`"),
    (asyncpg.InsufficientResourcesError, "it has no room left: free disk or memory"),
    (asyncpg.UndefinedTableError, "Rota's tables are missing: start Rota once to create them"),
    (asyncpg.ClientConfigurationError, "the address is wrong: write postgresql://user@host/name"),
    (TimeoutError, "it did not answer in time"),
    (asyncio.CancelledError, "the request was given up"),
    (asyncpg.QueryCanceledError, "somebody cancelled the query"),
)  # fmt: skip


def place_of(address: str) -> str:
    """Return an address as it may be shown: host and database, no user and no password."""
    parts = urlsplit(address)
    query = parse_qs(parts.query)
    host = parts.hostname or unquote(query.get("host", [""])[0]) or "localhost"
    database = unquote(parts.path.lstrip("/")) or query.get("database", [""])[0]
    port = "" if parts.hostname is None or parts.port is None else f":{parts.port}"
    return f"{host}{port}/{database}"


def translate(fault: BaseException, place: str) -> RotaError | None:
    """Return the error a caller may act on, or None for what only a programmer can mend."""
    if isinstance(fault, RotaError):
        return None
    if isinstance(fault, TransactionNotBegun) and fault.__cause__ is not None:
        return translate(fault.__cause__, place)
    if isinstance(fault, (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)):
        return Busy(f"the database {place} is busy: other transactions keep winning, try again")
    for kind, advice in _ADVICE:
        if isinstance(fault, kind):
            return Unavailable(f"cannot use the database {place}: {advice}")
    if isinstance(fault, GONE):
        advice = "check that it runs and that its address is right"
        return Unavailable(f"cannot reach the database {place}: {advice}")
    return None
