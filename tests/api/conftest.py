"""A real server on loopback for every test, over a store of the test's own, and a small client.

    def test_a_task_is_found(door):
        door.main.post("/v1/tasks", {"name": "job", "instructions": "Look."})
        assert door.ann.get("/v1/tasks/job").status == 404

`door.main` has every scope, `door.ann` and `door.bob` are members with every scope in spaces of
their own. A test that says `@pytest.mark.parametrize("kind", KINDS)` is run on every store.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
from contextlib import AsyncExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rota.agent_api.dispatcher import AgentApi, RateLimiter
from rota.agent_api.mcp import MCP_PATH, McpSession
from rota.api import http_server
from rota.api.authentication import AgentAuthenticator, KeyAuthenticator
from rota.api.http_server import ListenAddress, opened_socket, serving
from rota.api.middleware import LoginBackoff, Middleware, TrustedHosts
from rota.api.routes import HttpApi, McpEndpoint
from rota.app.composition import NoSqlConsole
from rota.app.probes import LocalProbes
from rota.app.secrets import LocalSecretStore
from rota.app.settings import load_settings
from rota.app.tokens import LocalAttemptTokens
from rota.commands.context import AppContext, CommandLimits
from rota.flow.define.keys import create_key
from rota.flow.observe.verification import verify
from rota.keeper.workspace import LocalArtifactStore
from rota.model.keys import EVERY_SCOPE
from rota.model.spaces import SpaceRole
from rota.rules.permissions import LOCAL
from rota.runtime.event_loop import fastest_loop
from rota.store.sqlite.database import MemoryDatabase, SqliteDatabase
from rota.store.sqlite.sql_console import SqliteSqlConsole
from rota.testing.fakes import FixedChance
from tests.tools.plugins import plugins
from tests.tools.store_bench import Bench

PATIENCE = 30.0
CALL = "tests.api.callables:greet"
"""The one callable that may be named over HTTP."""


class Told(NamedTuple):
    """What a server answered."""

    status: int
    json: Any
    headers: dict[str, str]
    text: str = ""

    @property
    def code(self) -> str:
        return self.json["error"]["code"]

    @property
    def field(self) -> str:
        return self.json["error"]["field"]

    @property
    def sentence(self) -> str:
        return self.json["error"]["message"]


class Client:
    """Asks with one key; every request has a connection of its own."""

    def __init__(self, port: int, token: str | None):
        self.port = port
        self.token = token

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Told:
        """Send JSON; a header is named as `Idempotency_Key=…`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        return self.send(method, path, data, sent)

    def send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> Told:
        """Send bytes, with these headers alone."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            named = {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()
        is_json = named.get("content-type") == "application/json"
        return Told(answer.status, json.loads(text) if is_json and text else None, named, text)

    def get(self, path: str, **headers: str) -> Told:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Told:
        return self.ask("POST", path, body, **headers)

    def put(self, path: str, body: Any = None, **headers: str) -> Told:
        return self.ask("PUT", path, body, **headers)

    def patch(self, path: str, body: Any = None, **headers: str) -> Told:
        return self.ask("PATCH", path, body, **headers)

    def delete(self, path: str, **headers: str) -> Told:
        return self.ask("DELETE", path, **headers)


class Loop:
    """An event loop on a thread, which serves while a test waits for an answer."""

    def __init__(self):
        self._loop = (fastest_loop() or asyncio.new_event_loop)()
        self._thread = threading.Thread(target=self._loop.run_forever, name="door", daemon=True)
        self._thread.start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


class Door:
    """A server, its store, and who may come in."""

    def __init__(self, loop: Loop, store, clock, artifacts=None, home=None, secrets=None):
        self.store = store
        self.secrets = secrets
        self.artifacts = artifacts
        self.clock = clock
        self._home = home
        self.bench = Bench(store, clock)
        self._loop = loop
        self._open = AsyncExitStack()

    def run(self, coroutine):
        """Do something on the server's loop, where its store lives."""
        return self._loop.run(coroutine)

    def start(self, place: ListenAddress, trust: TrustedHosts, **bounds: float):
        self.run(self._start(place, trust, bounds))
        self.main, self.ann, self.bob = self.client(), self.client("ann"), self.client("bob")
        self.nobody = Client(self.port, None)

    async def _start(self, place: ListenAddress, trust: TrustedHosts, given: dict[str, float]):
        await self.store.open()
        self._open.push_async_callback(self.store.close)
        for space in ("main", "ann", "bob"):
            await self.bench.space(space)
        sock = opened_socket(place)
        self._open.callback(sock.close)
        self.port = sock.getsockname()[1]
        self.entrance = KeyAuthenticator(self.store, self.clock.monotonic)
        self._open.callback(self.entrance.close)
        limits = CommandLimits(calls=frozenset({CALL}))
        inquirer = NoSqlConsole("")
        if isinstance(self.store, SqliteDatabase):
            inquirer = SqliteSqlConsole(self.store.database.path)
        self._open.push_async_callback(inquirer.close)
        house = AppContext(
            store=self.store,
            chance=FixedChance(),
            limits=limits,
            plugins=plugins(channels=("log",)),
            sql_console=inquirer,
            artifacts=self.artifacts,
            probes=LocalProbes(Path("nowhere")),
            secrets=self.secrets,
        )
        pages, inside = {}, {}
        if self._home is not None:
            self.desk, self.passes = (
                AgentApi(house, RateLimiter(self.clock.monotonic)),
                self._passes(),
            )
            pages[MCP_PATH] = McpEndpoint(McpSession(self.desk))
            inside[MCP_PATH] = AgentAuthenticator(
                self.desk, self.passes, self.entrance.caller_of
            ).caller_of
        api = HttpApi(house, pages)
        self.downloads = api.downloads
        self._open.push_async_callback(api.close)
        backoff = LoginBackoff(self.clock.monotonic)
        self.guard = Middleware(api, self.entrance, trust, backoff, inside=inside, **given)
        await self._open.enter_async_context(serving(self.guard, sock, place))

    def _passes(self):
        self._home.mkdir(exist_ok=True)
        return LocalAttemptTokens(self._home, self.store)

    def stop(self):
        found = self.run(verify(self.store)).violations
        self.run(self._open.aclose())
        assert not found

    def client(self, space: str = "main", scopes=EVERY_SCOPE, **more) -> Client:
        """Return a client with a new key."""
        role = SpaceRole.MAIN if space == "main" else SpaceRole.MEMBER
        secret = secrets.token_bytes(32)
        made = create_key(
            self.store, LOCAL, f"{space} key", secret, space=space, role=role,
            scopes=frozenset(scopes), **more,
        )  # fmt: skip
        self.key, token = self.run(made)
        return Client(self.port, token)


