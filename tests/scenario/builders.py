"""What scenarios are made of: a store that fails, work that does not stop, a silent channel."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.errors import Unavailable
from rota.library.rota import Rota
from rota.model.attempts import DONE
from rota.model.views import RunFilter
from rota.runtime.supervisor import Supervisor, SupervisorSettings
from rota.store.outbox import record_delivery
from rota.store.sqlite.database import MemoryDatabase
from rota.store.workers import mark_stuck, register_worker
from rota.testing.fakes import FixedChance


class FlakyStore(MemoryDatabase):
    """A memory store that other processes could share, and whose next calls can be made to fail."""

    def __init__(self, clock):
        super().__init__(clock)
        self.failing = {}
        self.called = asyncio.Event()

    async def take_roles(self):
        return False

    async def write(self, operation, *args, **kwargs):
        if operation in {mark_stuck, register_worker, record_delivery}:
            self.called.set()
            if self.failing.get(operation, 0) > 0:
                self.failing[operation] -= 1
                raise Unavailable("the connection was lost")
        return await super().write(operation, *args, **kwargs)


def crew_on(desk, runner, chance):
    settings = SupervisorSettings(
        worker_id="me", home="h", host="here", pid=1, slots=4, drain=timedelta(milliseconds=50)
    )
    return Supervisor(desk.store, [runner], {}, settings, desk.clock, chance)


class Stubborn:
    """Work that does not stop until it is let go; later attempts end at once."""

    def __init__(self):
        self.let_go = asyncio.Event()
        self.begun = asyncio.Event()

    async def __call__(self, assignment):
        if assignment.lease.epoch > 1:
            return DONE
        self.begun.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        return DONE


async def accounted(desk, task):
    """Return how many slots of a task have a run, and how many are told of in the ledger."""
    told = sum(count for _, count in await desk.ledger(task))
    return len(await desk.slots(task)), told


EVERYTHING = RunFilter(limit=100)


def library(clock=None, **options):
    return Rota("memory:", clock=clock, chance=FixedChance(), **options)


class Silent:
    """A channel that never answers."""

    name = "silent"

    async def send(self, delivery):
        raise TimeoutError
