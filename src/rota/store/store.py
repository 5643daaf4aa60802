"""The store: what every caller uses, the databases behind it, and hooks around writes."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, Protocol, Self, TypeAlias, TypeVar, cast

from rota.errors import Unavailable
from rota.model.audit import KeptAnswer, NewAuditEntry
from rota.model.backups import Backup, RestoreResult
from rota.model.problems import UNWRITABLE, Problem
from rota.model.runs import Enqueued, RunBatch
from rota.model.schedules import Decide
from rota.store.audit import (
    AttemptOperation,
    AuditedOperation,
    Untouched,
    can_share_commit,
    enqueue_audited,
)
from rota.store.last_write import LastWrite
from rota.store.settlement import enqueue, settle
from rota.store.transactions import (
    GroupCommit,
    Operation,
    Params,
    Result,
    StoreCache,
    Transaction,
)

log = logging.getLogger(__name__)

Listener: TypeAlias = Callable[[str], None]
MAX_JOINED = 2_000
NOT_WRITTEN = "the last write to the database was refused, and none was done since"


class Store(Protocol):
    """Carries out operations, each as one transaction.

    Either may raise Unavailable when the database cannot be reached; after that it is unknown
    whether a write happened.
    """

    @property
    def database(self) -> Database:
        """The database behind it, for whoever opens, closes or copies it."""

    def now(self) -> int:
        """Return the store's own time in microseconds; on PostgreSQL the database's."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a listener with every topic that is announced; returns how to stop that."""

    async def write(
        self, operation: Operation[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Run an operation in a transaction that has committed when this returns."""

    async def write_lightly(
        self, operation: Operation[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Run an operation in a transaction that a power cut may undo, and nothing else.

        For what can be read again from where it came: SQLite saves the disk a sync.
        """

    async def read(
        self, operation: Operation[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Run an operation that only reads, on one consistent view."""


class Database(ABC):
    """A database that can be opened; the base of SQLite's, PostgreSQL's and the one in memory."""

    path = ""
    """Where it is, as it may be shown."""
    incarnation = ""
    """The random id of the database; a restore creates a new one."""
    remote = False
    """Whether another process carries out the transactions."""

    def __init__(self) -> None:
        self.cache = StoreCache()
        self.last_write = LastWrite()
        self._listeners: list[Listener] = []
        writers = 2 if self.remote else 1
        self._groups: dict[Callable[..., Any], GroupCommit[Any, Any]] = {
            settle: self._group(settle, writers=1),
            enqueue: self._group(enqueue, writers=writers),
            enqueue_audited: self._group(enqueue_audited, writers=writers),
        }

    @property
    def database(self) -> Database:
        """The database itself, as for every store."""
        return self

    def _group(self, operation: Operation[Any, Any], *, writers: int) -> GroupCommit[Any, Any]:
        def write(items: Sequence[Any]) -> Awaitable[Sequence[Any]]:
            return self._write(operation, (items,), {})

        return GroupCommit(write, MAX_JOINED, writers=writers)

    async def write(
        self, operation: Operation[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Run an operation in a transaction; concurrent callers of some share a commit."""
        group = self._groups.get(operation)
        if group is not None:
            (items,) = args
            return cast("Result", list(await group.put(cast("Sequence[Any]", items))))
        return await self._write(operation, args, kwargs)

    async def write_lightly(
        self, operation: Operation[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Run an operation in a transaction that a power cut may undo."""
        return await self._write(operation, args, kwargs)

    async def read(
        self, operation: Operation[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Run an operation that only reads, on one consistent view."""
        return await self._read(operation, args, kwargs)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a listener with every topic that is announced; returns how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def announce(self, topics: Sequence[str]) -> None:
        """Call every listener of this process with topics."""
        for listener in tuple(self._listeners):
            for topic in topics:
                listener(topic)

    @abstractmethod
    def now(self) -> int:
        """Return the store's own time in microseconds; every decision uses this clock."""

    @abstractmethod
    async def _write(
        self,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        """Run an operation in a transaction that has committed when this returns."""

    @abstractmethod
    async def _read(
        self,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        """Run an operation that only reads, on one consistent view."""

    @abstractmethod
    async def open(self) -> None:
        """Connect, and bring the schema up to date; nothing happens where it is open."""

    @abstractmethod
    async def open_read_only(self) -> None:
        """Connect for reading alone: nothing is created, brought up to date or written.

        Raises Unavailable where there is nothing to read, and SchemaMismatch where it has not the
        schema of this Rota.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finish what was begun and let go of the database."""

    async def _close_groups(self) -> None:
        for group in self._groups.values():
            await group.close()

    async def take_roles(self) -> bool:
        """Make sure this process may plan and work; true if it is now the only one.

        Raises Busy where only one process may, and another one does.
        """
        return False

    def roles_taken(self) -> bool | None:
        """Return whether some process has the roles; None where only leases can tell."""
        return None

    def is_gone(self, host: str) -> bool:  # noqa: ARG002
        """Tell whether the workers of a host are known to be gone, whatever their leases say."""
        return False

    async def problems(self) -> list[Problem]:
        """Return what keeps this store from writing, as far as it knows; nothing is tried."""
        refused = self.last_write.refused
        return [] if refused is None else [Problem(UNWRITABLE, NOT_WRITTEN, refused)]

    def second(self) -> Self | None:
        """Return another store on the same database, or None where a lock makes it needless."""
        return None

    async def enqueue_within(
        self, connection: object, batches: Sequence[RunBatch]
    ) -> list[list[Enqueued]]:
        """Queue runs inside a transaction of the caller's own, where the driver allows that."""
        what = f"{sum(len(batch.payloads) for batch in batches)} runs on {connection!r}"
        message = f"cannot queue {what}: only PostgreSQL can queue in your own transaction"
        raise Unavailable(message)

    async def backup(self, path: str, *, force: bool = False) -> Backup:  # noqa: ARG002
        """Write a backup; refused where nothing is kept."""
        message = f"cannot write {path}: a store in memory has nothing to back up"
        raise Unavailable(message)

    async def restore(
        self,
        path: str,
        pass_over: Decide | None,  # noqa: ARG002
        *,
        force: bool = False,  # noqa: ARG002
    ) -> RestoreResult:
        """Put a backup in the place of the database; refused where nothing is kept."""
        message = f"cannot restore {path} into memory: give another --store"
        raise Unavailable(message)


class HookedStore:
    """A store whose writes pass through a hook."""

    def __init__(self, store: Store, hook: WriteHook) -> None:
        self._store = store
        self._hook = hook
        self.database = store.database
        self.now = store.now
        self.subscribe = store.subscribe
        self.read = store.read

    async def write(
        self, operation: Operation[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Run an operation in a transaction, by way of the hook."""
        return cast("Result", await self._hook(self._store.write, operation, args, kwargs))

    async def write_lightly(
        self, operation: Operation[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Run an operation in a transaction that a power cut may undo, by way of the hook."""
        lightly = self._store.write_lightly
        return cast("Result", await self._hook(lightly, operation, args, kwargs))


class WriteHook(Protocol):
    """Changes how an operation is written: its arguments, or what else its transaction does."""

    async def __call__(
        self,
        write: Callable[..., Awaitable[Any]],
        operation: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401 - the result of whatever operation
        """Write an operation with `write(operation, *args, **kwargs)`, or a changed one."""


MakeAnswer: TypeAlias = Callable[[Store, Any], Awaitable[KeptAnswer | None]]
"""Makes the answer to a request from a view of its open transaction and the result."""


class RequestAudit:
    """A hook that records one request in the transaction of its first change.

    Conflict if the caller has made another request under the same key.
    """

    def __init__(self, store: Store, entry: NewAuditEntry) -> None:
        self._store = store
        self._entry = entry
        self.request_id: int | None = None
        """The id of the audit entry, once something was changed for the request."""
        self.answered = False
        """Whether the answer is kept, and complete."""
        self._recorded = False
        self._changes: Collection[Callable[..., Any]] = ()
        self._make_answer: MakeAnswer | None = None

    def keep_answer(self, changes: Collection[Callable[..., Any]], make_answer: MakeAnswer) -> None:
        """Keep the answer in the transaction of the change: the first of these operations.

        What is written before it, such as slots that were due, is no part of the request. An error
        while the answer is made takes the change back.
        """
        self._changes, self._make_answer = frozenset(changes), make_answer

    async def __call__(
        self,
        write: Callable[..., Awaitable[Any]],
        operation: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401
        """Write an operation; the audit entry goes with the change."""
        if self._recorded or (self._changes and operation not in self._changes):
            attempt = self._entry.held
            checked = operation if attempt is None else AttemptOperation(attempt, operation)
            return await write(checked, *args, **kwargs)
        if operation is enqueue and len(args[0]) == 1 and can_share_commit(self._entry):
            queued = await write(enqueue_audited, [(self._entry, args[0][0])])
            self._recorded = True
            return queued
        make_answer = None if self._make_answer is None else self._answer
        audited = AuditedOperation(self._entry, operation, make_answer)
        try:
            done = await write(audited, *args, **kwargs)
        except Untouched as nothing:
            return nothing.result
        self.request_id, self.answered, self._recorded = done.request_id, done.answered, True
        return done.result

    async def _answer(self, tx: Transaction, result: object) -> KeptAnswer | None:
        if self._make_answer is None:
            return None
        return await self._make_answer(TransactionView(self._store, tx), result)


class TransactionView:
    """A store that reads inside an open transaction, and sees what that has changed so far."""

    def __init__(self, store: Store, tx: Transaction) -> None:
        self._tx = tx
        self.database = store.database
        self.now = store.now
        self.subscribe = store.subscribe

    async def write(
        self, operation: Operation[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Refuse: making an answer changes nothing."""
        message = f"{operation.__name__} {args!r} {kwargs!r}: an answer changes nothing"
        raise AssertionError(message)

    write_lightly = write

    async def read(
        self, operation: Operation[Params, Result], *args: Params.args, **kwargs: Params.kwargs
    ) -> Result:
        """Run an operation that only reads, as part of the transaction."""
        return await operation(self._tx, *args, **kwargs)


Answer = TypeVar("Answer")
RETRY_SECONDS = 1.0


async def until_available(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Repeat an idempotent request until the store answers."""
    while True:
        try:
            return await ask()
        except Unavailable as error:
            log.warning("run.store_unavailable", extra={"error": str(error)})
            await asyncio.sleep(RETRY_SECONDS)
