"""The event loop: uvloop or asyncio, its memory, its lag."""

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

SELDOM = (10_000, 20, 50)
"""After how many new objects, and how many rounds, the collector looks for rings among them."""


def run_async(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(main)


def tune_memory() -> None:
    """Take what is there now for what stays: the collector never stops to look through it again.

    What loading needed and nobody needs any more goes back to the system.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)
    return_memory()


def return_memory() -> None:
    """Give back to the system what nobody needs any more, where that can be said."""
    from ctypes import CDLL  # noqa: PLC0415 - only a daemon needs it

    with suppress(AttributeError, OSError):
        CDLL(None).malloc_trim(0)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the fastest loop there is, or None for asyncio's own."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory


log = logging.getLogger(__name__)

BEAT_SECONDS = 0.5
TOO_LONG_SECONDS = 1.0
MAX_TRACE_DEPTH = 8
LATELY_SECONDS = 3600.0
MAX_KEPT = 100
OWN = "rota."


class LoopBlock(NamedTuple):
    """One block of the loop: when it ended, how long it took, and what ran, if that was seen."""

    at: float
    seconds: float
    ran: str | None


class LoopBlocks:
    """The blocks of a loop since it began; the newest are kept one by one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest: deque[LoopBlock] = deque(maxlen=MAX_KEPT)
        self.count = 0
        self.seconds = 0.0

    def add(self, seconds: float, ran: str | None) -> None:
        """Count a block that has just ended."""
        self.count += 1
        self.seconds += seconds
        self._newest.append(LoopBlock(self._clock.monotonic(), seconds, ran))

    def lately(self) -> Sequence[LoopBlock]:
        """Return those of the last hour, the newest last."""
        since = self._clock.monotonic() - LATELY_SECONDS
        return [block for block in self._newest if block.at >= since]


class LagMonitor:
    """Logs `loop.blocked` once for each block of more than a second, with what was running.

    The loop notes the time twice a second; a thread looks whether the note has grown old. How long
    a block took is known to the loop alone, once it is over.
    """

    def __init__(self, clock: Clock, running: Callable[[asyncio.Task[object]], str | None]) -> None:
        self._clock = clock
        self._running = running
        self._beat = clock.monotonic()
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
        self._beat = self._clock.monotonic()
        self._note()
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

    def _note(self) -> None:
        now = self._clock.monotonic()
        late = now - self._beat - BEAT_SECONDS
        if late > TOO_LONG_SECONDS:
            self.blocks.add(late, self._ran)
        self._ran, self._beat = None, now
        if self._loop is not None:
            self._timer = self._loop.call_later(BEAT_SECONDS, self._note)

    def _watch(self) -> None:
        reported = 0.0
        while not self._stop.wait(BEAT_SECONDS):
            late = self._clock.monotonic() - self._beat - BEAT_SECONDS
            if late > TOO_LONG_SECONDS and self._beat != reported:
                reported = self._beat
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
    """Return the innermost function of Rota's that runs in a frame."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(OWN):
            return f"{module}.{frame.f_code.co_qualname}"
        frame = frame.f_back
    return None
