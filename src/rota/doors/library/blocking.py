"""A synchronous face for programs without an event loop: each call waits for its answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from rota.errors import Unavailable
from rota.model.ids import RunId
from rota.model.plans import StoredSchedule
from rota.model.runs import Question, Run

Result = TypeVar("Result")


class Asynchronous(Protocol):
    """What there is to wait for: the calls of a Rota."""

    async def open(self) -> None:
        """Open the store."""

    async def close(self) -> None:
        """Let go of the store."""

    @property
    def enqueue(self) -> Callable[..., Coroutine[Any, Any, RunId]]:
        """Queue one run."""

    @property
    def enqueue_many(self) -> Callable[..., Coroutine[Any, Any, list[RunId]]]:
        """Queue many runs of one task."""

    @property
    def schedule(self) -> Callable[..., Coroutine[Any, Any, StoredSchedule]]:
        """Declare when a task runs."""

    @property
    def work(self) -> Callable[..., Coroutine[Any, Any, None]]:
        """Plan, run, deliver and repair."""

    async def cancel(self, run_id: int) -> Run:
        """Cancel a run."""

    async def answer(self, question_id: int, text: str) -> Run:
        """Answer a question."""

    async def run(self, run_id: int) -> Run:
        """Return a run."""

    async def questions(self, run_id: int) -> list[Question]:
        """Return what a run has asked."""


class Blocking:
    """Runs a Rota on a thread with a loop of its own.

    ```python
    with Rota("sqlite:///rota.db").blocking() as rota:
        rota.enqueue("report", {"day": "2026-11-15"})
    ```
    """

    def __init__(self, rota: Asynchronous) -> None:
        self._rota = rota
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start the thread and open."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="rota-loop", daemon=True)
        thread.start()
        self._loop, self._thread = loop, thread
        try:
            self._wait(self._rota.open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close and end the thread."""
        try:
            self._wait(self._rota.close())
        finally:
            self._end()

    def enqueue(self, task: str, payload: object = None, **options: Any) -> RunId:  # noqa: ANN401
        """Queue one run; see Rota.enqueue."""
        return self._wait(self._rota.enqueue(task, payload, **options))

    def enqueue_many(
        self,
        task: str,
        payloads: Iterable[object],
        **options: Any,  # noqa: ANN401
    ) -> list[RunId]:
        """Queue many runs of one task; see Rota.enqueue_many."""
        return self._wait(self._rota.enqueue_many(task, payloads, **options))

    def schedule(self, task: str, **options: Any) -> StoredSchedule:  # noqa: ANN401
        """Declare when a task runs; see Rota.schedule."""
        return self._wait(self._rota.schedule(task, **options))

    def cancel(self, run_id: int) -> Run:
        """Cancel a run; see Rota.cancel."""
        return self._wait(self._rota.cancel(run_id))

    def answer(self, question_id: int, text: str) -> Run:
        """Answer a question; see Rota.answer."""
        return self._wait(self._rota.answer(question_id, text))

    def run(self, run_id: int) -> Run:
        """Return a run as it stands."""
        return self._wait(self._rota.run(run_id))

    def questions(self, run_id: int) -> list[Question]:
        """Return what a run has asked; see Rota.questions."""
        return self._wait(self._rota.questions(run_id))

    def work(self, *, until_idle: bool = False) -> None:
        """Plan, run, deliver and repair; see Rota.work."""
        self._wait(self._rota.work(until_idle=until_idle))

    def _wait(self, call: Coroutine[Any, Any, Result]) -> Result:
        if self._loop is None:
            call.close()
            message = "Rota is not open: use `with rota.blocking() as rota:`"
            raise Unavailable(message)
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _end(self) -> None:
        if self._loop is None or self._thread is None:
            return
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
