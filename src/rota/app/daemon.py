"""The daemon: start, stop by people, end by signals."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from enum import Enum

from rota.errors import RotaError
from rota.runtime.event_loop import LoopBlocks
from rota.runtime.poller import Poller
from rota.runtime.supervisor import Supervisor

log = logging.getLogger(__name__)

WRITING_SECONDS = 10.0
"""After the drain, time to record outcomes; the store may be unavailable."""
LAST_SECONDS = 2.0
"""After the drain, time for the loops to end before they are abandoned."""


class DaemonExit(Enum):
    """How a daemon ended."""

    DRAINED = "everything has ended or was returned to the queue"
    LEFT_BEHIND = (
        "a function that cannot be stopped is still running; its run is returned to the queue later"
    )
    INTERRUPTED = "a second interrupt stopped everything at once"


class Daemon:
    """Runs one supervisor at a time until a signal ends the daemon.

    SIGTERM or one SIGINT drains, a second SIGINT stops at once. `rota stop` ends the supervisor and
    not the daemon: its interfaces stay open, and `rota start` creates a new supervisor.
    """

    def __init__(self, make_crew: Callable[[], Supervisor]) -> None:
        self._make_crew = make_crew
        self._crew: Supervisor | None = None
        self.worker: str | None = None
        """The worker of this daemon; kept attempts continue under its name when it has stopped."""
        self._stops = _Stops()
        self._wanted = True
        self._changed = asyncio.Event()
        self.state = "starting"

    @property
    def services(self) -> Sequence[Poller]:
        """The loops of the current supervisor."""
        return [] if self._crew is None else self._crew.pollers

    @property
    def blocks(self) -> LoopBlocks | None:
        """Blocks of the event loop since the supervisor started; None without one."""
        return None if self._crew is None else self._crew.blocks

    def start(self) -> None:
        """Start a supervisor as soon as an earlier stop has ended; no effect if it is running."""
        self._want(True)

    def stop(self) -> None:
        """Claim nothing more and let running work end; no effect if it is stopped."""
        self._want(False)

    def _want(self, wanted: bool) -> None:
        self._wanted = wanted
        self._changed.set()
        if self._crew is None:
            self.state = "starting" if wanted else "stopped"
        elif not wanted:
            self.state = "stopping"

    async def serve(self, ready: Callable[[], object]) -> DaemonExit:
        """Run until a signal."""
        loop = asyncio.get_running_loop()
        first = self._make_crew()
        await first.start()
        loop.add_signal_handler(signal.SIGTERM, self._stops.drain)
        loop.add_signal_handler(signal.SIGINT, self._stops.interrupt)
        try:
            ready()
            crew: Supervisor | None = first
            while True:
                ending = DaemonExit.DRAINED if crew is None else await self._work(crew)
                if ending is not None:
                    log.info("daemon.stopped", extra={"how": ending.name.lower()})
                    return ending
                crew = await self._next_crew()
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            loop.remove_signal_handler(signal.SIGINT)

    async def _work(self, crew: Supervisor) -> DaemonExit | None:
        """Run a supervisor until it should stop; return None if the daemon continues."""
        self._crew, self.worker, self.state = crew, crew.worker.id, "working"
        working = asyncio.get_running_loop().create_task(crew.run())
        try:
            await self._until(lambda: not self._wanted, working)
            if working.done():
                await working
                return DaemonExit.DRAINED
            log.info("daemon.draining", extra={"running": crew.worker.running})
            if self._stops.asked.is_set():
                self.state = "ending"
                return await self._drain(crew, working)
            return await self._rest(crew, working)
        finally:
            self._crew, self.state = None, "stopped"

    async def _rest(self, crew: Supervisor, working: asyncio.Task[None]) -> DaemonExit | None:
        """End a supervisor while the daemon continues; a signal ends both within the time limit."""
        stopping = asyncio.get_running_loop().create_task(crew.stop(to_the_end=True))
        await self._until(lambda: False, stopping)
        if self._stops.asked.is_set():
            self.state = "ending"
            return await self._drain(crew, working, stopping)
        await stopping
        await working
        log.info("daemon.idle")
        return None

    async def _next_crew(self) -> Supervisor | None:
        """Wait until a supervisor is wanted and return it; None after a signal."""
        while True:
            await self._until(lambda: self._wanted)
            if self._stops.asked.is_set():
                return None
            crew = self._make_crew()
            try:
                await crew.start()
            except RotaError as fault:
                log.warning("daemon.start_failed", extra={"error": str(fault)})
                self._want(False)
            else:
                return crew

    async def _until(self, agreed: Callable[[], bool], *tasks: asyncio.Task[None]) -> None:
        """Wait for a request, a signal or the end of one of the tasks."""
        loop = asyncio.get_running_loop()
        while not (agreed() or self._stops.asked.is_set() or any(task.done() for task in tasks)):
            self._changed.clear()
            waits = [
                loop.create_task(self._changed.wait()),
                loop.create_task(self._stops.asked.wait()),
            ]
            try:
                await asyncio.wait({*waits, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    async def _drain(
        self,
        crew: Supervisor,
        working: asyncio.Task[None],
        stopping: asyncio.Task[None] | None = None,
    ) -> DaemonExit:
        loop = asyncio.get_running_loop()
        stopping = stopping or loop.create_task(crew.stop())
        at_once = loop.create_task(self._stops.at_once.wait())
        bound = crew.settings.drain.total_seconds() + WRITING_SECONDS
        await asyncio.wait({stopping, at_once}, timeout=bound, return_when=asyncio.FIRST_COMPLETED)
        at_once.cancel()
        if not stopping.done():
            stopping.cancel()
            working.cancel()
            await asyncio.wait({stopping, working}, timeout=LAST_SECONDS)
            return (
                DaemonExit.INTERRUPTED if self._stops.at_once.is_set() else DaemonExit.LEFT_BEHIND
            )
        await stopping
        await asyncio.wait({working}, timeout=LAST_SECONDS)
        if working.done():
            return DaemonExit.DRAINED if crew.worker.running == 0 else DaemonExit.LEFT_BEHIND
        working.cancel()
        await asyncio.wait({working}, timeout=LAST_SECONDS)
        return DaemonExit.LEFT_BEHIND


class _Stops:
    """The signals that were received."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()

    def drain(self) -> None:
        """Drain within the time limit."""
        self.asked.set()

    def interrupt(self) -> None:
        """Drain at the first call, stop at once at the second."""
        if self.asked.is_set():
            self.at_once.set()
        self.asked.set()
