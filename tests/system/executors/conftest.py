"""Real executors with a real host around them: a secret, a neighbour, listeners."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rota.executors.process.executor import ProcessExecutor
from rota.executors.sandbox.executor import SandboxExecutor
from rota.executors.shared.mounts import AllowedMount, MountAllowlist
from rota.executors.shared.resource_limits import find_hierarchy
from rota.keeper.build import Interpreter
from rota.model.programs import MIB, Program, ResourceLimits
from rota.ports.executor import ExecutionSpec

HOSTILE = sorted((Path(__file__).parents[2] / "tools" / "hostile").glob("hostile*.py"))
PATIENCE = 60.0
PROCESSES = 24


class Ground:
    """Folders of one attempt, and how to run a program in an executor."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.spaces = root / "spaces"
        self.folder = self.spaces / "one" / "work"
        self.home = self.spaces / "one" / "home"
        self.state = root / "state"
        for path in (self.folder, self.home, self.state):
            path.mkdir(parents=True)
        self.state.chmod(0o700)
        self.mounts = MountAllowlist([AllowedMount(folder=str(self.spaces))])
        self.swept = []

    def room(self, **changes):
        given = {
            "name": f"test-{secrets.token_hex(6)}",
            "state": str(self.state),
            "folder": str(self.folder),
            "home": str(self.home),
            "bounds": ResourceLimits(processes=PROCESSES, memory_bytes=512 * MIB),
        }
        return ExecutionSpec(**(given | changes))

    def run(self, executor, *argv, env=None, stdin=b"", **changes):
        """Run a program to its end, as a keeper would, and sweep behind it."""
        command = Program(argv=argv, env=env or {}, cwd=str(self.folder), stdin=stdin)
        spec = executor.wrap(command, self.room(**changes))
        told = spec.command
        try:
            return subprocess.run(
                told.argv,
                env=dict(told.env),
                cwd=told.cwd,
                input=told.stdin,
                capture_output=True,
                timeout=PATIENCE,
                start_new_session=True,
                check=False,
            )
        finally:
            executor.sweep(spec)


@pytest.fixture
def ground(tmp_path):
    return Ground(tmp_path)


@pytest.fixture
def sandbox(ground):
    executor = SandboxExecutor(Interpreter.running(), ground.mounts, hierarchy=find_hierarchy())
    missing = [each for each in executor.check() if each.needed]
    if missing:
        pytest.skip(f"no sandbox here: {missing[0]}")
    return executor


@pytest.fixture
def process():
    return ProcessExecutor(Interpreter.running(), hierarchy=find_hierarchy(), certain_kill=False)


@pytest.fixture
def host(ground):
    """What an attacker would like to reach, as facts for hostile.py."""
    secret = secrets.token_hex(16)
    marker = f"marker-{secrets.token_hex(8)}"
    hidden = ground.root / "secret"
    hidden.write_text(secret)
    listener = socket.create_server(("127.0.0.1", 0))
    unix, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    unix.bind(str(ground.state / "s"))
    abstract.bind("\0" + marker)
    for each in (unix, abstract):
        each.listen()
    neighbour = subprocess.Popen(
        [sys.executable, "-c", "input()", marker],
        stdin=subprocess.PIPE,
        env={"SECRET": secret, "PATH": os.defpath},
    )
    facts = {
        "secret": secret,
        "secret_file": str(hidden),
        "marker": marker,
        "pid": neighbour.pid,
        "port": listener.getsockname()[1],
        "socket": str(ground.state / "s"),
        "abstract": marker,
        "folder": str(ground.folder),
        "state": str(ground.state),
        "processes": PROCESSES,
        "memory": 512 * MIB,
    }
    yield facts
    neighbour.communicate(b"\n")
    for each in (listener, unix, abstract):
        each.close()


@pytest.fixture
def hostile(ground, host):
    """Lay out the attacker and what it knows; return both as words for Python."""

    def laid_out():
        for file in HOSTILE:
            shutil.copy(file, ground.folder)
        facts = ground.folder / "facts.json"
        facts.write_text(json.dumps(host))
        return [str(ground.folder / "hostile.py"), str(facts)]

    return laid_out


@pytest.fixture
def attacked(ground, hostile):
    """Run hostile.py in an executor and return the attacks that worked."""

    def attack(executor, python="/usr/bin/python3", **changes):
        done = ground.run(executor, python, *hostile(), **changes)
        assert done.returncode == 0, done.stderr.decode()
        found = json.loads(done.stdout)
        assert found["stumbled"] == {}, "an attack that could not be tried proves nothing"
        return {name: how for name, how in found["worked"].items() if how}

    return attack
