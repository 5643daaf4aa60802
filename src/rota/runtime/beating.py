"""The heart: tells the store, at every heartbeat, of every attempt and of the machine."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple, Protocol

from rota.model.beats import Sign
from rota.ports.clock import Clock, Random
from rota.ports.machines import Gauge
from rota.ports.runner import Keepers
from rota.ports.store import Store
from rota.runtime.service import Service

HEARTBEAT = timedelta(seconds=60)
MISSED = 2.5
"""Heartbeats after which two are missed, whatever a busy machine adds to each."""


class Working(Protocol):
    """A worker, as far as its heart is concerned."""

    id: str

    def signs(self) -> list[Sign]:
        """Return what can be seen of the attempts that are not kept."""


class Machine(NamedTuple):
    """Where a worker works, and what tells how that is doing."""

    home: str
    host: str
    gauge: Gauge


class Heart:
    """Beats until stopped: one write for all attempts, none while there are none."""

    def __init__(
        self,
        store: Store,
        worker: Working,
        clock: Clock,
        chance: Random,
        every: timedelta = HEARTBEAT,
        machine: Machine | None = None,
    ) -> None:
        self._machine = machine
        self._store = store
        self._worker = worker
        self._every = every.total_seconds()
        self.keepers: Keepers | None = None
        self.service = Service("heartbeat", self._step, clock, chance)

    @property
    def patience(self) -> int:
        """How many microseconds without a beat are two missed ones."""
        return int(MISSED * self._every * 1_000_000)

    async def beat(self) -> int:
        """Tell of every attempt; return of how many."""
        signs = self._worker.signs()
        if self.keepers is not None:
            signs += await self.keepers.signs()
        if signs:
            await self._store.beat(self._worker.id, signs, self._store.now() + self.patience)
        return len(signs)

    async def _step(self) -> float:
        await self.beat()
        if self._machine is not None:
            home, host, gauge = self._machine
            await self._store.read_machine(self._worker.id, home, host, gauge())
        return self._every
