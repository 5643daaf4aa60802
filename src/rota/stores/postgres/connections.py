"""The connections a store works with: few, warm, and replaced when they die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from rota.errors import Unavailable
from rota.stores.postgres.faults import ANY, GONE, NotBegun
from rota.stores.postgres.session import Connection

MOST = 8
"""Connections of one process beside the one that listens."""


class Connections:
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
    if not isinstance(fault, Exception) or isinstance(fault, (TimeoutError, NotBegun, *GONE)):
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
