"""What operations need of a transaction; group commit; fault points.

Every operation of the store is written once, as a coroutine over a Session, for both dialects. On
PostgreSQL the event loop awaits it. On SQLite the same coroutine runs to its end on the thread that
owns the connection: its session never suspends, so one `send` finishes it (see `finish`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from rota.errors import Unavailable
from rota.faultpoints import armed, reach

Row: TypeAlias = Sequence[Any]
Result = TypeVar("Result")

EVENTS = "events"
"""The topic of facts that were recorded; whoever shows them live looks again."""

DELIVERIES = "deliveries"
"""The topic of messages in the outbox."""

MESSAGES = "messages"
"""The topic of messages that somebody may read."""


class QueryRows(list[dict[str, object]]):
    """A parameter that is a set of records; both dialects receive it as JSON."""


class Transaction(Protocol):
    """One transaction. Lists are arrays to the query, `Rows` are sets of records."""

    async def rows(self, query: str, **params: object) -> list[Row]:
        """Return every row."""

    async def run(self, query: str, **params: object) -> None:
        """Execute a query for its effect."""

    async def insert(
        self, query: str, count: int, *, last: bool = False, **params: object
    ) -> Sequence[int]:
        """Insert `count` rows and return their ids in the order given.

        `last` says that the operation asks nothing after this, so that a dialect may make one
        statement of the whole transaction.
        """

    async def enter_claim(self) -> None:
        """Wait until no other claim is under way; reads after it see what that claim wrote."""

    def wake(self, topic: str) -> None:
        """Announce a topic to every process once this transaction has committed."""


async def one(session: Transaction, query: str, **params: object) -> Row | None:
    """Return the first row or None."""
    found = await session.rows(query, **params)
    return found[0] if found else None


def finish(operation: Coroutine[Any, Any, Result]) -> Result:
    """Run an operation whose session never suspends, and return its result."""
    try:
        operation.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    operation.close()
    message = "a SQLite session suspended inside a transaction"
    raise RuntimeError(message)


Listener = Callable[[str], None]


class Dialect(ABC):
    """Carries out operations, each as one transaction."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    @abstractmethod
    def now(self) -> int:
        """Return the store's own time in microseconds; every decision uses this clock."""

    @abstractmethod
    async def write(
        self, operation: Callable[..., Coroutine[Any, Any, Result]], *args: object
    ) -> Result:
        """Run an operation in a transaction that has committed when this returns."""

    async def write_lightly(
        self, operation: Callable[..., Coroutine[Any, Any, Result]], *args: object
    ) -> Result:
        """Run an operation in a transaction that may be lost with the power, and only so.

        For what can be read again from where it came; a dialect may spare the disk a sync.
        """
        return await self.write(operation, *args)

    @abstractmethod
    async def read(
        self, operation: Callable[..., Coroutine[Any, Any, Result]], *args: object
    ) -> Result:
        """Run an operation that only reads, on one consistent view."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a listener with every topic that is announced; returns how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def announce(self, topics: Sequence[str]) -> None:
        """Tell every listener of this process about topics."""
        for listener in tuple(self._listeners):
            for topic in topics:
                listener(topic)


Item = TypeVar("Item")
Answer = TypeVar("Answer")

WORTH_SHARING = 8
"""How many callers another writer must have to begin; fewer go with the batch that is next."""


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


Operation: TypeAlias = Callable[..., Coroutine[Any, Any, Result]]


def reach_stage(stage: str, *operations: Callable[..., Any]) -> None:
    """Say that a transaction has come to a stage, for each operation it carries."""
    if armed():
        for operation in operations:
            reach(f"{operation.__name__}.{stage}")


def watching(operation: Operation[Result]) -> Operation[Result]:
    """Return an operation, with a fault point before each of its statements if any is armed."""
    if not armed():
        return operation

    @wraps(operation)
    async def watched(session: Transaction, *args: object) -> Result:
        return await operation(_Watched(session, operation), *args)

    return watched


class _Watched:
    """Reaches a point, then passes a query on."""

    def __init__(self, session: Transaction, operation: Callable[..., Any]) -> None:
        self._session = session
        self._operation = operation

    async def rows(self, query: str, **params: object) -> list[Row]:
        reach_stage("statement", self._operation)
        return await self._session.rows(query, **params)

    async def run(self, query: str, **params: object) -> None:
        reach_stage("statement", self._operation)
        await self._session.run(query, **params)

    async def insert(
        self, query: str, count: int, *, last: bool = False, **params: object
    ) -> Sequence[int]:
        reach_stage("statement", self._operation)
        return await self._session.insert(query, count, last=last, **params)

    async def enter_claim(self) -> None:
        await self._session.enter_claim()

    def wake(self, topic: str) -> None:
        self._session.wake(topic)
