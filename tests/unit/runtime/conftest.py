"""A crew on a stage."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from rota.runtime.supervisor import Supervisor, SupervisorSettings
from rota.testing.fakes import RecordingChannel, ScriptedRunner


class Stage:
    """A crew on a memory store, with a puppet for its runner."""

    def __init__(self, desk, chance, act=None, gauge=None, **settings):
        self.desk = desk
        self.channel = RecordingChannel()
        self.failures = []
        self.told = asyncio.Event()
        self.puppet = ScriptedRunner(["python:job"], act)
        options = {
            "worker_id": "me",
            "home": "h",
            "host": "here",
            "pid": 1,
            "slots": 10,
            "drain": timedelta(milliseconds=10),
        }
        self.crew = Supervisor(
            desk.store,
            [self.puppet],
            {"test": self.channel},
            SupervisorSettings(**{**options, **settings}),
            desk.clock,
            chance,
            gauge=gauge,
            on_failure=self._tell,
        )

    def _tell(self, failure):
        self.failures.append(failure)
        self.told.set()

    @asynccontextmanager
    async def working(self):
        await self.crew.start()
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(self.crew.run())
            try:
                yield self
            finally:
                await self.crew.stop()

    async def begun(self):
        return await self.puppet.begun.get()


@pytest.fixture
def stage(desk, chance):
    def build(act=None, gauge=None, **settings):
        return Stage(desk, chance, act, gauge, **settings)

    return build
