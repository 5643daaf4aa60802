"""Renewal of the worker's lease; heartbeats of attempts and of the machine.

If other processes judge the worker by its lease, renewal has a thread, a loop and connections of
its own, so that a function that blocks the event loop does not cost the lease. If a lock shows who
is alive, it is a poller like the others.
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
"""Renewals per lease duration: two may fail."""
RETRIES = 30
"""Retries per lease duration after a failure, so that the end of the lease is noticed in time."""
MARGIN = 6
"""A worker that cannot renew stops its work when 1/6 of the lease is left."""


class WorkerLease:
    """Renews a lease until stopped; calls back on the loop on which it was created."""

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
        self.poller = Poller("pulse", self._step, clock, chance)
        self._store = store
        self._worker_id = worker_id
        self._renewed = renewed
        self._clock = clock
        self._renewed_at = clock.monotonic()
        self._ended = asyncio.Event()
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._main_loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_valid(self) -> bool:
        """Whether the lease is certainly valid, because it was taken or renewed recently."""
        return self._clock.monotonic() - self._renewed_at <= self._ttl - self._ttl / MARGIN

    def mark_taken(self, at: float) -> None:
        """Record that a lease was taken by a request sent at this time."""
        self._renewed_at = at

    def mark_lost(self) -> None:
        """Record that the lease is lost."""
        self._renewed_at = float("-inf")

    @property
    def lease(self) -> int:
        """The end of a lease taken now."""
        return self._store.now() + int(self._ttl * 1_000_000)

    async def run(self) -> None:
        """Renew until stopped, on a thread if the store can be opened twice."""
        second = self._store.database.second()
        if second is None:
            await self.poller.run()
            return
        self._main_loop = asyncio.get_running_loop()
        self._store = second
        threading.Thread(
            target=self._run_in_thread,
            args=(second, self._main_loop),
            name="rota-pulse",
            daemon=True,
        ).start()
        await self._ended.wait()

    def _run_in_thread(self, store: Database, home: asyncio.AbstractEventLoop) -> None:
        try:
            asyncio.run(self._run_on_own_loop(store))
        finally:
            with contextlib.suppress(RuntimeError):  # the main loop is closed already
                home.call_soon_threadsafe(self._ended.set)

    def wake(self) -> None:
        """Renew now."""
        self._call(self.poller.wake)

    def stop(self) -> None:
        """Stop renewing."""
        self._call(self.poller.stop)

    def _call(self, function: Callable[[], None]) -> None:
        if self._own_loop is None:
            function()
            return
        try:
            self._own_loop.call_soon_threadsafe(function)
        except RuntimeError:  # its loop is closed, so it has ended
            return

    async def _run_on_own_loop(self, store: Database) -> None:
        self._own_loop = asyncio.get_running_loop()
        try:
            await self.poller.run()
        finally:
            await store.close()

    async def _step(self) -> float:
        sent_at = self._clock.monotonic()
        try:
            renewal = await self._renew(self._patience(sent_at))
        except Exception as error:
            if self.is_valid:
                log.warning("lease.renewal_failed", extra={"error": str(error)})
                return self._ttl / RETRIES
            await self._report(LeaseRenewal(alive=False))
            raise
        if renewal.alive:
            self._renewed_at = sent_at
        await self._report(renewal)
        return self._ttl / RENEWALS

    async def _renew(self, patience: float) -> LeaseRenewal:
        try:
            async with asyncio.timeout(patience):
                await self._store.database.open()  # no effect if it is open
                return await self._store.write(renew_worker, self._worker_id(), self.lease)
        except TimeoutError as error:
            message = f"the database did not answer within {patience:.1f} s"
            raise Unavailable(message) from error

    def _patience(self, now: float) -> float:
        """Return the time limit of a renewal, so that the loss of the lease is noticed in time."""
        left = self._renewed_at + self._ttl - self._ttl / MARGIN - now
        each = self._ttl / RENEWALS
        return min(left, each) if left > 0 else each

    async def _report(self, renewal: LeaseRenewal) -> None:
        if self._main_loop is None:
            await self._renewed(renewal)
            return
        self._main_loop.call_soon_threadsafe(self._report_on_main_loop, renewal)

    def _report_on_main_loop(self, renewal: LeaseRenewal) -> None:
        if self._main_loop is not None:
            task = self._main_loop.create_task(self._call_renewed(renewal))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _call_renewed(self, renewal: LeaseRenewal) -> None:
        try:
            await self._renewed(renewal)
        except Exception:
            log.exception("lease.callback_failed")


HEARTBEAT = timedelta(seconds=60)
MISSED_FACTOR = 2.5
"""Number of intervals after which two heartbeats count as missed; allows for delays."""


class HeartbeatSource(Protocol):
    """A worker as the source of samples."""

    id: str

    def take_samples(self) -> list[AttemptSample]:
        """Return samples of the attempts that no keeper holds."""


class MachineInfo(NamedTuple):
    """Home and host of a worker, and its load gauge."""

    home: str
    host: str
    gauge: Gauge


class HeartbeatLoop:
    """Sends heartbeats until stopped: one write for all attempts, none without attempts."""

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
        self.poller = Poller("heartbeat", self._step, clock, chance)

    @property
    def overdue_after(self) -> int:
        """Microseconds without a heartbeat after which two count as missed."""
        return int(MISSED_FACTOR * self._every * 1_000_000)

    async def send_heartbeats(self) -> int:
        """Send heartbeats of all attempts; return their number."""
        signs = self._worker.take_samples()
        if self.keepers is not None:
            signs += await self.keepers.take_samples()
        if signs:
            await self._store.write(
                record_heartbeats, self._worker.id, signs, self._store.now() + self.overdue_after
            )
        return len(signs)

    async def _step(self) -> float:
        await self.send_heartbeats()
        if self._machine is not None:
            home, host, gauge = self._machine
            await self._store.write(record_machine_sample, self._worker.id, home, host, gauge())
        return self._every


KIB = 1024
IDLE = slice(3, 5)
"""Fields of idle time and I/O wait."""
TIMES = 8
"""Number of fields; the following ones are included in earlier ones."""


class ProcLoadGauge:
    """Reads the load since the previous call; at first since boot."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._before = (0, 0)

    def __call__(self) -> MachineLoad:
        """Return the load of the machine."""
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
