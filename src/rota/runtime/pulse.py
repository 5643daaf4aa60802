"""The pulse: keeps a worker's lease alive, and hears what the store says about it.

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

from rota.errors import Unavailable
from rota.model.views import Renewal
from rota.ports.clock import Clock, Random
from rota.ports.store import Store
from rota.runtime.service import Service

log = logging.getLogger(__name__)

WORKER_TTL = timedelta(seconds=30)
RENEWALS = 3
"""Renewals within the life of a lease: two may fail."""
TRIES = 30
"""Tries within the life of a lease when renewing fails, so that its end is noticed in time."""
MARGIN = 6
"""The part of a lease, 1/6, before whose end a worker that cannot renew stops its work."""


class Pulse:
    """Renews a lease until stopped; tells what came of it on the loop it was made on."""

    def __init__(
        self,
        store: Store,
        worker_id: Callable[[], str],
        renewed: Callable[[Renewal], Awaitable[None]],
        clock: Clock,
        chance: Random,
        ttl: timedelta = WORKER_TTL,
    ) -> None:
        self._ttl = ttl.total_seconds()
        self.service = Service("pulse", self._step, clock, chance)
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
        second = self._store.again()
        if second is None:
            await self.service.run()
            return
        self._home = asyncio.get_running_loop()
        self._store = second
        threading.Thread(
            target=self._run_beside, args=(second, self._home), name="rota-pulse", daemon=True
        ).start()
        await self._ended.wait()

    def _run_beside(self, store: Store, home: asyncio.AbstractEventLoop) -> None:
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

    async def _beside(self, store: Store) -> None:
        self._own_loop = asyncio.get_running_loop()
        try:
            await self.service.run()
        finally:
            await store.close()

    async def _step(self) -> float:
        sent_at = self._clock.monotonic()
        try:
            renewal = await self._renew(self._patience(sent_at))
        except Exception as fault:
            if self.holds:
                log.warning("pulse.unanswered", extra={"error": str(fault)})
                return self._ttl / TRIES
            await self._tell(Renewal(alive=False))
            raise
        if renewal.alive:
            self._renewed_at = sent_at
        await self._tell(renewal)
        return self._ttl / RENEWALS

    async def _renew(self, patience: float) -> Renewal:
        try:
            async with asyncio.timeout(patience):
                await self._store.open()  # does nothing where it is open
                return await self._store.renew(self._worker_id(), self.lease)
        except TimeoutError as fault:
            message = f"the database did not answer within {patience:.1f} s"
            raise Unavailable(message) from fault

    def _patience(self, now: float) -> float:
        """Return how long to wait for an answer, so as to know in time that the lease is lost."""
        left = self._renewed_at + self._ttl - self._ttl / MARGIN - now
        each = self._ttl / RENEWALS
        return min(left, each) if left > 0 else each

    async def _tell(self, renewal: Renewal) -> None:
        if self._home is None:
            await self._renewed(renewal)
            return
        self._home.call_soon_threadsafe(self._tell_home, renewal)

    def _tell_home(self, renewal: Renewal) -> None:
        if self._home is not None:
            task = self._home.create_task(self._told(renewal))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _told(self, renewal: Renewal) -> None:
        try:
            await self._renewed(renewal)
        except Exception:
            log.exception("pulse.not_heard")