@pytest.fixture(scope="session")
def loop():
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def kind():
    return "memory"


@pytest.fixture
def place():
    return ListenAddress(port=0)


@pytest.fixture
def trust():
    return TrustedHosts()


@pytest.fixture(params=["httptools", "h11"])
def parser(request, monkeypatch):
    """Serve with each of the parsers that an installation may have."""
    which = {"httptools": HttpToolsProtocol, "h11": H11Protocol}[request.param]
    monkeypatch.setattr(http_server, "AutoHTTPProtocol", which)


@pytest.fixture
def bounds():
    """What a test changes of the guard's bounds."""
    return {}


@pytest.fixture
def door(loop, kind, clock, place, trust, bounds, request, tmp_path):
    kept = LocalArtifactStore(tmp_path / "home")
    home = tmp_path / "home"
    secrets = LocalSecretStore(load_settings(str(home)))
    made = Door(loop, _store(kind, clock, request, tmp_path), clock, kept, home, secrets)
    made.start(place, trust, **bounds)
    yield made
    made.stop()


def _store(kind, clock, request, tmp_path):
    if kind == "memory":
        return MemoryDatabase(clock)
    if kind == "sqlite":
        return SqliteDatabase(str(tmp_path / "rota.db"), clock)
    address = request.getfixturevalue("postgres_address")
    from rota.store.postgres.database import PostgresDatabase

    return PostgresDatabase(address, clock, own_clock=True)
