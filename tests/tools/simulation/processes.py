"""Simulated processes: what runs in one, its clock, and how it dies, sleeps or goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from datetime import datetime, timedelta
from typing import Any

from tests.tools.simulation.loop import OWNER, SimLoop, SimTask, Step


class Time:
    """The time it really is, and the leap that the database's own clock has made."""

    def __init__(self, loop: SimLoop, begin: datetime) -> None:
        self._loop = loop
        self._begin = begin
        self.leapt = timedelta()

    def right(self) -> datetime:
        """Return the instant it really is."""
        return self._begin + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._loop.time()


class SimClock:
    """What one process believes the time to be: the database's clock, but for its own error."""

    def __init__(self, time: Time, error: timedelta) -> None:
        self._time = time
        self.error = error
        self.monotonic = time.monotonic

    def now(self) -> datetime:
        """Return the instant this process would name."""
        return self._time.right() + self._time.leapt + self.error


class Process:
    """One life of one process: a crash ends it between two of its steps, for good.

    A dead process never takes another step. Its coroutines are closed where they stand, so that
    nothing of them is left to be collected at a moment that no replay could repeat; whatever their
    `finally` blocks try, the loop and the ports refuse.
    """

    def __init__(self, name: str, loop: SimLoop) -> None:
        self.name = name
        self.dead = False
        self.paused = False
        self.withheld: list[Step] = []
        self.tasks: list[SimTask] = []
        self.context: Context = copy_context()
        self.context.run(OWNER.set, self)
        self.ended = asyncio.Event()
        self._loop = loop

    def start(self, life: Coroutine[Any, Any, object]) -> None:
        """Begin to live."""
        self.context.run(self._loop.create_task, life)

    def call(self, function: Callable[..., object], *args: object, after: float = 0.0) -> None:
        """Let something happen inside the process, as a step of its own."""
        self._loop.call_later(after, function, *args, context=self.context)

    def crash(self) -> None:
        """Die at once; a step that is under way may finish, but can reach nothing any more."""
        if not self.dead:
            self.dead = True
            self._loop.after_step(self.bury)

    def pause(self) -> None:
        """Stop taking steps, as if the machine had been put to sleep."""
        self.paused = True

    def resume(self) -> None:
        """Go on where it stopped, with everything late."""
        self.paused = False
        withheld, self.withheld = self.withheld, []
        self._loop.resume(withheld)

    def bury(self) -> None:
        """Close what it was doing, in the order it was begun."""
        self._loop.hear_for(self)
        for task in self.tasks:
            if not task.done():
                self.context.run(_abandon, task)
        self.tasks.clear()
        self.withheld.clear()
        self.ended.set()


def _abandon(task: SimTask) -> None:
    try:
        task.abandon()
    except Exception:  # noqa: BLE001 - the last words of a dead process reach nobody
        return
