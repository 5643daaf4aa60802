"""Connections: connect, migrate, and the pool."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg

from rota.errors import Unavailable
from rota.faultpoints import reach
from rota.store.postgres.transactions import ANY, GONE, Connection, TransactionNotBegun, translate
from rota.store.sql_files import Migration, check_current, load_migrations, pending

log = logging.getLogger(__name__)

PACKAGE = "rota.store.postgres"
OLDEST_POSTGRES = 14
CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 60.0
CACHED_STATEMENTS = 1_000

SETTINGS = {
    "application_name": "rota",
    "jit": "off",
    # Plans are made once a connection. They must not depend on how full a table happened to be
    # then, nor on statistics that lag behind a bulk load: from a few keys through an index to a
    # few rows is always the right way.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "random_page_cost": "1",
    # A process that was frozen inside a transaction must not keep the claim lock.
    "idle_in_transaction_session_timeout": "30s",
    "timezone": "UTC",
}

LOOKING = {"default_transaction_read_only": "on"}

MIGRATION_LOCK = "select pg_advisory_xact_lock(1919906913, 2)"


async def connect(address: str, place: str, *, look: bool = False) -> Connection:
    """Return a connection, or raise Unavailable with what to do; `look` makes it read-only."""
    try:
        connection: Connection = await asyncpg.connect(
            address,
            timeout=CONNECT_SECONDS,
            command_timeout=COMMAND_SECONDS,
            statement_cache_size=CACHED_STATEMENTS,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=0,
            server_settings={**SETTINGS, **LOOKING} if look else SETTINGS,
        )
    except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as fault:
        error = translate(fault, place)
        if error is None:
            message = f"cannot use the database {place}: check its address"
            raise Unavailable(message) from fault
        raise error from fault
    version = connection.get_server_version()
    if version.major < OLDEST_POSTGRES:
        await connection.close()
        found = f"the database {place} is PostgreSQL {version.major}"
        message = f"{found}: Rota needs {OLDEST_POSTGRES} or newer"
        raise Unavailable(message)
    return connection


async def migrate(connection: Connection, place: str) -> list[str]:
    """Bring the schema up to date; return the names of what was applied.

    Any number of processes may do this at once: one applies a step, the others wait and find it
    done. Schedules are counted before and after, and a step that loses one is rolled back.
    """
    migrations = load_migrations(PACKAGE)
    todo = pending(migrations, await read_version(connection), place)
    return [step.name for step in todo if await apply_step(connection, step)]


async def check_schema(connection: Connection, place: str) -> None:
    """Refuse a database whose schema is not this Rota's."""
    current = await read_version(connection)
    if current == 0:
        message = f"there is nothing of Rota in the database {place}: check the address"
        raise Unavailable(message)
    check_current(load_migrations(PACKAGE), current, place)


async def read_incarnation(connection: Connection) -> str:
    """Return the id this database was given when it was made."""
    return str(
        await connection.fetchval("select value from rota.metadata where name = 'incarnation'")
    )


async def _has_table(connection: Connection, name: str) -> bool:
    """Look into the catalog itself: to_regclass may answer from before a lock was waited for."""
    return bool(
        await connection.fetchval(
            "select exists (select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n"
            " on n.oid = c.relnamespace where n.nspname = 'rota' and c.relname = $1)",
            name,
        )
    )


async def read_version(connection: Connection) -> int:
    """Return the number of the last migration that was applied, 0 where there is nothing."""
    if not await _has_table(connection, "metadata"):
        return 0
    value = await connection.fetchval("select value from rota.metadata where name = 'schema'")
    return 0 if value is None else int(value)


async def apply_step(connection: Connection, step: Migration) -> bool:
    """Apply one step in its own transaction; false if another process was faster."""
    reach("migrate.begin")
    async with connection.transaction():
        await connection.execute(MIGRATION_LOCK)
        if await read_version(connection) >= step.number:  # another process was faster
            return False
        before = await _count_schedules(connection)
        if before is None:
            await _make_schema(connection)
        await connection.execute(step.sql)
        reach("migrate.applied")
        after = await _count_schedules(connection)
        if before is not None and after != before:
            change = f"{before} schedules to {after}"
            message = f"migration {step.name} would change {change}: not applied"
            raise Unavailable(message)
        facts = [("schema", str(step.number))]
        if before is None:
            facts.append(("incarnation", secrets.token_hex(16)))
        await connection.executemany(
            "insert into rota.metadata (name, value) values ($1, $2)"
            " on conflict (name) do update set value = excluded.value",
            facts,
        )
        reach("migrate.commit")
    reach("migrate.committed")
    log.info("store.migrated", extra={"migration": step.name})
    return True


async def _make_schema(connection: Connection) -> None:
    # Asked first, because creating it takes a right that its owner may not have.
    if await connection.fetchval("select to_regnamespace('rota')") is None:
        await connection.execute("create schema rota")


async def _count_schedules(connection: Connection) -> int | None:
    if not await _has_table(connection, "schedules"):
        return None
    count: int = await connection.fetchval(
        "select count(*) from rota.schedules where deleted_at is null"
    )
    return count


MOST = 8
"""Connections of one process beside the one that listens."""


class ConnectionPool:
    """Lends connections; the one given back last goes out first, its plans being warm.

    Unlike the driver's own pool it sends nothing when a connection comes back: whatever ended
    well left nothing behind, and what did not is rolled back or thrown away.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], most: int = MOST) -> None:
        self._connect = connect
        self._permits = asyncio.Semaphore(most)
        self._idle: list[Connection] = []
        self._lent: set[Connection] = set()
        self._closed = False

    @property
    def pids(self) -> frozenset[int]:
        """The server's processes behind these connections."""
        return frozenset(c.get_server_pid() for c in (*self._idle, *self._lent))

    def add(self, connection: Connection) -> None:
        """Take over a connection that was made elsewhere."""
        self._idle.append(connection)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Connection]:
        """Lend a connection that is in no transaction."""
        async with self._permits:
            connection = self._warm() or await self._connect()
            self._lent.add(connection)
            try:
                yield connection
            except BaseException as fault:
                await _undo(connection, fault)
                raise
            finally:
                self._lent.discard(connection)
                if self._closed:
                    connection.terminate()
                elif not connection.is_closed():
                    self._idle.append(connection)

    def _warm(self) -> Connection | None:
        if self._closed:
            message = "the store was closed: open it again first"
            raise Unavailable(message)
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def close(self) -> None:
        """Close what is idle now; what is lent is closed when it comes back."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await let_go(connection)


async def _undo(connection: Connection, fault: BaseException) -> None:
    """Roll back, or drop a connection whose state nobody knows."""
    if not isinstance(fault, Exception) or isinstance(
        fault, (TimeoutError, TransactionNotBegun, *GONE)
    ):
        connection.terminate()
        return
    try:
        if connection.is_in_transaction():
            await connection.execute("rollback")
    except ANY:
        connection.terminate()


async def let_go(connection: Connection) -> None:
    """Close a connection, whatever state it is in."""
    try:
        await connection.close(timeout=2.0)
    except ANY:
        connection.terminate()
