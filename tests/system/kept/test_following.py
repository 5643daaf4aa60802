"""Whoever follows a run goes on when the daemon does, wherever that comes back."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from tests.system.conftest import Lines


@contextmanager
def taken(url):
    """Let somebody else sit where a daemon was, who hangs up on everybody."""
    with socket.create_server(("127.0.0.1", urlsplit(url).port)) as line:

        def hang_up():
            with suppress(OSError):
                while True:
                    line.accept()[0].close()

        other = threading.Thread(target=hang_up, daemon=True)
        other.start()
        yield
        line.shutdown(socket.SHUT_RDWR)
        other.join()


def place_of(simple):
    return json.loads((simple.house.home / "api.json").read_text())["url"]


def followed(simple, *command):
    """Begin a command that goes on for as long as a run."""
    return subprocess.Popen(
        simple.house._command(command), cwd=simple.house.folder, text=True,
        env=simple.house._environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def comes_back_elsewhere(simple, follower, told):
    """Kill the daemon, start it at another port, and see how who followed its run ends."""
    place = place_of(simple)
    simple.kill()
    with taken(place):
        simple.up()
        assert place_of(simple) != place
        simple.go()
        code = follower.wait(60)
    assert code == 0, told.rest()


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
    told.wait("waiting for its end")
    comes_back_elsewhere(simple, follower, told)
    with follower.stdout as said:
        assert said.read() == "finished\n"
