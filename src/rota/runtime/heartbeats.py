"""Renewal of the worker's lease; heartbeats of attempts and of the machine.

Where other processes judge a worker by its lease, the pulse has a thread, a loop and connections of
its own, so that a callable that blocks the event loop does not cost the worker its lease. Where a
lock tells who is alive, it is a service like the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from rota.errors import Unavailable
from rota.model.heartbeats import AttemptSample, MachineLoad
from rota.model.views import LeaseRenewal
from rota.ports.clock import Clock, Random
from rota.ports.host import Gauge
from rota.ports.runner import DurableRunner
from rota.runtime.poller import Poller
from rota.store.heartbeats import record_heartbeats, record_machine_sample
from rota.store.store import Database, Store
from rota.store.workers import renew_worker

log = logging.getLogger(__name__)

WORKER_TTL = timedelta(seconds=30)
RENEWALS = 3
"""Renewals within the life of a lease: two may fail."""
TRIES = 30
"""Tries within the life of a lease when renewing fails, so that its end is noticed in time."""
MARGIN = 6
"""The part of a lease, 1/6, before whose end a worker that cannot renew stops its work."""


class WorkerLease:
    """Renews a lease until stopped; tells what came of it on the loop it was made on."""

    def __init__(
        self,
        store: Store,
        worker_id: Callable[[], str],
        renewed: Callable[[LeaseRenewal], Awaitable[None]],
        clock: Clock,
        chance: Random,
        ttl: timedelta = WORKER_TTL,
    ) -> None:
        self._ttl = ttl.total_seconds()
        self.service = Poller("pulse", self._step, clock, chance)
        self._store = store
        self._worker_id = worker_id
        self._renewed = renewed
        self._clock = clock
        self._renewed_at = clock.monotonic()
        self._ended = asyncio.Event()
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._telling: set[asyncio.Task[None]] = set()

    @property
    def holds(self) -> bool:
        """Whether the lease is certain to hold: it was taken or renewed a short while ago."""
        return self._clock.monotonic() - self._renewed_at <= self._ttl - self._ttl / MARGIN

    def took(self, at: float) -> None:
        """Note that a lease was taken, by a request that was sent at an instant of the clock."""
        self._renewed_at = at

    def lost(self) -> None:
        """Note that there is no lease."""
        self._renewed_at = float("-inf")

    @property
    def lease(self) -> int:
        """Until when a lease taken now holds."""
        return self._store.now() + int(self._ttl * 1_000_000)

    async def run(self) -> None:
        """Renew until stopped, on a thread if the store can be opened a second time."""
        second = self._store.database.second()
        if second is None:
            await self.service.run()
            return
        self._home = asyncio.get_running_loop()
        self._store = second
        threading.Thread(
            target=self._run_beside, args=(second, self._home), name="rota-pulse", daemon=True
        ).start()
        await self._ended.wait()

    def _run_beside(self, store: Database, home: asyncio.AbstractEventLoop) -> None:
        try:
            asyncio.run(self._beside(store))
        finally:
            with contextlib.suppress(RuntimeError):  # nobody waits for it any more
                home.call_soon_threadsafe(self._ended.set)

    def wake(self) -> None:
        """Ask the store now."""
        self._call(self.service.wake)

    def stop(self) -> None:
        """Renew no more."""
        self._call(self.service.stop)

    def _call(self, function: Callable[[], None]) -> None:
        if self._own_loop is None:
            function()
            return
        try:
            self._own_loop.call_soon_threadsafe(function)
        except RuntimeError:  # its loop has ended, and so has it
            return

    async def _beside(self, store: Database) -> None:
        self._own_loop = asyncio.get_running_loop()
        try:
            await self.service.run()
        finally:
            await store.close()

    async def _step(self) -> float:
        sent_at = self._clock.monotonic()
        try:
            renewal = await self._renew(self._patience(sent_at))
        except Exception as error:
            if self.holds:
                log.warning("pulse.unanswered", extra={"error": str(error)})
                return self._ttl / TRIES
            await self._tell(LeaseRenewal(alive=False))
            raise
        if renewal.alive:
            self._renewed_at = sent_at
        await self._tell(renewal)
        return self._ttl / RENEWALS

    async def _renew(self, patience: float) -> LeaseRenewal:
        try:
            async with asyncio.timeout(patience):
                await self._store.database.open()  # does nothing where it is open
                return await self._store.write(renew_worker, self._worker_id(), self.lease)
        except TimeoutError as error:
            message = f"the database did not answer within {patience:.1f} s"
            raise Unavailable(message) from error

    def _patience(self, now: float) -> float:
        """Return how long to wait for an answer, so as to know in time that the lease is lost."""
        left = self._renewed_at + self._ttl - self._ttl / MARGIN - now
        each = self._ttl / RENEWALS
        return min(left, each) if left > 0 else each

    async def _tell(self, renewal: LeaseRenewal) -> None:
        if self._home is None:
            await self._renewed(renewal)
            return
        self._home.call_soon_threadsafe(self._tell_home, renewal)

    def _tell_home(self, renewal: LeaseRenewal) -> None:
        if self._home is not None:
            task = self._home.create_task(self._told(renewal))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _told(self, renewal: LeaseRenewal) -> None:
        try:
            await self._renewed(renewal)
        except Exception:
            log.exception("pulse.not_heard")


HEARTBEAT = timedelta(seconds=60)
MISSED = 2.5
"""Heartbeats after which two are missed, whatever a busy machine adds to each."""


class HeartbeatSource(Protocol):
    """A worker, as far as its heart is concerned."""

    id: str

    def signs(self) -> list[AttemptSample]:
        """Return what can be seen of the attempts that are not kept."""


class MachineInfo(NamedTuple):
    """Where a worker works, and what tells how that is doing."""

    home: str
    host: str
    gauge: Gauge


class HeartbeatLoop:
    """Beats until stopped: one write for all attempts, none while there are none."""

    def __init__(
        self,
        store: Store,
        worker: HeartbeatSource,
        clock: Clock,
        chance: Random,
        every: timedelta = HEARTBEAT,
        machine: MachineInfo | None = None,
    ) -> None:
        self._machine = machine
        self._store = store
        self._worker = worker
        self._every = every.total_seconds()
        self.keepers: DurableRunner | None = None
        self.service = Poller("heartbeat", self._step, clock, chance)

    @property
    def patience(self) -> int:
        """How many microseconds without a beat are two missed ones."""
        return int(MISSED * self._every * 1_000_000)

    async def beat(self) -> int:
        """Tell of every attempt; return of how many."""
        signs = self._worker.signs()
        if self.keepers is not None:
            signs += await self.keepers.take_samples()
        if signs:
            await self._store.write(
                record_heartbeats, self._worker.id, signs, self._store.now() + self.patience
            )
        return len(signs)

    async def _step(self) -> float:
        await self.beat()
        if self._machine is not None:
            home, host, gauge = self._machine
            await self._store.write(record_machine_sample, self._worker.id, home, host, gauge())
        return self._every


KIB = 1024
IDLE = slice(3, 5)
"""Where the time stands in which nothing was done, or a disk was waited for."""
TIMES = 8
"""What follows is counted once more for guests."""


class ProcLoadGauge:
    """Reads the load since it was last read; since the machine's start at first."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._before = (0, 0)

    def __call__(self) -> MachineLoad:
        """Return how busy the machine is."""
        memory = self._memory()
        total, available = memory.get("MemTotal"), memory.get("MemAvailable")
        used = None if total is None or available is None else total - available
        return MachineLoad(self._cpu_percent(), used, total)

    def _cpu_percent(self) -> float | None:
        words = self._read("stat").partition("\n")[0].split()[1:]
        times = [int(word) for word in words[:TIMES] if word.isdecimal()]
        now = (sum(times), sum(times[IDLE]))
        passed, idle = now[0] - self._before[0], now[1] - self._before[1]
        self._before = now
        return round(100 * (1 - idle / passed), 1) if passed > 0 else None

    def _memory(self) -> dict[str, int]:
        pairs = (line.partition(":") for line in self._read("meminfo").splitlines())
        sizes = ((name, rest.split()) for name, _, rest in pairs)
        return {name: int(rest[0]) * KIB for name, rest in sizes if rest and rest[0].isdecimal()}

    def _read(self, name: str) -> str:
        try:
            return (self._proc / name).read_text()
        except OSError:
            return ""
