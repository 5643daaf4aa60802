"""PostgreSQL: a pool of connections, retries, and the server's clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from rota.errors import Invalid, Unavailable
from rota.model.backups import Backup, RestoreResult
from rota.model.instants import to_micros
from rota.model.runs import Enqueued, RunBatch
from rota.model.schedules import Decide
from rota.ports.clock import Clock
from rota.store import quotas
from rota.store.backup import open_backup
from rota.store.postgres.backup import KIND, restore_backup, take_backup
from rota.store.postgres.connection import (
    ConnectionPool,
    check_schema,
    connect,
    let_go,
    migrate,
    read_incarnation,
)
from rota.store.postgres.listener import DatabaseClock, NotificationListener
from rota.store.postgres.transactions import (
    AGAIN,
    GONE,
    Connection,
    PostgresReadTransaction,
    PostgresTransaction,
    RetryTransaction,
    Statements,
    place_of,
    translate,
)
from rota.store.sql_files import load_queries
from rota.store.store import Database
from rota.store.transactions import Result, reach_stage, with_statement_faults

log = logging.getLogger(__name__)

MOST_TRIES = 10
PAUSE = 0.01
_SNAPSHOT = "begin isolation level repeatable read, read only"


class PostgresDatabase(Database):
    """A PostgreSQL database; its clock is everybody's clock, unless a test brings its own."""

    remote = True

    def __init__(self, address: str, clock: Clock, *, own_clock: bool = False) -> None:
        super().__init__()
        self._address = address
        self._place = place_of(address)
        self.path = f"postgresql://{self._place}"
        self._given_clock = clock
        self._own_clock = clock if own_clock else None
        self._clock = DatabaseClock(clock)
        self._statements = Statements(load_queries())
        self._ask_more: set[Callable[..., object]] = set()
        self._connections: ConnectionPool | None = None
        self._watch: NotificationListener | None = None

    def second(self) -> Self | None:
        """Return another store with connections of its own; none where a test owns the time."""
        return None if self._own_clock else type(self)(self._address, self._given_clock)

    async def take_roles(self) -> bool:
        """Listen to what others announce; any number of processes may plan and work."""
        connections = self._open_connections()
        if self._watch is None:
            watch = NotificationListener(
                self._connect, self.announce, lambda: connections.pids, self._clock
            )
            try:
                await watch.start()
            except BaseException as fault:
                self._translated(fault)
                raise
            self._watch = watch
        return False

    async def open(self) -> None:
        """Connect, bring the schema up to date and read the database's clock."""
        await self._begin(self._connect, migrate)

    async def open_read_only(self) -> None:
        """Connect for reading alone; a standby will do."""
        await self._begin(self._connect_read_only, check_schema)

    async def _begin(
        self,
        connect: Callable[[], Awaitable[Connection]],
        prepare: Callable[[Connection, str], Awaitable[object]],
    ) -> None:
        if self._connections is not None:
            return
        connections = ConnectionPool(connect)
        try:
            async with connections.lend() as connection:
                await prepare(connection, self._place)
                self.incarnation = await read_incarnation(connection)
                await self._clock.set_by(connection)
        except BaseException as fault:
            await connections.close()
            self._translated(fault)
            raise
        self._connections = connections

    async def close(self) -> None:
        """Finish what was begun and close every connection."""
        if self._connections is None:
            return
        await self._close_groups()
        connections, watch = self._connections, self._watch
        self._connections = self._watch = None
        if watch is not None:
            await watch.stop()
        await connections.close()

    def now(self) -> int:
        """Return the database's time, or the injected clock's if the store was made so."""
        return self._clock.now() if self._own_clock is None else to_micros(self._own_clock.now())

    async def _write(
        self,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        """Run an operation in a transaction; what lost against another one is tried again."""
        try:
            result = await self._write_with_retries(operation, args, kwargs)
        except Exception as error:
            self.last_write.failed(error)
            raise
        self.last_write.done()
        return result

    async def _write_with_retries(
        self,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        connections = self._open_connections()
        for tried in range(1, MOST_TRIES + 1):
            try:
                return await self._write_once(connections, operation, args, kwargs)
            except AGAIN as fault:
                if tried == MOST_TRIES:
                    self._translated(fault)
                    raise
                log.debug("store.tries_again", extra={"error": type(fault).__name__})
                await asyncio.sleep(PAUSE * (tried - 1))
            except Exception as fault:
                self._translated(fault)
                raise
        raise AssertionError

    async def _write_once(
        self,
        connections: ConnectionPool,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        reach_stage("begin", operation)
        async with connections.lend() as connection:
            if self._clock.stale:
                await self._clock.set_by(connection)
            tx = PostgresTransaction(connection, self._statements, self.now, self.cache)
            result = await with_statement_faults(operation)(tx, *args, **kwargs)
            reach_stage("commit", operation)
            await tx.commit()
            reach_stage("committed", operation)
        self.announce(list(tx.topics))
        reach_stage("answered", operation)
        return result

    async def _read(
        self,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        """Run a reading operation, on one snapshot if it asks more than once."""
        connections = self._open_connections()
        for tried in range(1, MOST_TRIES + 1):
            try:
                return await self._read_once(connections, operation, args, kwargs)
            except RetryTransaction:
                self._ask_more.add(operation)
            except GONE as fault:  # an idle connection had died; a read may always be repeated
                if tried == MOST_TRIES or isinstance(fault, TimeoutError):
                    self._translated(fault)
                    raise
            except Exception as fault:
                self._translated(fault)
                raise
        raise AssertionError

    async def _read_once(
        self,
        connections: ConnectionPool,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        snapshot = operation in self._ask_more
        async with connections.lend() as connection:
            tx = PostgresReadTransaction(
                connection, self._statements, self.now, self.cache, snapshot=snapshot
            )
            if not snapshot:
                return await operation(tx, *args, **kwargs)
            await connection.execute(_SNAPSHOT)
            result = await operation(tx, *args, **kwargs)
            await connection.execute("commit")
            return result

    async def backup(self, path: str, *, force: bool = False) -> Backup:
        """Write a backup, in one snapshot."""
        try:
            async with self._open_connections().lend() as connection:
                return await take_backup(connection, self._place, path, self.now(), force=force)
        except Exception as fault:
            self._translated(fault)
            raise

    async def restore(
        self, path: str, pass_over: Decide | None, *, force: bool = False
    ) -> RestoreResult:
        """Put a backup in the place of Rota's tables, in one transaction."""
        with open_backup(path, KIND) as archive:
            connection = await connect(self._address, self._place)
            try:
                await self._clock.set_by(connection)
                return await restore_backup(
                    connection,
                    self._statements,
                    self._place,
                    archive,
                    pass_over,
                    self.now(),
                    force=force,
                )
            except Exception as fault:
                self._translated(fault)
                raise
            finally:
                await let_go(connection)

    async def enqueue_within(
        self, connection: object, batches: Sequence[RunBatch]
    ) -> list[list[Enqueued]]:
        """Queue runs inside the transaction the caller has open; they exist when it commits."""
        if not isinstance(connection, (asyncpg.Connection, PoolConnectionProxy)):
            kind = type(connection).__name__
            raise Invalid("connection", kind, "give an asyncpg connection with an open transaction")
        if not connection.is_in_transaction():
            advice = "it is in no transaction: open one with `async with connection.transaction():`"
            raise Invalid("connection", type(connection).__name__, advice)
        tx = PostgresTransaction(connection, self._statements, self.now, self.cache, begun=True)
        unlimited = self.cache.unlimited_spaces
        try:
            outcomes = await quotas.enqueue_within(tx, batches, self.now(), unlimited=unlimited)
            await tx.finish()
        except Exception as fault:
            self._translated(fault)
            raise
        return outcomes

    async def _connect(self) -> Connection:
        connection = await connect(self._address, self._place)
        try:
            await self._check_incarnation(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _check_incarnation(self, connection: Connection) -> None:
        """Leases of another incarnation count no more, and nobody may go on with them."""
        if self.incarnation and await read_incarnation(connection) != self.incarnation:
            message = f"the database {self._place} was restored: start this process again"
            raise Unavailable(message)

    async def _connect_read_only(self) -> Connection:
        return await connect(self._address, self._place, look=True)

    def _open_connections(self) -> ConnectionPool:
        if self._connections is None:
            message = "the store is not open: use `async with`, or await open() first"
            raise Unavailable(message)
        return self._connections

    def _translated(self, fault: BaseException) -> None:
        """Raise Rota's own error for what a caller may act on."""
        error = translate(fault, self._place)
        if error is not None:
            raise error from fault
