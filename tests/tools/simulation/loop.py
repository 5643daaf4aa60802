"""An event loop with virtual time that runs one ready step at a time, chosen by a seed.

Time stands still while anything is ready and jumps to the next timer when nothing is. Every step
belongs to the simulated process whose context it was made in: the steps of a dead process never
run, those of a paused one wait. Nothing here reads the real clock, a socket or a thread, and
nothing depends on the insides of asyncio's own loops.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, NoReturn, Protocol, TypeVar, TypeVarTuple, Unpack

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

STEP_SECONDS = 0.000_02
"""What one step costs in virtual time, so that nothing can be busy for ever at one instant."""


_WAIT = vars(asyncio.tasks)["_wait"].__code__
"""What waits inside of `asyncio.wait`."""


class Owner(Protocol):
    """A simulated process, as far as the loop cares."""

    dead: bool
    paused: bool
    withheld: list[Step]
    tasks: list[SimTask]


OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)
"""The process that the running step belongs to; none for nature itself."""


class Exhausted(Exception):
    """The history took more steps than any sound one does, or came to a standstill."""


class Unseen(Exception):
    """A task ended with a fault that nobody waited for."""


class Refused(RuntimeError):
    """Simulated code reached for something real, or a dead process for anything at all."""


class Step(asyncio.TimerHandle):
    """One callback to run, now or at an instant; a handle as far as asyncio looks at one."""

    __slots__ = ("args", "callback", "context", "instant", "off", "owner")

    def __init__(
        self,
        instant: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        # Not the handle's own: there are a hundred thousand of them in a second.
        self.instant = instant
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.owner: Owner | None = self.context.get(OWNER)
        self.off = False

    def when(self) -> float:
        """Return its virtual instant."""
        return self.instant

    def cancel(self) -> None:
        """Do not run it."""
        self.off = True

    def cancelled(self) -> bool:
        """Return whether it will not run."""
        return self.off

    def run(self) -> None:
        """Do it; a fault in it is a fault of the simulation."""
        self.context.run(self.callback, *self.args)


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set is the same in every replay."""

    serial = 0
    _log_destroy_pending: bool

    def __hash__(self) -> int:
        return self.serial

    def awaited(self) -> Iterator[asyncio.Future[Any]]:
        """Yield what it waits for by `asyncio.wait`."""
        coroutine: Any = self.get_coro()
        while getattr(coroutine, "cr_frame", None) is not None:
            if coroutine.cr_code is _WAIT:
                yield from coroutine.cr_frame.f_locals["fs"]
            coroutine = coroutine.cr_await

    def abandon(self) -> None:
        """End its coroutine where it stands, without a word."""
        self._log_destroy_pending = False
        coroutine = self.get_coro()
        if coroutine is not None:
            coroutine.close()


class SimLoop(asyncio.BaseEventLoop):
    """Runs steps until what it was asked for is done."""

    def __init__(self, chance: Random, most_steps: int) -> None:
        super().__init__()
        self._chance = chance.random
        self._most_steps = most_steps
        self._virtual = 0.0
        self._can_run: list[Step] = []
        self._timers: list[tuple[float, int, Step]] = []
        self._serial = 0
        self._after_step: list[Callable[[], None]] = []
        self.steps = 0
        self.failure: BaseException | None = None

    # steps

    def time(self) -> float:
        """Return virtual seconds since the history began."""
        return self._virtual

    def call_soon(
        self,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> Step:
        """Make a step ready."""
        step = Step(self._virtual, callback, args, context)
        if step.owner is not None and step.owner.dead:
            step.off = True
        else:
            self._can_run.append(step)
        return step

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> Step:
        """Make a step ready; there is only one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> Step:
        """Run a step after some virtual seconds."""
        return self.call_at(self._virtual + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Args]], object],
        *args: *Args,
        context: Context | None = None,
    ) -> Step:
        """Run a step at a virtual instant."""
        step = Step(when, callback, args, context)
        if step.owner is not None and step.owner.dead:
            step.off = True
        else:
            self._serial += 1
            heapq.heappush(self._timers, (when, self._serial, step))
        return step

    def after_step(self, callback: Callable[[], None]) -> None:
        """Call something between the running step and the next one."""
        self._after_step.append(callback)

    def resume(self, steps: list[Step]) -> None:
        """Make steps ready that a paused process could not run."""
        self._can_run.extend(steps)

    def hear_for(self, dead: Owner) -> None:
        """Take note of the faults that somebody in a dead process was about to hear of."""
        steps = [step for step in (*self._can_run, *dead.withheld) if step.owner is dead]
        heard = [given for step in steps for given in step.args]
        heard += [future for task in dead.tasks for future in task.awaited()]
        for future in heard:
            if isinstance(future, asyncio.Future) and future.done() and not future.cancelled():
                future.exception()

    def fail(self, failure: BaseException) -> None:
        """End the history after the running step; the first failure counts."""
        if self.failure is None:
            self.failure = failure

    def _next(self) -> Step:
        """Choose one of the steps that are ready, after letting time pass if none is."""
        ready, timers = self._can_run, self._timers
        if not ready and timers:
            self._virtual = max(self._virtual, timers[0][0])
        while timers and timers[0][0] <= self._virtual:
            ready.append(heapq.heappop(timers)[2])
        if not ready:
            message = "nothing is left to happen, and what was waited for has not"
            raise Exhausted(message)
        index = int(self._chance() * len(ready))
        ready[index], ready[-1] = ready[-1], ready[index]
        return ready.pop()

    def _take(self, step: Step) -> None:
        owner = step.owner
        if step.off or (owner is not None and owner.dead):
            return
        if owner is not None and owner.paused:
            owner.withheld.append(step)
            return
        self.steps += 1
        self._virtual += STEP_SECONDS
        step.run()
        while self._after_step:
            self._after_step.pop(0)()
        if self.steps > self._most_steps:
            message = f"more than {self._most_steps} steps: something runs in circles"
            raise Exhausted(message)

    def run_until_complete(
        self, future: Generator[Any, None, Result] | Coroutine[Any, Any, Result] | Any
    ) -> Any:
        """Run until a coroutine has ended or the history has failed."""
        task = self.create_task(future)
        asyncio._set_running_loop(self)
        try:
            while not task.done() and self.failure is None:
                self._take(self._next())
        finally:
            asyncio._set_running_loop(None)
        if self.failure is not None:
            raise self.failure
        return task.result()

    # what asyncio asks of a loop

    def create_task(
        self,
        coro: Generator[Any, None, Result] | Coroutine[Any, Any, Result],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[Result]:
        """Start a coroutine in the process that asks for it."""
        owner = (context or copy_context()).get(OWNER)
        if owner is not None and owner.dead:
            coro.close()
            message = "a dead process starts nothing"
            raise Refused(message)
        task = SimTask(coro, loop=self, name=None if name is None else str(name), context=context)
        self._serial += 1
        task.serial = self._serial
        if owner is not None:
            owner.tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """End the history: a fault that nobody awaited is a fault."""
        self.fail(Unseen(f"{context['message']}: {context.get('exception')!r}"))

    def close(self) -> None:
        """Forget everything that could still happen."""
        self._can_run.clear()
        self._timers.clear()
        super().close()

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[Args]], Result],
        *args: *Args,
    ) -> NoReturn:
        """Refuse: a thread has no place in a history that must replay."""
        message = f"{func!r} wants a thread, which a simulation does not have"
        raise Refused(message)
