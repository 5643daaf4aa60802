"""A Rota in memory whose time a test moves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rota.flow.maintain import expire
from rota.flow.plan import plan
from rota.library.rota import Rota
from rota.model.instants import from_micros
from rota.model.spaces import Limit
from rota.ports.channel import Channel
from rota.runtime.supervisor import Supervisor
from rota.runtime.worker import FailureHook
from rota.store.outbox import next_delivery
from rota.testing.fakes import BEGIN, FixedChance, VirtualClock


class MemoryRota(Rota):
    """A Rota on a database in memory, with a virtual clock and without chance.

    ```python
    async with MemoryRota(program) as rota:
        await rota.schedule("report", cron="0 7 * * *", timezone="Europe/Berlin")
        await rota.advance(days=1)
    ```

    It has the tasks of `program`, the Rota of an application, and those declared on itself. Its
    time stands still except in `advance`. A run that is held back by a rate waits for that, so
    `work(until_idle=True)` returns without it.
    """

    def __init__(
        self,
        program: Rota | None = None,
        *,
        start: datetime = BEGIN,
        channels: Sequence[Channel] = (),
        limits: Sequence[Limit] = (),
        on_failure: FailureHook | None = None,
    ) -> None:
        self.clock = VirtualClock(start)
        self.chance = FixedChance()
        self._rate_rest: int | None = None
        super().__init__(
            "memory:",
            channels=channels,
            limits=limits,
            on_failure=on_failure,
            clock=self.clock,
            chance=self.chance,
        )
        for declared in () if program is None else program.declared.values():
            self.declare(declared)

    async def advance(
        self,
        span: timedelta | None = None,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> datetime:
        """Let time pass and do on the way whatever comes due, when it is due.

        Time stops at each instant for which a slot, a delayed run, a retry, a delivery or a run
        under a rate waits, and at the end. Questions and deadlines that have run out by then end at
        the next stop. Returns the new instant.
        """
        step = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        end = self.clock.now() + (span or timedelta()) + step
        await self.work(until_idle=True)
        while (at := await self._next_instant()) is not None and at < end:
            self.clock.advance(at - self.clock.now())
            await self._work_now()
        self.clock.advance(end - self.clock.now())
        await self._work_now()
        return end

    async def _work_now(self) -> None:
        await expire(self.store, self.chance)
        await self.work(until_idle=True)

    async def _until_idle(self, crew: Supervisor) -> None:
        await crew.idle(rates=False)
        self._rate_rest = crew.worker.rate_rest_micros

    async def _next_instant(self) -> datetime | None:
        """Return when something comes due after now."""
        now = self.store.now()
        rests = ((await plan(self.store)).rest_micros, self._rate_rest)
        instants = [now + rest for rest in rests if rest is not None]
        delivery = await self.store.read(next_delivery)
        later = [at for at in (*instants, delivery) if at is not None and at > now]
        return from_micros(min(later)) if later else None
