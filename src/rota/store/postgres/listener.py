"""LISTEN/NOTIFY, and the database's clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

from rota.errors import Unavailable
from rota.ports.clock import Clock
from rota.store.postgres.connection import let_go
from rota.store.postgres.transactions import ANY, Connection

log = logging.getLogger(__name__)

CHANNEL = "rota"
TOPICS = ("runs", "delayed", "schedules", "deliveries", "cancels", "keys", "events")
"""Everything that can be announced; all of it is after a gap, because any of it may be missed."""

CLOCK_EVERY = 5.0
CLOCK_STALE = 60_000_000
"""Microseconds after which one who does not listen reads the clock before the next write."""

FIRST_PAUSE = 0.05
MAX_PAUSE = 10.0
SAMPLES = 3
_READ_CLOCK = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"


class DatabaseClock:
    """The database's time, kept by this machine's monotonic clock between two readings.

    Of a few readings the one with the shortest round trip counts; it is wrong by at most half of
    that. The time never goes back: if the database's clock was set back, this one waits for it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead: int | None = None
        self._read_at = 0
        self._last = 0

    @property
    def stale(self) -> bool:
        """Whether the last reading is so old that the clocks may have drifted apart."""
        return self._monotonic() - self._read_at > CLOCK_STALE

    async def set_by(self, connection: Connection) -> None:
        """Read the database's clock anew."""
        best: tuple[int, int] | None = None
        for _ in range(SAMPLES):
            sent = self._monotonic()
            micros: int = await connection.fetchval(_READ_CLOCK)
            received = self._monotonic()
            reading = (received - sent, micros - (sent + received) // 2)
            best = reading if best is None else min(best, reading)
        if best is not None:
            self._ahead = best[1]
            self._read_at = self._monotonic()

    def now(self) -> int:
        """Return the database's time in microseconds."""
        if self._ahead is None:
            message = "the store is not open: use `async with`, or await open() first"
            raise Unavailable(message)
        self._last = max(self._last, self._monotonic() + self._ahead)
        return self._last

    def _monotonic(self) -> int:
        return int(self._clock.monotonic() * 1_000_000)


class NotificationListener:
    """One connection that listens; lost, it comes back by itself and announces everything once."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        announce: Callable[[Sequence[str]], None],
        own_pids: Callable[[], Collection[int]],
        clock: DatabaseClock,
    ) -> None:
        self._connect = connect
        self._announce = announce
        self._own_pids = own_pids
        self._clock = clock
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The server's process behind the connection that listens now."""
        return None if self._connection is None else self._connection.get_server_pid()

    async def start(self) -> None:
        """Listen from now on."""
        self._connection = await self._listen()
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Listen no longer."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._leave()

    async def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await let_go(connection)

    async def _listen(self) -> Connection:
        connection = await self._connect()
        try:
            await connection.add_listener(CHANNEL, self._hear)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _hear(self, _connection: object, pid: int, _channel: str, topic: object) -> None:
        # What this store committed itself was announced at once, without the detour.
        if pid not in self._own_pids():
            self._announce([str(topic)])

    async def _keep(self) -> None:
        while True:
            if self._connection is not None:
                error = await self._stay(self._connection)
                log.warning("store.listener_lost", extra={"error": error})
            await self._leave()
            self._connection = await self._come_back()
            self._announce(TOPICS)
            log.info("store.listener_reconnected")

    async def _stay(self, connection: Connection) -> str:
        """Read the clock now and then; return why the connection was lost."""
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        while not (lost.is_set() or connection.is_closed()):
            try:
                async with asyncio.timeout(CLOCK_EVERY):
                    await lost.wait()
            except TimeoutError:
                try:
                    await self._clock.set_by(connection)
                except ANY as fault:
                    return str(fault)
        return "the server closed the connection"

    async def _come_back(self) -> Connection:
        pause = FIRST_PAUSE
        while True:
            await asyncio.sleep(pause)
            try:
                return await self._listen()
            except ANY as fault:
                log.debug("store.listener_waiting", extra={"error": str(fault)})
            pause = min(pause * 2, MAX_PAUSE)
