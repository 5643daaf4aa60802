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


def test_logs_find_a_daemon_that_comes_back_elsewhere(simple):
    number = simple.count(20)
    place = json.loads((simple.house.home / "api.json").read_text())["url"]
    follower = subprocess.Popen(
        simple.house._command(["logs", str(number), "-f"]), cwd=simple.house.folder,
        env=simple.house._environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    told = Lines(follower.stdout)
    told.wait("line 5")
    simple.kill()
    with taken(place):
        simple.up()
        assert json.loads((simple.house.home / "api.json").read_text())["url"] != place
        simple.go()
        assert follower.wait(60) == 0, follower.stderr.read()
    follower.stderr.close()
    lines = [line for line in told.rest() if line.startswith(("begun", "line", "finished"))]
    expected = ["begun", *(f"line {count}" for count in range(20)), "finished"]
    assert lines[: len(expected)] == expected
