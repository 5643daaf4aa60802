from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rota.keeper.protocol import from_lines

COUNTING = """
import sys, time
from pathlib import Path
print("begun", flush=True)
for number in range(int(sys.argv[1])):
    print("line", number, flush=True)
    time.sleep(0.02)
while not Path("go").exists():
    time.sleep(0.02)
print("finished", flush=True)
"""


HERE = Path(__file__).parent


class Kept:
    """A house whose daemon runs programs, on a store of either kind."""

    def __init__(self, house, store):
        self.house = house
        self.store = store
        self.work = house.home / "spaces" / "main" / "work"
        self.work.mkdir(parents=True)
        house.home.chmod(0o700)
        (self.work / "count.py").write_text(COUNTING)
        self.daemon = None
        self.extra = {}
        self.token = f"token-{os.getpid()}-{time.monotonic_ns()}"

    def up(self, **extra):
        self.daemon = self.house.up("--port", "0", **{**self._extra(), **extra})
        return self.daemon

    def _extra(self):
        return self.extra | ({} if self.store is None else {"ROTA_STORE": self.store})

    def stopped(self):
        """Wait until a fault point has stopped the daemon."""
        end = time.monotonic() + 30.0
        state = Path(f"/proc/{self.daemon.process.pid}/stat")
        while state.read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < end
            time.sleep(0.02)

    def kill(self):
        self.daemon.signal(signal.SIGKILL)
        self.daemon.wait()

    def stop(self):
        self.daemon.signal(signal.SIGTERM)
        assert self.daemon.wait() == 0

    def rota(self, *words):
        return self.house.rota(*words, **self._extra())

    def json(self, *words):
        done = self.rota(*words, "--json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def done(self, *words):
        """Run something to its end, and return the run."""
        number = self.json("run", *words)["run"]
        return self.until(number, lambda run: run["finished_at"] is not None)

    def call(self, method, path, said=None):
        """Ask the daemon over HTTP, with the key of the home; return status and body."""
        place = json.loads((self.house.home / "api.json").read_text())
        key = (self.house.home / "admin.key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        body = None if said is None else json.dumps(said)
        with contextlib.closing(HTTPConnection(urlsplit(place["url"]).netloc, timeout=30)) as line:
            line.request(method, path, body, headers)
            answer = line.getresponse()
            return answer.status, answer.read()

    def once(self, asked):
        """Have something done once, and return the run when it has ended."""
        status, body = self.call("POST", "/v1/runs", asked)
        assert status == 201, body
        return self.until(json.loads(body)["run"], lambda run: run["finished_at"] is not None)

    def create(self, name, *command, **more):
        words = [word for option, value in more.items() for word in (f"--{option}", value)]
        return self.json("task", "create", name, "--command", " ".join(command), *words)

    def count(self, lines, **more):
        """Start a program that counts, waits to be let go on, and is known by a word."""
        self.create("count", "python3", "count.py", str(lines), self.token, **more)
        self.up()
        return self.json("run", "count")["run"]

    def living(self):
        return processes(self.token)

    def keeper(self):
        """Return the process of the only keeper, and that of whoever holds its tree."""
        (folder,) = (self.house.home / "keepers" / "attempts").iterdir()
        told, _ = from_lines((folder / "keeper").read_bytes())
        return int(told["pid"]), int(told["inner"])

    def go(self):
        (self.work / "go").touch()

    def run(self, number):
        return self.json("run", str(number))

    def output(self, number):
        return "".join(part["text"] + "\n" for part in self.run(number)["logs"]).splitlines()

    def until(self, number, test, seconds=30.0):
        """Return the run once it passes a test."""
        end = time.monotonic() + seconds
        while not test(run := self.run(number)):
            assert time.monotonic() < end, run
            time.sleep(0.05)
        return run


def processes(token):
    """Return the processes that have a word of their own among their words."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if token.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


@pytest.fixture
def simple(house):
    """A house on SQLite, for what no store can change."""
    made = Kept(house, None)
    yield made
    made.go()


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request, house):
    store = request.getfixturevalue("postgres_address") if request.param == "postgres" else None
    made = Kept(house, store)
    yield made
    made.go()
    for number in processes(made.token):
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


SHORT = {
    "test_outliving": {"sqlite"},
    "test_agents": {"sqlite"},
    "test_scripts": {"sqlite"},
    "test_desk": {"sqlite"},
    "test_mailbox": {"sqlite"},
    "test_checks": {"sqlite"},
    "test_talking": {"sqlite"},
    "test_steering": {"sqlite"},
    "test_telling": {"sqlite"},
    "test_phrases": {"sqlite"},
    "test_files": {"sqlite"},
    "test_following": {"sqlite"},
}
"""What `make test` has of this folder, and on which stores; `make test-programs` has the rest."""
ON_POSTGRES = {
    "test_a_killed_daemon_comes_back_to_the_same_process",
    "test_a_cancelled_program_is_gone_with_everything_it_started",
}


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == HERE:
            params = item.callspec.params if hasattr(item, "callspec") else {}
            store = params.get("kept", "sqlite")
            short = store in SHORT.get(item.path.stem, ()) or (
                store == "postgres" and item.originalname in ON_POSTGRES
            )
            if not short:
                item.add_marker(pytest.mark.programs)
