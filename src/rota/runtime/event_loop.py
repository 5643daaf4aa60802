"""The event loop: its choice, garbage collection, and detection of blocking code."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from rota.ports.clock import Clock

Result = TypeVar("Result")

GC_THRESHOLDS = (10_000, 20, 50)
"""Thresholds of the garbage collector's generations."""


def run_async(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on a new event loop, uvloop if installed."""
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(main)


def tune_memory() -> None:
    """Exclude all current objects from garbage collection, which shortens its pauses.

    Memory that only loading needed is returned to the system first.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    release_memory()


def release_memory() -> None:
    """Return free memory to the system, where the C library can do that."""
    from ctypes import CDLL  # noqa: PLC0415 - only a daemon needs it

    with suppress(AttributeError, OSError):
        CDLL(None).malloc_trim(0)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory, or None for asyncio's."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


log = logging.getLogger(__name__)

TICK_SECONDS = 0.5
BLOCK_SECONDS = 1.0
MAX_TRACE_DEPTH = 8
RECENT_SECONDS = 3600.0
MAX_KEPT = 100
OWN_PREFIX = "rota."


class LoopBlock(NamedTuple):
    """A block of the loop: when it ended, its duration, and what ran, if known."""

    at: float
    seconds: float
    ran: str | None


class LoopBlocks:
    """Counts of all blocks of a loop, and the newest ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest: deque[LoopBlock] = deque(maxlen=MAX_KEPT)
        self.count = 0
        self.seconds = 0.0

    def add(self, seconds: float, ran: str | None) -> None:
        """Record a block that has ended."""
        self.count += 1
        self.seconds += seconds
        self._newest.append(LoopBlock(self._clock.monotonic(), seconds, ran))

    def recent(self) -> Sequence[LoopBlock]:
        """Return the blocks of the last hour, newest last."""
        since = self._clock.monotonic() - RECENT_SECONDS
        return [block for block in self._newest if block.at >= since]


class LagMonitor:
    """Logs `loop.blocked` once for each block of more than a second, with what was running.

    The loop records the time twice a second, and a thread checks the age of that record. The
    duration of a block is measured by the loop when it has ended.
    """

    def __init__(self, clock: Clock, running: Callable[[asyncio.Task[object]], str | None]) -> None:
        self._clock = clock
        self._running = running
        self._ticked_at = clock.monotonic()
        self._stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._loop_thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ran: str | None = None
        self.blocks = LoopBlocks(clock)

    def __enter__(self) -> Self:
        """Start watching the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._ticked_at = self._clock.monotonic()
        self._tick()
        self._thread = threading.Thread(target=self._watch, name="rota-lag", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching."""
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    def _tick(self) -> None:
        now = self._clock.monotonic()
        late = now - self._ticked_at - TICK_SECONDS
        if late > BLOCK_SECONDS:
            self.blocks.add(late, self._ran)
        self._ran, self._ticked_at = None, now
        if self._loop is not None:
            self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def _watch(self) -> None:
        reported = 0.0
        while not self._stop.wait(TICK_SECONDS):
            late = self._clock.monotonic() - self._ticked_at - TICK_SECONDS
            if late > BLOCK_SECONDS and self._ticked_at != reported:
                reported = self._ticked_at
                self._report(late)

    def _report(self, late: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - there is no other way
        task = asyncio.current_task(self._loop)
        name = None if task is None else self._running(task)
        self._ran = f"the task {name}" if name is not None else _own_function(frame)
        log.warning(
            "loop.blocked",
            extra={
                "seconds": round(late, 1),
                "task": name,
                "trace": "".join(traceback.format_stack(frame, MAX_TRACE_DEPTH)) if frame else "",
            },
        )


def _own_function(frame: FrameType | None) -> str | None:
    """Return the innermost function of Rota in a stack."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(OWN_PREFIX):
            return f"{module}.{frame.f_code.co_qualname}"
        frame = frame.f_back
    return None
