from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

PATIENCE = 30.0
WORK = """
import asyncio, os, time
from pathlib import Path

async def patient(run):
    print(f"begun {run.attempt}", flush=True)
    while not Path("go").exists():
        await asyncio.sleep(0.01)

async def first_hangs(run):
    print(f"begun {run.attempt}", flush=True)
    if run.attempt == 1:
        await asyncio.sleep(3600)

def stubborn(run):
    print("begun", flush=True)
    time.sleep(3600)
"""


class Lines:
    """The lines of a stream, read as they come."""

    def __init__(self, stream):
        self.seen: list[str] = []
        self._ended = False
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self._stream:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)
        self._stream.close()

    def wait(self, *parts: str) -> str:
        """Return the next line that holds all parts."""
        while True:
            line = self._queue.get(timeout=PATIENCE)
            assert line is not None, f"ended without {parts}: {self.seen}"
            self.seen.append(line)
            if all(part in line for part in parts):
                return line

    def rest(self) -> list[str]:
        self._thread.join(PATIENCE)
        while not self._ended and (line := self._queue.get(timeout=PATIENCE)) is not None:
            self.seen.append(line)
        self._ended = True
        return self.seen


class Daemon:
    """A `rota up` of its own."""

    def __init__(self, process):
        self.process = process
        self.out = Lines(process.stdout)
        self.log = Lines(process.stderr)

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(PATIENCE)


class House:
    """A home folder, a working folder with callables, and the real `rota` in its own process."""

    def __init__(self, folder: Path, bytecode: Path):
        self.folder = folder
        self._bytecode = str(bytecode)
        self.home = folder / "home"
        self.database = self.home / "rota.db"
        (folder / "work.py").write_text(WORK)
        self._daemons: list[Daemon] = []

    def _command(self, words):
        return [sys.executable, "-m", "rota.cli.main", *words]

    def _environment(self, extra):
        # Every command is a new process: bytecode kept for the session makes them fast.
        left_out = ("ROTA_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        bytecode = {"PYTHONPYCACHEPREFIX": self._bytecode}
        return {**kept, **bytecode, "ROTA_HOME": str(self.home), **extra}

    def rota(self, *words: str, **extra: str):
        return subprocess.run(
            self._command(words), cwd=self.folder, env=self._environment(extra),
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip

    def json(self, *words: str):
        done = self.rota(*words, "--json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def up(self, *words: str, **extra: str) -> Daemon:
        process = subprocess.Popen(
            self._command(["up", *words]), cwd=self.folder, env=self._environment(extra),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        daemon = Daemon(process)
        self._daemons.append(daemon)
        daemon.out.wait("stop")
        return daemon

    def close(self):
        for daemon in self._daemons:
            if daemon.process.poll() is None:
                daemon.process.send_signal(signal.SIGKILL)
                daemon.process.wait(PATIENCE)
            daemon.out.rest()
            daemon.log.rest()


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory):
    return tmp_path_factory.mktemp("bytecode")


@pytest.fixture
def house(tmp_path, bytecode):
    made = House(tmp_path, bytecode)
    yield made
    made.close()
