"""Whoever follows a run goes on when the daemon does, wherever that comes back."""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.system.conftest import Lines


class Stranger(BaseHTTPRequestHandler):
    """The daemon of another home, which knows none of the keys that it is shown."""

    def do_GET(self):
        healthy = self.path == "/healthz"
        self.server.shown.append(self.headers.get("Authorization"))
        error = {"code": "unauthorized", "message": "this key opens nothing"}
        body = json.dumps({"status": "ok"} if healthy else {"error": error}).encode()
        self.send_response(200 if healthy else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Elsewhere(ThreadingHTTPServer):
    """Somebody else where a daemon was."""

    def __init__(self, url):
        super().__init__(("127.0.0.1", urlsplit(url).port), Stranger)
        self.shown = []
        self.met = threading.Event()

    def process_request(self, *caller):
        self.met.set()
        super().process_request(*caller)


@contextmanager
def taken(url):
    with Elsewhere(url) as server:
        other = threading.Thread(target=server.serve_forever, daemon=True)
        other.start()
        yield server
        server.shutdown()
        other.join()


def place_of(simple):
    return json.loads((simple.house.home / "api.json").read_text())["url"]


def followed(simple, *command):
    """Begin a command that goes on for as long as a run."""
    return subprocess.Popen(
        simple.house._command(command), cwd=simple.house.folder, text=True,
        env=simple.house._environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def comes_back_elsewhere(simple, follower, told, *, meets=False):
    """Kill the daemon, start it at another port, and see how who followed its run ends.

    Who looks for it where it was `meets` the one who is there now, and shows that one no key.
    """
    place = place_of(simple)
    simple.kill()
    with taken(place) as other:
        assert not meets or other.met.wait(60)
        simple.up()
        assert place_of(simple) != place
        simple.go()
        code = follower.wait(60)
    assert code == 0, told.rest()
    assert set(other.shown) <= {None}


def test_logs_find_a_daemon_that_comes_back_elsewhere(simple):
    follower = followed(simple, "logs", str(simple.count(20)), "-f")
    told = Lines(follower.stdout)
    told.wait("line 5")
    comes_back_elsewhere(simple, follower, Lines(follower.stderr))
    lines = [line for line in told.rest() if line.startswith(("begun", "line", "finished"))]
    expected = ["begun", *(f"line {count}" for count in range(20)), "finished"]
    assert lines[: len(expected)] == expected


def test_waiting_for_a_run_outlasts_a_daemon_that_comes_back_elsewhere(simple):
    simple.create("count", "python3", "count.py", "20", simple.token)
    simple.up()
    follower = followed(simple, "run", "count", "--wait")
    told = Lines(follower.stderr)
    told.wait("Waiting for its end")
    comes_back_elsewhere(simple, follower, told, meets=True)
    with follower.stdout as said:
        assert said.read() == "finished\n"
