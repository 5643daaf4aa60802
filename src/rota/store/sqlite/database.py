"""SQLite: a file with one writing and one reading thread, or memory."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import apsw

from rota.errors import Unavailable
from rota.faultpoints import reach
from rota.model.backups import Backup, RestoreResult
from rota.model.instants import to_micros
from rota.model.problems import Problem
from rota.model.schedules import Decide
from rota.ports.clock import Clock
from rota.store.last_write import LastWrite
from rota.store.sqlite.backup import restore_backup, take_backup
from rota.store.sqlite.connection import (
    MEMORY,
    check_schema,
    connect,
    connect_read_only,
    leave_a_gap,
    leave_a_gap_after_a_cut,
    migrate,
    note_light,
    read_boot,
    read_incarnation,
    translated,
)
from rota.store.sqlite.disk_space import room_problems
from rota.store.sqlite.file_modes import make_private
from rota.store.sqlite.instance_lock import InstanceLock, WakeupFile
from rota.store.sqlite.queries import load_sqlite_queries
from rota.store.sqlite.transactions import Call, SqliteTransaction, transact
from rota.store.store import Database
from rota.store.transactions import Operation, Params, Result, reach_stage

MAX_JOINED = 64
"""How many operations share a transaction at most."""


@dataclass(frozen=True, slots=True)
class _Job:
    call: Call
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[tuple[Any, list[str]]]
    write: bool
    light: bool = False


class _Thread:
    """Owns a connection and runs operations on it in the order given.

    Operations that have come to wait while one was under way share the next transaction, each in a
    savepoint of its own: many writers cost one sync of the disk, and one's fault stays its own.
    A transaction of light ones alone costs none: the next sync has it.
    """

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        start: Callable[[apsw.Connection], SqliteTransaction],
        *,
        write: bool,
        ring: Callable[[Sequence[str]], None] | None = None,
        last_write: LastWrite | None = None,
    ) -> None:
        self._last_write = last_write or LastWrite()
        self._connect = connect
        self._start = start
        self._write = write
        self._ring = ring
        self._light = False
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._work, name=f"rota-sqlite-{'writer' if write else 'reader'}", daemon=True
        )
        self._thread.start()

    async def run(
        self,
        call: Call,
        *,
        write: bool | None = None,
        light: bool = False,
    ) -> tuple[Any, list[str]]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[Any, list[str]]] = loop.create_future()
        writes = self._write if write is None else write
        self._jobs.put(_Job(call, loop, answer, writes, light))
        return await answer

    def _sync(self, connection: apsw.Connection, *, light: bool) -> None:
        """Let the commits of this connection wait for the disk, or not."""
        if light is not self._light:
            connection.execute(f"pragma synchronous = {'normal' if light else 'full'}")
            self._light = light

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        connection = self._connect()
        tx = self._start(connection)
        closing = False
        while not closing:
            jobs = [self._jobs.get()]
            while len(jobs) < MAX_JOINED and not self._jobs.empty():
                jobs.append(self._jobs.get())
            closing = None in jobs
            waiting = [job for job in jobs if job is not None]
            for write in (True, False):
                self._run(connection, tx, [j for j in waiting if j.write is write], write)
        connection.close()

    def _run(
        self, connection: apsw.Connection, tx: SqliteTransaction, jobs: list[_Job], write: bool
    ) -> None:
        if not jobs:
            return
        calls = [job.call for job in jobs]
        outcomes: Sequence[tuple[Any, list[str]] | BaseException]
        try:
            changes = connection.total_changes()
            if write:
                self._sync(connection, light=all(job.light for job in jobs))
            outcomes = transact(connection, tx, calls, write=write)
            if write and connection.total_changes() != changes:
                self._last_write.done()  # what changes nothing is done on a full disk, too
        except BaseException as fault:  # noqa: BLE001 - the thread lives on, its callers are told
            outcomes = [fault] * len(jobs)
        topics: dict[str, None] = {}
        for job, outcome in zip(jobs, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                if write:
                    self._last_write.failed(outcome)
                _tell(job, partial(_refuse, job.answer, outcome))
            else:
                _tell(job, partial(_resolve, job.answer, outcome))
                topics.update(dict.fromkeys(outcome[1]))
        if topics and self._ring is not None:
            self._ring(tuple(topics))


def _tell(job: _Job, callback: Callable[[], None]) -> None:
    try:
        job.loop.call_soon_threadsafe(callback)
    except RuntimeError:  # the loop has closed; nobody waits any more
        return


def _resolve(answer: asyncio.Future[tuple[Any, list[str]]], done: tuple[Any, list[str]]) -> None:
    if not answer.done():
        answer.set_result(done)


def _refuse(answer: asyncio.Future[tuple[Any, list[str]]], fault: BaseException) -> None:
    if not answer.done():
        answer.set_exception(fault)


class SqliteDatabase(Database):
    """A database file; other processes may write to it too, one transaction at a time."""

    def __init__(self, path: str, clock: Clock) -> None:
        super().__init__()
        self.path = path
        self._clock = clock
        self._threads: tuple[_Thread, _Thread] | None = None
        self._boot = read_boot()
        self._light = False
        self._lock = InstanceLock(Path(f"{path}.lock"))
        self._doorbell = WakeupFile(path, self.announce)

    async def take_roles(self) -> bool:
        """Take the lock beside the file: only one process plans and works on it."""
        anew = self._lock.take()
        reach("lock.taken")
        if anew:
            try:
                await asyncio.get_running_loop().run_in_executor(None, leave_a_gap, self.path)
            except BaseException:
                self._lock.release()
                raise
        self._doorbell.listen(self._version)
        return True

    def roles_taken(self) -> bool | None:
        """Return whether the lock beside the file is taken."""
        return self._lock.is_taken()

    async def problems(self) -> list[Problem]:
        """Return why the last write was refused, and whether there is room for the next ones."""
        room = await asyncio.get_running_loop().run_in_executor(None, room_problems, self.path)
        return [*await super().problems(), *room]

    def is_gone(self, host: str) -> bool:
        """Tell whether nobody on this host has the roles, so that its workers are gone."""
        return self.roles_taken() is False and host == socket.gethostname()

    async def _version(self) -> int:
        # Only the writing connection can tell others' writes from this process's own.
        call = Call(SqliteTransaction.version, (), {})
        version, _ = await self._open_threads()[0].run(call, write=False)
        return int(version)

    async def open(self) -> None:
        """Create or migrate the file and start the threads."""
        if self._threads is not None:
            return
        await asyncio.get_running_loop().run_in_executor(None, self._prepare)
        start = self._transactions()
        self._threads = (
            _Thread(
                partial(connect, self.path),
                start,
                write=True,
                ring=self._doorbell.ring,
                last_write=self.last_write,
            ),
            _Thread(partial(connect, self.path), start, write=False),
        )

    def _transactions(self) -> Callable[[apsw.Connection], SqliteTransaction]:
        queries = load_sqlite_queries()
        return lambda connection: SqliteTransaction(connection, queries, self.now, self.cache)

    async def open_read_only(self) -> None:
        """Start one thread that can only read, on a file that must be there."""
        if self._threads is None:
            await asyncio.get_running_loop().run_in_executor(None, self._prepare_read_only)
            reader = partial(connect_read_only, self.path)
            thread = _Thread(reader, self._transactions(), write=False)
            self._threads = (thread, thread)

    def _prepare_read_only(self) -> None:
        connection = connect_read_only(self.path)
        try:
            with translated(self.path):
                check_schema(connection, self.path)
                self.incarnation = read_incarnation(connection)
        finally:
            connection.close()

    def _prepare(self) -> None:
        make_private(self.path)
        connection = connect(self.path)
        try:
            with translated(self.path):
                migrate(connection, self.path)
                leave_a_gap_after_a_cut(connection, self._boot)
                self.incarnation = read_incarnation(connection)
        finally:
            connection.close()

    async def close(self) -> None:
        """Finish what was begun and close the file."""
        if self._threads is None:
            return
        await self._doorbell.stop_listening()
        await self._close_groups()
        threads, self._threads, self._light = self._threads, None, False
        for thread in dict.fromkeys(threads):
            await asyncio.get_running_loop().run_in_executor(None, thread.close)
        self._doorbell.close()
        self._lock.release()

    def now(self) -> int:
        """Return this host's time: a file has no clock of its own."""
        return to_micros(self._clock.now())

    async def _write(
        self,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        written = await self._write_on_thread(Call(operation, args, kwargs), light=False)
        return cast("Result", written)

    async def write_lightly(
        self, operation: Operation[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Run an operation on the writing thread, which does not wait for the disk."""
        if self._boot and not self._light:
            self._open_threads()
            await asyncio.get_running_loop().run_in_executor(
                None, note_light, self.path, self._boot
            )
            self._light = True
        written = await self._write_on_thread(Call(operation, args, kwargs), light=self._light)
        return cast("Result", written)

    async def _write_on_thread(self, call: Call, *, light: bool) -> Any:  # noqa: ANN401
        result, topics = await self._open_threads()[0].run(call, light=light)
        self.announce(topics)
        reach_stage("answered", call.operation)
        return result

    async def _read(
        self,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        result, _ = await self._open_threads()[1].run(Call(operation, args, kwargs))
        return cast("Result", result)

    def _open_threads(self) -> tuple[_Thread, _Thread]:
        if self._threads is None:
            message = "the store is not open: use `async with`, or await open() first"
            raise Unavailable(message)
        return self._threads

    async def backup(self, path: str, *, force: bool = False) -> Backup:
        """Write a backup, beside whoever writes to the file."""
        work = partial(take_backup, self.path, path, self.now(), force=force)
        return await asyncio.get_running_loop().run_in_executor(None, work)

    async def restore(
        self, path: str, pass_over: Decide | None, *, force: bool = False
    ) -> RestoreResult:
        """Put a backup in the place of the file, which nobody may have open."""
        self._lock.take()
        try:
            work = partial(restore_backup, self.path, path, self.now(), pass_over, force=force)
            return await asyncio.get_running_loop().run_in_executor(None, work)
        finally:
            self._lock.release()


class MemoryDatabase(Database):
    """The same store without a file and without threads; gone when it is closed."""

    path = MEMORY

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._connection: apsw.Connection | None = None
        self._tx: SqliteTransaction | None = None

    async def take_roles(self) -> bool:
        """Nobody else can reach this store."""
        return True

    async def open(self) -> None:
        """Make the database, once; opening again keeps what is there."""
        if self._connection is None:
            self._connection = connect(self.path)
            migrate(self._connection, self.path)
            self.incarnation = read_incarnation(self._connection)
            queries = load_sqlite_queries()
            self._tx = SqliteTransaction(self._connection, queries, self.now, self.cache)

    async def open_read_only(self) -> None:
        """Make the database: there is nothing else to look at."""
        await self.open()

    async def close(self) -> None:
        """Drop the database."""
        if self._connection is not None:
            await self._close_groups()
            self._connection.close()
            self._connection = self._tx = None

    def now(self) -> int:
        """Return the injected clock's time."""
        return to_micros(self._clock.now())

    async def _write(
        self,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        result = self._run(Call(operation, args, kwargs), write=True)
        await asyncio.sleep(0)
        reach_stage("answered", operation)
        return cast("Result", result)

    async def _read(
        self,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        return cast("Result", self._run(Call(operation, args, kwargs), write=False))

    def _run(self, call: Call, *, write: bool) -> Any:  # noqa: ANN401
        if self._connection is None or self._tx is None:
            message = "the store is not open: use `async with`, or await open() first"
            raise Unavailable(message)
        outcome = transact(self._connection, self._tx, [call], write=write)[0]
        if isinstance(outcome, BaseException):
            raise outcome
        result, topics = outcome
        self.announce(topics)
        return result
