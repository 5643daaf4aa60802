"""Where programs find the desk: at the door's address, behind walls, and at the next daemon's."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from contextlib import asynccontextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace

import pytest

from rota.api.asgi import HttpResponse
from rota.api.http_server import ListenAddress
from rota.app.composition import open_store
from rota.app.endpoints import open_agent_api, open_http_api
from rota.app.settings import load_settings
from rota.app.tokens import LocalAttemptTokens, home_secret
from rota.errors import Unavailable
from rota.model.programs import NetworkAccess, Site
from rota.model.runs import Lease

LEASE = Lease(*[1] * 15, key=None, payload="null")
OPEN, WALLED = Site(executor="process"), Site(executor="sandbox", isolated=True)
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.fixture
def home():
    """A home whose path is short enough for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="rota-") as folder:
        yield Path(folder)


class UnixConnection(HTTPConnection):
    """HTTP over a socket with a path."""

    def __init__(self, path):
        super().__init__("127.0.0.1", timeout=10)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def asked(path, where, token):
    line = UnixConnection(path)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with suppress(BrokenPipeError):  # who is refused by its headers need not send the rest
        line.request("POST", where, json.dumps(PING), headers)
    try:
        return line.getresponse().status
    finally:
        line.close()


async def answer(scope, receive, send):
    await HttpResponse.record(200, {"path": scope["path"]}).send(send)


@asynccontextmanager
async def desk(home, place=None, url="http://127.0.0.1:9"):
    store = SimpleNamespace(database=SimpleNamespace(incarnation="db"))
    passes = LocalAttemptTokens(home, store)
    async with open_agent_api(home, answer, place or ListenAddress(), url, passes):
        yield passes


async def test_a_door_has_a_desk_beside_it_for_attempts_alone(home):
    settings = load_settings(str(home), port=0)
    async with open_store(settings) as store:
        passes = LocalAttemptTokens(home, store)
        async with open_http_api(settings, store, passes=passes) as url:
            assert passes.address_for(LEASE, OPEN).url == f"{url}/mcp"
            path, key = home / "desk" / "mcp.sock", (home / "admin.key").read_text().strip()
            for where in ("/mcp", "/v1/tasks"):
                status = await asyncio.to_thread(asked, path, where, key)
                assert status == (401 if where == "/mcp" else 404)
            token = passes.address_for(LEASE, WALLED).token
            assert await asyncio.to_thread(asked, path, "/mcp", token) == 401
        assert passes.address_for(LEASE, OPEN) is None
        assert not path.exists()
        before = url
        async with open_http_api(settings, store) as url:
            assert url == before, "programs that still run know it"


async def test_sites_have_the_way_they_can_go(home):
    async with desk(home) as passes:
        assert passes.address_for(LEASE, OPEN).url == "http://127.0.0.1:9/mcp"
        walled = passes.address_for(LEASE, WALLED)
        assert (walled.url, walled.socket) == ("http://127.0.0.1:7684/mcp", True)
        online = Site(executor="sandbox", isolated=True, network=NetworkAccess.OPEN)
        assert not passes.address_for(LEASE, online).socket
        assert passes.address_for(LEASE, Site(executor="container", isolated=True)) == walled
        assert walled.token == passes.address_for(LEASE, OPEN).token
        assert passes.read(walled.token) == (1, 1)


async def test_a_door_with_tls_is_not_theirs(home):
    secure = ListenAddress(tls_cert=Path("cert"), tls_key=Path("key"))
    async with desk(home, secure, "https://127.0.0.1:9") as passes:
        first = passes.address_for(LEASE, OPEN).url
        assert first.startswith("http://127.0.0.1:")
    async with desk(home, secure, "https://127.0.0.1:9") as passes:
        assert passes.address_for(LEASE, OPEN).url == first


async def test_a_socket_that_answers_is_left_to_whoever_has_it(home):
    async with desk(home) as first:
        async with desk(home) as second:
            assert second.address_for(LEASE, WALLED) is None
        assert first.address_for(LEASE, WALLED) is not None
        assert (home / "desk" / "mcp.sock").exists()
    (home / "desk" / "mcp.sock").touch()
    async with desk(home) as third:
        assert third.address_for(LEASE, WALLED) is not None


async def test_a_path_that_is_too_long_has_no_socket(home):
    deep = home / ("x" * 100)
    deep.mkdir()
    async with desk(deep) as passes:
        assert passes.address_for(LEASE, WALLED) is None
        assert passes.address_for(LEASE, OPEN) is not None


def test_the_secret_of_a_home_is_made_once_and_private(home):
    first = home_secret(home)
    assert len(first) == 32
    assert home_secret(home) == first
    assert (home / "desk.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in home.iterdir()] == ["desk.key"]
    (home / "desk.key").write_text("zz")
    with pytest.raises(Unavailable):
        home_secret(home)
