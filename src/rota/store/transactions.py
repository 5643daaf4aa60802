"""Transactions, operations over them, and group commit.

An operation is a coroutine function whose first parameter is a Transaction. It is written once for
both databases and runs as one transaction: `await store.write(settle, settlements)`. On PostgreSQL
the event loop awaits it. On SQLite it runs to its end on the thread that owns the connection: its
transaction never suspends, so one `send` finishes the coroutine (see `finish`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from rota.errors import Unavailable
from rota.faultpoints import armed, reach
from rota.model.tasks import Task

Row: TypeAlias = Sequence[Any]
Params = ParamSpec("Params")
Result = TypeVar("Result")

EVENTS = "events"
"""Topic of recorded events; live views read them after it."""

DELIVERIES = "deliveries"
"""Topic of messages in the outbox."""

MESSAGES = "messages"
"""Topic of messages in threads."""


class QueryRows(list[dict[str, object]]):
    """A parameter that is a set of records; both databases receive it as JSON."""


@dataclass(slots=True)
class StoreCache:
    """What one process remembers between transactions; never needed for a correct result."""

    tasks: dict[int, tuple[int, Task]] = field(default_factory=dict)
    """Tasks as an earlier claim read them, each with its version."""
    unlimited_spaces: set[int] = field(default_factory=set)
    """Spaces without a quota."""


class Transaction(Protocol):
    """One transaction. Lists are arrays to the query, QueryRows are sets of records."""

    @property
    def cache(self) -> StoreCache:
        """What this process remembers."""

    def now(self) -> int:
        """Return the store's time in microseconds; every decision uses this clock."""

    async def rows(self, query: str, **params: object) -> list[Row]:
        """Return every row."""

    async def run(self, query: str, **params: object) -> None:
        """Execute a query for its effect."""

    async def insert(
        self, query: str, count: int, *, last: bool = False, **params: object
    ) -> Sequence[int]:
        """Insert `count` rows and return their ids in the order given.

        `last` says that the operation sends nothing after this, so that a database may make one
        statement of the whole transaction.
        """

    async def enter_claim(self) -> None:
        """Wait until no other claim is under way; reads after it see what that claim wrote."""

    def wake(self, topic: str) -> None:
        """Announce a topic to every process once this transaction has committed."""


Operation: TypeAlias = Callable[Concatenate[Transaction, Params], Coroutine[Any, Any, Result]]
"""A function over a Transaction and its arguments."""


async def one(tx: Transaction, query: str, **params: object) -> Row | None:
    """Return the first row or None."""
    found = await tx.rows(query, **params)
    return found[0] if found else None


def finish(operation: Coroutine[Any, Any, Result]) -> Result:
    """Run an operation whose transaction never suspends, and return its result."""
    try:
        operation.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    operation.close()
    message = "a SQLite operation suspended inside its transaction"
    raise RuntimeError(message)


Item = TypeVar("Item")
Answer = TypeVar("Answer")

WORTH_SHARING = 8
"""Callers that must wait before a second writer begins; fewer go with the next batch."""


class GroupCommit(Generic[Item, Answer]):
    """Joins the items of concurrent callers into one write; each caller gets its own answers.

    A caller returns only after the write that carried its items has committed. A joined write
    belongs to no caller, so one that is cancelled takes nobody else's answer with it. If a joined
    write fails, every caller's items are written on their own, so that one caller's fault stays its
    own. Only when the database was lost is nothing written again: the write may have happened.

    Where another process does the writing, a second writer may be worth it: while one batch is on
    its way, the answers of the other are given out. Each takes half of what waits.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        most: int,
        *,
        writers: int = 1,
    ) -> None:
        self._write = write
        self._most = most
        self._most_writers = writers
        self._waiting: list[tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]] = []
        self._writers: set[asyncio.Task[None]] = set()
        self._alone = False

    async def put(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Write items, alone or together with others, and return their answers in order."""
        if not self._writers and not self._alone:
            return await self._put_alone(items)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[Answer]] = loop.create_future()
        self._waiting.append((items, answer))
        return await answer

    async def _put_alone(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Write for a caller that found nobody writing; who came meanwhile is written after."""
        self._alone = True
        try:
            return await self._write(items) if items else ()
        finally:
            self._alone = False
            self._call_writer()

    async def close(self) -> None:
        """Wait until everything that was put has been written."""
        while self._writers:
            await asyncio.wait(self._writers)

    def _call_writer(self) -> None:
        if self._waiting:
            writer = asyncio.get_running_loop().create_task(self._write_all())
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)

    async def _write_all(self) -> None:
        while self._waiting:
            share = len(self._waiting) // 2
            if len(self._writers) < self._most_writers and share >= WORTH_SHARING:
                taken = self._take(share)
                self._call_writer()
            else:
                taken = self._take(self._most)
            await self._write_next(taken)
            await asyncio.sleep(0)  # whoever was answered may come at once with more

    def _take(self, most: int) -> list[tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]]:
        count = size = 0
        while count < len(self._waiting) and (size < most or count == 0):
            size += len(self._waiting[count][0])
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return [(items, answer) for items, answer in taken if not answer.done()]

    async def _write_next(
        self, callers: list[tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]]
    ) -> None:
        joined = [item for items, _ in callers for item in items]
        if not joined:
            for _, answer in callers:
                _resolve(answer, ())
            return
        try:
            answers = await self._write(joined)
        except Exception as fault:  # noqa: BLE001 - handed to the caller it belongs to
            if len(callers) == 1 or isinstance(fault, Unavailable):
                for _, answer in callers:
                    _refuse(answer, fault)
                return
            for caller in callers:
                await self._write_next([caller])
            return
        start = 0
        for items, answer in callers:
            _resolve(answer, answers[start : start + len(items)])
            start += len(items)


def _resolve(answer: asyncio.Future[Sequence[Answer]], answers: Sequence[Answer]) -> None:
    if not answer.done():
        answer.set_result(answers)


def _refuse(answer: asyncio.Future[Sequence[Answer]], fault: Exception) -> None:
    if not answer.done():
        answer.set_exception(fault)


def reach_stage(stage: str, *operations: Callable[..., Any]) -> None:
    """Reach the fault point of a stage for each operation that a transaction carries."""
    if armed():
        for operation in operations:
            reach(f"{operation.__name__}.{stage}")


def with_statement_faults(operation: Operation[Params, Result]) -> Operation[Params, Result]:
    """Return an operation with a fault point before each of its statements, if any is armed."""
    if not armed():
        return operation

    async def faulty(tx: Transaction, /, *args: Params.args, **kwargs: Params.kwargs) -> Result:
        return await operation(_FaultyTransaction(tx, operation), *args, **kwargs)

    faulty.__name__ = operation.__name__
    return faulty


class _FaultyTransaction:
    """Reaches a fault point before each statement."""

    def __init__(self, tx: Transaction, operation: Callable[..., Any]) -> None:
        self._tx = tx
        self._operation = operation
        self.cache = tx.cache
        self.now = tx.now
        self.wake = tx.wake
        self.enter_claim = tx.enter_claim

    async def rows(self, query: str, **params: object) -> list[Row]:
        reach_stage("statement", self._operation)
        return await self._tx.rows(query, **params)

    async def run(self, query: str, **params: object) -> None:
        reach_stage("statement", self._operation)
        await self._tx.run(query, **params)

    async def insert(
        self, query: str, count: int, *, last: bool = False, **params: object
    ) -> Sequence[int]:
        reach_stage("statement", self._operation)
        return await self._tx.insert(query, count, last=last, **params)
