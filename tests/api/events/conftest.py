"""A real server on loopback, and clients that follow it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from rota.app.daemon import Daemon
from rota.app.endpoints import open_http_api
from rota.app.settings import Settings
from rota.executors.inprocess.runner import InProcessRunner
from rota.flow.define.keys import create_key
from rota.model.keys import EVERY_SCOPE
from rota.model.spaces import SpaceRole
from rota.rules.permissions import LOCAL
from rota.runtime.clock import SystemClock
from rota.runtime.supervisor import Supervisor, SupervisorSettings, this_process
from rota.store.sqlite.database import MemoryDatabase, SqliteDatabase
from rota.store.tasks import add_space
from tests.tools.store_bench import Bench

PATIENCE = 10.0
"""How long a test waits for what must come; nothing waits for this to pass."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One event as a client reads it."""

    id: str | None
    name: str | None
    data: dict | None


class Follower:
    """A client that reads a stream of events."""

    def __init__(self, reader, writer, status, headers):
        self.status = status
        self.headers = headers
        self._reader = reader
        self._writer = writer
        self._text = ""

    async def next(self):
        """Return the next event that has data."""
        while True:
            sent = await self.block()
            if sent is None or sent.data is not None:
                return sent

    async def names(self, count):
        return [(await self.next()).name for _ in range(count)]

    async def block(self):
        """Return what came up to the next empty line, or None at the end."""
        while "\n\n" not in self._text:
            chunk = await self._chunk()
            if not chunk:
                return None
            self._text += chunk
        block, _, self._text = self._text.partition("\n\n")
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        data = fields.get("data")
        return Sent(fields.get("id"), fields.get("event"), data and json.loads(data))

    async def rest(self):
        """Return every event up to the end of the stream."""
        found = []
        while (sent := await self.next()) is not None:
            found.append(sent)
        return found

    async def _chunk(self):
        async with asyncio.timeout(PATIENCE):
            size = await self._reader.readline()
            if not size.strip():
                return ""
            data = await self._reader.readexactly(int(size, 16) + 2)
        return data[:-2].decode()

    async def body(self):
        """Return a whole answer as a record."""
        text = await self.read()
        return json.loads(text) if text else None

    async def read(self):
        """Return a whole answer."""
        return await self._reader.readexactly(int(self.headers.get("content-length", "0")))

    async def close(self):
        self._writer.close()
        await self._writer.wait_closed()


class Door:
    """An open door, and who may come through it."""

    def __init__(self, store, clock, home, stack):
        self.store = store
        self.bench = Bench(store, clock)
        self.home = home
        self.url = ""
        self._stack = stack
        self._numbers = itertools.count()

    @property
    def admin(self):
        return (self.home / "admin.key").read_text().strip()

    async def member(self, space):
        """Return a key of a member space, and its token."""
        await self.store.write(add_space, space, SpaceRole.MEMBER, "UTC")
        secret = f"{space} {next(self._numbers)}".encode().ljust(32)
        return await create_key(self.store, LOCAL, space, secret, space=space, scopes=EVERY_SCOPE)

    async def ask(self, path, *, method="GET", token=None, **headers):
        """Send one request and return what came back, up to the headers."""
        place = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 16)
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {place.netloc}",
            *([] if token == "" else [f"Authorization: Bearer {token or self.admin}"]),
            *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(PATIENCE):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        found = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        made = Follower(reader, writer, int(head[0].split()[1]), found)
        self._stack.push_async_callback(made.close)
        return made

    async def call(self, path, *, method="GET", **options):
        """Send one request and return its status and its record."""
        answer = await self.ask(path, method=method, **options)
        return answer.status, await answer.body()

    async def follow(self, path="/v1/events", **options):
        """Return a client that has been let in and told where it stands."""
        made = await self.ask(path, **options)
        assert made.status == 200
        assert made.headers["content-type"] == "text/event-stream"
        return made

    async def settled(self, task):
        """Queue a run of a task and end it."""
        (run_id,) = await self.bench.queue(task)
        await self.bench.end(await self.bench.claim_one())
        return run_id


class Working(Door):
    """A door with a daemon behind it, whose functions a test brings."""

    def __init__(self, store, clock, home, stack):
        super().__init__(store, clock, home, stack)
        self.functions = {}
        self.crews = []
        self._runner = InProcessRunner(self.functions, threads=4)
        self.daemon = Daemon(self._crew)
        self._ready = asyncio.Event()

    def _crew(self):
        me = this_process()
        settings = SupervisorSettings(
            worker_id=me.worker_id,
            home=str(self.home),
            host=me.host,
            pid=me.pid,
            drain=timedelta(milliseconds=50),
        )
        chance = random.SystemRandom()
        crew = Supervisor(self.store, [self._runner], {}, settings, SystemClock(), chance)
        self.crews.append(crew)
        return crew

    async def serve(self):
        """Let the daemon work until the test has ended."""
        serving = asyncio.create_task(self.daemon.serve(self._ready.set))
        await self._ready.wait()

        async def end():
            os.kill(os.getpid(), signal.SIGTERM)
            await serving
            self._runner.close()

        self._stack.push_async_callback(end)

    async def task_of(self, name, function, **policy):
        """Return a task that a function does."""
        self.functions[f"python:{name}"] = function
        return await self.bench.task(name, **policy)

    async def until(self, agreed):
        """Wait until something is so, told by the store's announcements."""
        changed = asyncio.Event()
        stop = self.store.subscribe(lambda topic: changed.set())
        try:
            async with asyncio.timeout(PATIENCE):
                while not await agreed():
                    changed.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.02):
                            await changed.wait()
        finally:
            stop()

    async def until_state(self, state):
        async def agreed():
            return (await self.call("/v1/status"))[1]["daemon"]["state"] == state

        await self.until(agreed)

    async def until_run(self, run_id, *states):
        async def agreed():
            return (await self.bench.state(run_id)) in states

        await self.until(agreed)


@pytest.fixture(params=["memory", "sqlite"])
def working(request, tmp_path, runner):
    """A daemon that works behind its door."""
    clock = SystemClock()
    made = MemoryDatabase(clock)
    if request.param == "sqlite":
        made = SqliteDatabase(str(tmp_path / "rota.db"), clock)
    stack = AsyncExitStack()

    async def begin():
        await made.open()
        stack.push_async_callback(made.close)
        await made.write(add_space, "main", SpaceRole.MAIN, "UTC")
        settings = Settings(home=tmp_path, store="memory:", port=0)
        door = Working(made, clock, tmp_path, stack)
        door.url = await stack.enter_async_context(open_http_api(settings, made, door.daemon))
        await door.serve()
        return door

    yield runner.run(begin())
    runner.run(stack.aclose())


@pytest.fixture(params=["memory", "sqlite"])
def door(request, clock, tmp_path, runner):
    """A door before a store of each kind that lives on this machine."""
    made = MemoryDatabase(clock)
    if request.param == "sqlite":
        made = SqliteDatabase(str(tmp_path / "rota.db"), clock)
    stack = AsyncExitStack()

    async def begin():
        await made.open()
        stack.push_async_callback(made.close)
        await made.write(add_space, "main", SpaceRole.MAIN, "UTC")
        settings = Settings(home=tmp_path, store="memory:", port=0)
        door = Door(made, clock, tmp_path, stack)
        door.url = await stack.enter_async_context(open_http_api(settings, made))
        return door

    yield runner.run(begin())
    runner.run(stack.aclose())
