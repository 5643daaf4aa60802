"""Runs callables: coroutines on the event loop, functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from rota.executors.inprocess.child_process import path_of, run_in_child
from rota.executors.inprocess.run_context import (
    Function,
    InvalidResult,
    RunContext,
    WaitForAnswer,
    encode_result,
    resolve,
)
from rota.model.attempts import DONE, Assignment, AttemptReport, Failed, Succeeded

DOTTED = "python"
"""The route of tasks whose callable is given as a dotted path."""


class InProcessRunner:
    """Serves a route per registered callable, and dotted paths if allowed."""

    keeps = False

    def __init__(
        self,
        functions: Mapping[str, Function],
        *,
        threads: int,
        allow_dotted: bool = False,
    ) -> None:
        self._functions = functions
        self._threads = threads
        self._allow_dotted = allow_dotted
        self._pool: ThreadPoolExecutor | None = None
        self._kinds: dict[Function, bool] = {}
        self._waits: dict[int, float | None] = {}

    def routes(self) -> Sequence[str]:
        """Return its current routes."""
        own = list(self._functions)
        return [*own, DOTTED] if self._allow_dotted else own

    def detach(self, run_id: int) -> None:
        """Do nothing: no attempt outlives this process."""

    async def run(self, assignment: Assignment) -> AttemptReport:
        """Call the function of a run."""
        function = self._functions.get(assignment.lease.route)
        if function is None:
            function = resolve(str(assignment.task.spec.get("call", "")))
        is_async = self._kinds.get(function)
        if is_async is None:
            is_async = self._kinds[function] = inspect.iscoroutinefunction(inspect.unwrap(function))
        if assignment.task.policy.isolate:
            return await run_in_child(path_of(function), assignment)
        handle = RunContext(assignment)
        try:
            if is_async:
                result = await function(handle)
            else:
                result = await self._in_thread(function, handle)
        except WaitForAnswer as waits:
            return AttemptReport(outcome=waits.asked)
        if result is None and not handle.messages:
            return DONE
        try:
            text = encode_result(result)
        except InvalidResult as error:
            return AttemptReport(
                outcome=Failed(code="bad_result", message=str(error), retryable=False)
            )
        return AttemptReport(outcome=Succeeded(result=text), messages=handle.messages)

    def queue_wait(self, run_id: int) -> float | None:
        """Return how long a plain function waited for a thread; coroutines never wait."""
        return self._waits.get(run_id, 0.0)

    async def _in_thread(self, function: Function, handle: RunContext) -> object:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="rota-run")
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        queued_at = loop.time()
        self._waits[handle.id] = None

        def begin() -> object:
            self._waits[handle.id] = loop.time() - queued_at
            return context.run(function, handle)

        job = self._pool.submit(begin)
        try:
            return await _finish(job)
        finally:
            del self._waits[handle.id]

    def close(self) -> None:
        """Stop the threads without waiting for busy ones."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


async def _finish(job: Future[object]) -> object:
    """Wait for a thread; a running one cannot be stopped, so its attempt ends with it."""
    work = asyncio.wrap_future(job)
    stopped = False
    while True:
        try:
            result = await asyncio.shield(work)
        except asyncio.CancelledError:
            if stopped or work.done() or job.cancel():
                raise
            stopped = True
        else:
            if stopped:
                raise asyncio.CancelledError
            return result
