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
"""Beyond the drain, how long writing down what ended may take; the store may be gone."""
LAST_SECONDS = 2.0
"""After the drain, how long the loops may take to end before they are left behind."""


class DaemonExit(Enum):
    """How a daemon ended."""

    DRAINED = "everything that ran has ended or was given back"
    LEFT_BEHIND = "a function that cannot be stopped was still running; its run is given back later"
    INTERRUPTED = "a second interrupt stopped everything at once"


class Daemon:
    """Works with one crew at a time, until a signal ends it.

    SIGTERM or one SIGINT drains, a second SIGINT stops at once. A stop that a person asks for ends
    the crew and not the daemon: its doors stay open, and a start brings a new crew.
    """

    def __init__(self, make_crew: Callable[[], Supervisor]) -> None:
        self._make_crew = make_crew
        self._crew: Supervisor | None = None
        self.worker: str | None = None
        """Which worker is its own; what is kept goes on in its name when that has stopped."""
        self._stops = _Stops()
        self._wanted = True
        self._changed = asyncio.Event()
        self.state = "starting"

    @property
    def services(self) -> Sequence[Poller]:
        """What keeps going while it works."""
        return [] if self._crew is None else self._crew.services

    @property
    def blocks(self) -> LoopBlocks | None:
        """What has blocked its loop since its crew began; None without a crew."""
        return None if self._crew is None else self._crew.blocks

    def start(self) -> None:
        """Work again, as soon as an earlier stop has ended; nothing happens if it does."""
        self._want(True)

    def stop(self) -> None:
        """Take nothing new and let what runs end; nothing happens if it has stopped."""
        self._want(False)

    def _want(self, wanted: bool) -> None:
        self._wanted = wanted
        self._changed.set()
        if self._crew is None:
            self.state = "starting" if wanted else "stopped"
        elif not wanted:
            self.state = "stopping"

    async def serve(self, ready: Callable[[], object]) -> DaemonExit:
        """Work until a signal."""
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
        """Let a crew work until somebody wants it to stop; None if the daemon is to go on."""
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
        """End a crew while the daemon goes on; a signal meanwhile ends both within the bound."""
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
        """Wait until a crew is wanted, and return it; None once a signal has come."""
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
        """Wait for a wish, a signal or the end of one of the tasks."""
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
    """What signals have asked for."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()

    def drain(self) -> None:
        """End what runs, within the bound."""
        self.asked.set()

    def interrupt(self) -> None:
        """Drain at the first time, stop at once at the second."""
        if self.asked.is_set():
            self.at_once.set()
        self.asked.set()
