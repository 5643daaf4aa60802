"""A daemon that hangs up on who asks nothing for a while, and one whose port another has taken."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rota.app.discovery import announce, find_daemon_address
from rota.cli.remote import HttpClient, find_daemon
from rota.errors import Unavailable

ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n"
    b'{"status":"ok"}'
)
OK = {"status": "ok"}
PATIENCE = 10.0


class Server:
    """Answers as often on each connection as it was told, then takes the next request, or not."""

    def __init__(self, line: socket.socket, answers: list[int], *, takes_one_more: bool) -> None:
        self.url = f"http://127.0.0.1:{line.getsockname()[1]}"
        self.asked: list[str] = []
        self.hung_up = threading.Semaphore(0)
        self._line = line
        self._answers = answers
        self._takes_one_more = takes_one_more

    def serve(self) -> None:
        for answers in self._answers:
            with self._line.accept()[0] as caller:
                for _ in range(answers):
                    self._hear(caller)
                    caller.sendall(ANSWER)
                if self._takes_one_more:
                    self._hear(caller)
            self.hung_up.release()

    def _hear(self, caller: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n" if head.startswith(b"GET") else b"{}"):
            part = caller.recv(65536)
            if not part:
                return
            head += part
        self.asked.append(head.decode().partition(" HTTP")[0])


@contextmanager
def serving(*answers: int, takes_one_more: bool = False) -> Iterator[tuple[Server, HttpClient]]:
    with socket.create_server(("127.0.0.1", 0)) as line:
        line.settimeout(PATIENCE)
        server = Server(line, list(answers), takes_one_more=takes_one_more)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        remote = HttpClient(server.url)
        yield server, remote
        remote.close()
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_connection_that_was_closed_meanwhile_is_made_anew(method):
    with serving(1, 1) as (server, remote):
        assert remote.call("GET", "/first", {}) == OK
        assert server.hung_up.acquire(timeout=PATIENCE)
        assert remote.call(method, "/second", {}) == OK
        assert server.asked == ["GET /first", f"{method} /second"]


def test_tools_go_on_over_a_connection_that_was_closed_meanwhile():
    with serving(1, 1) as (server, remote):
        assert remote.post("/mcp", b"{}", {})[0] == 200
        assert server.hung_up.acquire(timeout=PATIENCE)
        assert remote.post("/mcp", b"{}", {})[0] == 200


def test_what_only_reads_is_asked_again_if_it_met_the_hanging_up():
    with serving(1, 2, takes_one_more=True) as (server, remote):
        remote.call("GET", "/first", {})
        assert remote.call("GET", "/second", {}) == OK
        assert remote.call("GET", "/third", {}) == OK
        assert server.asked == ["GET /first", "GET /second", "GET /second", "GET /third"]


def test_what_changes_something_is_never_asked_twice():
    with serving(1, takes_one_more=True) as (server, remote):
        remote.call("GET", "/first", {})
        with pytest.raises(Unavailable, match="may have been executed"):
            remote.call("POST", "/second", {})
        assert server.asked == ["GET /first", "POST /second"]


def test_a_daemon_that_answers_nothing_is_asked_once():
    with serving(0, takes_one_more=True) as (server, remote):
        with pytest.raises(Unavailable, match="does not respond"):
            remote.call("GET", "/first", {})
        assert server.asked == ["GET /first"]


def test_a_key_is_shown_to_the_daemon_of_the_home_alone(tmp_path):
    with serving(1, 1, 0, takes_one_more=True) as (server, _):
        with announce(tmp_path, server.url):
            remote = find_daemon(tmp_path, "key")
            assert remote is not None
            assert remote.call("GET", "/first", {}) == OK
        remote.close()
        with pytest.raises(Unavailable, match="has stopped: another program responds at"):
            remote.call("GET", "/second", {})
        assert server.asked == ["GET /healthz", "GET /first"]


def test_word_of_a_daemon_holds_as_long_as_its_process_does(tmp_path):
    with announce(tmp_path, "http://127.0.0.1:9"):
        assert find_daemon_address(tmp_path) == ("http://127.0.0.1:9", os.getpid())
        left = (tmp_path / "api.json").read_text()
    assert find_daemon_address(tmp_path) is None
    (tmp_path / "api.json").write_text(left)
    assert find_daemon_address(tmp_path) is None


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_an_address_may_end_with_the_version(end):
    with serving(1) as (server, _):
        named = HttpClient(f"{server.url}{end}")
        assert named.call("GET", "/v1/status", {}) == OK
        named.close()
    assert server.asked == ["GET /v1/status"]
