"""The gateway as a process of its own: found again, started again, and gone when nobody needs it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import socket
import time
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from rota.errors import Unavailable
from rota.gateway import client
from rota.gateway.client import GatewayClient, gateway_status
from rota.gateway.upstreams import Upstream as Known
from rota.gateway.upstreams import parse_allow
from rota.keeper.build import Interpreter
from tests.system.gateway.upstream import Upstream

REAL = "sk-ant-canary-4f1d0c7b"
PATIENCE = 20.0


class Line(HTTPConnection):
    """A connection to a Unix socket."""

    def __init__(self, path):
        super().__init__("127.0.0.1", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)


def ask(line, token, path="/models/v1/x", method="GET", body=None):
    """Ask once, and hang up."""
    with contextlib.closing(line):
        line.request(method, path, body, {"X-Api-Key": token})
        answer = line.getresponse()
        return answer.status, answer.read()


class Home:
    """The folder of a gateway, and daemons that come and go."""

    def __init__(self, folder, provider):
        self.folder = folder / "gateway"
        self.gone = folder / "exit"
        self.provider = provider
        self.secret = REAL
        self.daemons = []

    def upstreams(self):
        return [
            Known(
                name="models",
                scheme="http",
                host="127.0.0.1",
                port=self.provider.port,
                allow=parse_allow("models", ["GET /v1/**", "POST /v1/*"]),
                headers=(("x-api-key", self.secret),),
                secret="models",  # noqa: S106
                local=True,
            )
        ]

    def daemon(self):
        python = Interpreter.running()

        def argv(folder):
            return python.module("rota.gateway.server", folder)

        made = GatewayClient(self.folder, argv, {}, self.upstreams)
        made.extend_lease(time.clock_gettime(time.CLOCK_BOOTTIME) + 600)
        self.daemons.append(made)
        return made

    async def permit(self, daemon, run, *, own_loopback=True, requests=1000, epoch=1, **more):
        token = daemon.token(run, epoch)
        await daemon.grant(
            f"{run}-{epoch}",
            token,
            upstreams=["models"],
            ended=str(self.gone),
            port=None if own_loopback else daemon.port(),
            requests_left=requests,
            bytes_left=1 << 30,
            **{"space": 1, "scope": f"run {run}", "since": None, **more},
        )
        return token, daemon.socket_path(f"{run}-{epoch}")

    def pid(self):
        """Return the process that holds the lock, if one does."""
        with contextlib.suppress(FileNotFoundError), (self.folder / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read() or 0)
        return None

    def until_gone(self, seconds=PATIENCE):
        until = time.monotonic() + seconds
        while self.pid() is not None and time.monotonic() < until:
            time.sleep(0.02)
        return self.pid() is None


@asynccontextmanager
async def at_home(home):
    """Let a test speak to gateways, and end what it leaves."""
    try:
        yield home
    finally:
        for daemon in home.daemons:
            daemon.close()
        pid = home.pid()
        if pid:
            os.kill(pid, signal.SIGTERM)
        assert await asyncio.to_thread(home.until_gone)


@pytest.fixture
def home(tmp_path):
    with Upstream() as provider:
        yield Home(tmp_path, provider)


def run(home, work):
    async def go():
        async with at_home(home), asyncio.timeout(60):
            await work()

    asyncio.run(go())


def test_an_attempt_asks_by_its_own_door_with_its_own_token_and_no_other(home):
    async def work():
        daemon = home.daemon()
        one, door = await home.permit(daemon, 1)
        two, other = await home.permit(daemon, 2)
        assert (await asyncio.to_thread(ask, Line(door), one))[0] == 200
        assert (await asyncio.to_thread(ask, Line(door), two))[0] == 401
        assert (await asyncio.to_thread(ask, Line(other), one))[0] == 401
        assert home.provider.script.noted[0].headers["x-api-key"] == [REAL]
        for path in (home.folder, *home.folder.rglob("*")):
            assert not path.stat().st_mode & 0o077, path
        await daemon.revoke("1-1")
        assert not os.path.exists(door)  # noqa: ASYNC240, PTH110
        assert (await asyncio.to_thread(ask, Line(other), two))[0] == 200

    run(home, work)


def test_attempts_without_walls_share_a_port_of_loopback(home):
    async def work():
        daemon = home.daemon()
        token, _ = await home.permit(daemon, 1, own_loopback=False)
        own_loopback, _ = await home.permit(daemon, 2)
        for known, status in ((token, 200), (own_loopback, 401), ("sk-rota-x", 401)):
            line = HTTPConnection("127.0.0.1", daemon.port(), timeout=PATIENCE)
            assert (await asyncio.to_thread(ask, line, known))[0] == status
            assert home.daemon().port() == daemon.port()

    run(home, work)


def test_the_next_daemon_finds_it_and_an_answer_goes_on_meanwhile(home):
    async def work():
        first = home.daemon()
        token, door = await home.permit(first, 1)
        pid = home.pid()
        line = Line(door)
        line.request("POST", "/models/v1/messages", b"{}", {"X-Api-Key": token})
        answer = await asyncio.to_thread(line.getresponse)
        assert answer.readline() == b"data: first\n"
        first.close()
        home.secret = "sk-ant-another-key"  # noqa: S105
        second = home.daemon()
        await second.renew(frozenset({"1-1"}))
        assert home.pid() == pid
        home.provider.script.go.set()
        assert b"last" in await asyncio.to_thread(answer.read)
        assert (await asyncio.to_thread(ask, line, token))[0] == 200
        assert home.provider.script.noted[-1].headers["x-api-key"] == ["sk-ant-another-key"]

    run(home, work)


def test_one_that_is_killed_is_started_again_for_whoever_is_there(home):
    async def work():
        daemon = home.daemon()
        token, door = await home.permit(daemon, 1)
        pid = home.pid()
        assert (await asyncio.to_thread(ask, Line(door), token))[0] == 200
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + PATIENCE
        status = None
        while status != 200 and time.monotonic() < until:
            try:
                status, _ = await asyncio.to_thread(ask, Line(door), token)
            except OSError as fault:  # a clear one: nobody is there
                assert isinstance(fault, (ConnectionError, FileNotFoundError)), fault
                await asyncio.sleep(0.01)
        assert status == 200
        assert home.pid() != pid

    run(home, work)


def test_both_killed_the_next_daemon_lets_the_same_attempt_in_with_the_same_token(home):
    async def work():
        first = home.daemon()
        token, _ = await home.permit(first, 1)
        first.close()
        os.kill(home.pid(), signal.SIGKILL)
        second = home.daemon()
        again, door = await home.permit(second, 1)
        assert again == token
        assert (await asyncio.to_thread(ask, Line(door), token))[0] == 200

    run(home, work)


def test_two_daemons_at_once_have_one_gateway(home):
    async def work():
        daemons = [home.daemon() for _ in range(4)]
        made = await asyncio.gather(*(home.permit(d, n) for n, d in enumerate(daemons, 1)))
        pid = home.pid()
        for token, door in made:
            assert (await asyncio.to_thread(ask, Line(door), token))[0] == 200
        assert home.pid() == pid

    run(home, work)


def test_c6_a_token_is_dead_when_its_attempt_has_ended_with_no_daemon_there(home):
    async def work():
        daemon = home.daemon()
        token, door = await home.permit(daemon, 1)
        daemon.close()
        home.gone.touch()
        assert (await asyncio.to_thread(ask, Line(door), token))[0] == 401
        assert await asyncio.to_thread(home.until_gone)

    run(home, work)


def test_what_has_ended_is_let_in_no_more_and_what_is_young_stays(home):
    async def work():
        daemon = home.daemon()
        _, old = await home.permit(daemon, 1)
        daemon._granted_at["1-1"] -= 100
        token, young = await home.permit(daemon, 2)
        await daemon.renew(frozenset())
        assert not os.path.exists(old)  # noqa: ASYNC240, PTH110
        assert (await asyncio.to_thread(ask, Line(young), token))[0] == 200

    run(home, work)


def test_c7_a_crowd_at_one_door_is_no_matter_at_another(home):
    async def work():
        daemon = home.daemon()
        _, crowded = await home.permit(daemon, 1)
        token, door = await home.permit(daemon, 2)
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(200)]
        try:
            for each in crowd:
                each.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    each.connect(crowded)
            began = time.monotonic()
            for _ in range(20):
                assert (await asyncio.to_thread(ask, Line(door), token))[0] == 200
            assert time.monotonic() - began < 5.0
        finally:
            for each in crowd:
                each.close()

    run(home, work)


def test_c7_memory_stays_flat_however_much_is_carried(home):
    home.provider.script.flood = 64 << 20

    async def work():
        daemon = home.daemon()
        token, door = await home.permit(daemon, 1)
        assert (await asyncio.to_thread(ask, Line(door), token))[0] == 200
        before = memory(home.pid())
        status, data = await asyncio.to_thread(ask, Line(door), token, "/models/v1/flood")
        assert (status, len(data)) == (200, 64 << 20)
        sent = b"x" * (16 << 20)
        status, _ = await asyncio.to_thread(ask, Line(door), token, "/models/v1/x", "POST", sent)
        assert status == 200
        assert memory(home.pid()) - before < 8 << 20

    run(home, work)


def memory(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_c1_nobody_looks_into_it_and_its_words_and_files_hold_no_key(home):
    async def work():
        daemon = home.daemon()
        token, door = await home.permit(daemon, 1)
        assert (await asyncio.to_thread(ask, Line(door), token))[0] == 200
        proc = Path(f"/proc/{home.pid()}")
        assert REAL.encode() not in (proc / "cmdline").read_bytes()
        assert "Max core file size        0                    0" in (proc / "limits").read_text()
        if os.geteuid() != 0:
            with pytest.raises(PermissionError):
                (proc / "environ").read_bytes()
        else:
            assert REAL.encode() not in (proc / "environ").read_bytes()
        for path in home.folder.rglob("*"):
            if path.is_file():
                assert REAL.encode() not in path.read_bytes(), path
                assert token.encode() not in path.read_bytes(), path
        assert (home.folder / "used" / "models").exists()

    run(home, work)


def test_a_port_that_is_taken_is_told_and_another_one_tried_next(home):
    async def work():
        daemon = home.daemon()
        taken = daemon.port()
        with socket.create_server(("127.0.0.1", taken)):
            with pytest.raises(Unavailable, match="cannot listen"):
                await home.permit(daemon, 1, own_loopback=False)
            assert daemon.port() != taken
            token, _ = await home.permit(daemon, 1, own_loopback=False)
        line = HTTPConnection("127.0.0.1", daemon.port(), timeout=PATIENCE)
        assert (await asyncio.to_thread(ask, line, token))[0] == 200

    run(home, work)


def test_it_is_looked_at_from_outside_and_left_alone(home, monkeypatch):
    async def work():
        assert gateway_status(home.folder) is None
        daemon = home.daemon()
        await home.permit(daemon, 1)
        seen = await asyncio.to_thread(gateway_status, home.folder)
        assert (seen.pid, seen.attempts, seen.current) == (home.pid(), 1, True)
        assert abs(seen.since.timestamp() - time.time()) < 60
        assert os.path.exists(seen.socket)  # noqa: ASYNC240, PTH110
        os.kill(seen.pid, signal.SIGSTOP)
        monkeypatch.setattr(client, "STATUS_SECONDS", 0.1)
        stopped = await asyncio.to_thread(gateway_status, home.folder)
        os.kill(seen.pid, signal.SIGCONT)
        assert (stopped.pid, stopped.attempts) == (seen.pid, None)
        daemon.close()
        os.kill(seen.pid, signal.SIGKILL)
        assert await asyncio.to_thread(home.until_gone)
        assert await asyncio.to_thread(gateway_status, home.folder) is None

    run(home, work)


def test_c7_what_was_used_stays_used_though_the_gateway_is_killed(home):
    async def work():
        daemon = home.daemon()
        token, door = await home.permit(daemon, 1)
        for _ in range(5):
            assert (await asyncio.to_thread(ask, Line(door), token))[0] == 200
        noted = home.folder / "spent" / "1-1"
        while not noted.exists() or not noted.read_text().startswith("5 "):
            await asyncio.sleep(0.02)
        pid = home.pid()
        os.kill(pid, signal.SIGKILL)
        await home.permit(daemon, 1, requests=7)
        assert home.pid() != pid
        told = [(await asyncio.to_thread(ask, Line(door), token))[0] for _ in range(3)]
        assert told == [200, 200, 403]
        await daemon.revoke("1-1")
        assert not noted.exists()
        await home.permit(daemon, 1, requests=1)
        assert (await asyncio.to_thread(ask, Line(door), token))[0] == 200

    run(home, work)
