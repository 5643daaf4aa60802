"""Watches the event loop from outside: code that blocks it is named while it does."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rota.ports.clock import Clock

log = logging.getLogger(__name__)

BEAT_SECONDS = 0.5
TOO_LONG_SECONDS = 1.0
DEEPEST_TRACE = 8


class LagWatch:
    """Logs `loop.blocked` once for each block of more than a second, with what was running.

    The loop notes the time twice a second; a thread looks whether the note has grown old.
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
        self.blocks = 0

    def __enter__(self) -> Self:
        """Start watching the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
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
        self._beat = self._clock.monotonic()
        if self._loop is not None:
            self._timer = self._loop.call_later(BEAT_SECONDS, self._note)

    def _watch(self) -> None:
        reported = 0.0
        while not self._stop.wait(BEAT_SECONDS):
            late = self._clock.monotonic() - self._beat - BEAT_SECONDS
            if late > TOO_LONG_SECONDS and self._beat != reported:
                reported = self._beat
                self.blocks += 1
                self._report(late)

    def _report(self, late: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - there is no other way
        task = asyncio.current_task(self._loop)
        log.warning(
            "loop.blocked",
            extra={
                "seconds": round(late, 1),
                "task": None if task is None else self._running(task),
                "trace": "".join(traceback.format_stack(frame, DEEPEST_TRACE)) if frame else "",
            },
        )
