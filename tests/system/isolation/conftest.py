"""A real daemon whose tasks run in each of the executors."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from rota.app.settings import load_settings
from rota.app.sites import LocalSiteChecker
from rota.keeper.protocol import from_lines
from tests.system.attempt.conftest import Kept
from tests.system.conftest import House
from tests.system.executors.engines import a_docker, a_podman

SPREAD = """
import os, signal, sys, time

def hide(levels):
    "Fork away from every parent, session and group there is, and take no polite signal."
    if os.fork():
        return
    os.setsid()
    if levels:
        hide(levels - 1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    open(f"hidden-{levels}", "w").close()
    time.sleep(600)
    os._exit(0)

hide(2)
while not all(os.path.exists(f"hidden-{n}") for n in range(3)):
    time.sleep(0.01)
print("spread", flush=True)
time.sleep(600)
"""
ENDED = {"succeeded", "failed", "cancelled", "expired"}
PATIENCE = 20.0


class Place(NamedTuple):
    """An executor as a task asks for it."""

    name: str
    options: tuple[str, ...]
    settings: dict[str, str]


PLACES = {
    "process": ("--executor", "process"),
    "sandbox": ("--executor", "sandbox"),
    "container": ("--executor", "container"),
    "docker": ("--executor", "container"),
    "tmux": ("--executor", "tmux"),
    "walled": ("--executor", "tmux", "--isolate"),
}


ENGINES = {"container": "engine", "docker": "docker_engine"}
"""Which fixture has the engine of a place."""


@pytest.fixture(scope="session")
def engine():
    """A podman of the tests' own, and an image in it."""
    with a_podman("overlay") as podman:
        yield program_of(podman), podman.image


@pytest.fixture(scope="session")
def docker_engine():
    """An engine of docker's, and an image in it."""
    with a_docker() as docker:
        yield program_of(docker), docker.image


def program_of(kit):
    """Return the path of a program that is this engine's, for a daemon's settings."""
    told = [f"{name}={shlex.quote(value)}" for name, value in kit.engine.env.items()]
    program = kit.root / kit.engine.kind
    words = " ".join([*told, *map(shlex.quote, kit.engine.words())])
    program.write_text(f'#!/bin/sh\nexec env {words} "$@"\n')
    program.chmod(0o755)
    return str(program)


def a_place(request, name):
    """Return an executor that can be had here, or skip."""
    options, settings = PLACES[name], {}
    if name in ENGINES:
        program, image = request.getfixturevalue(ENGINES[name])
        options, settings = (
            (*options, "--image", image),
            {"ROTA_EXECUTORS_CONTAINER_ENGINE": program},
        )
    sites = LocalSiteChecker(load_settings("/nonexistent"))
    for needed in {options[1], "sandbox" if name == "walled" else options[1]} - {"container"}:
        tried = sites.try_out(needed)
        if not tried.available:
            pytest.skip(f"no {needed} here: {tried.missing[0]}")
    return Place(name, options, settings)


@pytest.fixture(params=list(PLACES))
def place(request):
    return a_place(request, request.param)


@pytest.fixture(params=["sandbox", "container", "docker", "walled"])
def walls(request):
    return a_place(request, request.param)


@pytest.fixture
def house(bytecode):
    """A house whose path is short enough for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="rota-", ignore_cleanup_errors=True) as folder:
        made = House(Path(folder), bytecode)
        yield made
        made.close()


class Sited(Kept):
    """A daemon whose tasks run where a test says."""

    def __init__(self, house, store):
        super().__init__(house, store)
        self.settings = {}

    def _extra(self):
        return {**super()._extra(), **self.settings}

    def settle(self, place):
        self.settings = place.settings
        self.place = place
        return self

    def make(self, name, *command, **more):
        """Create a task for the place, with a word by which its processes are known."""
        self.token = f"token-{os.getpid()}-{time.monotonic_ns()}"
        words = [word for option, value in more.items() for word in (f"--{option}", value)]
        line = shlex.join([*command, self.token])
        return self.json("task", "create", name, "--command", line, *self.place.options, *words)

    def url(self):
        return json.loads((self.house.home / "api.json").read_text())["url"]

    def ended(self, number, seconds=60.0):
        return self.until(number, lambda run: run["state"] in ENDED, seconds)

    def said(self, number, text):
        return self.until(number, lambda run: any(text in part["text"] for part in run["logs"]))

    def start(self, name):
        return self.json("run", name)["run"]

    def keepers(self):
        """Return the numbers of the keepers that have not told an ending yet, by their folder."""
        found = {}
        for file in (self.house.home / "keepers" / "attempts").glob("*/keeper"):
            with contextlib.suppress(OSError, KeyError):
                if not (file.parent / "exit").exists():
                    found[file.parent] = int(from_lines(file.read_bytes())[0]["pid"])
        return found

    def end(self):
        """End the daemon, and what a failed test left running."""
        self.house.close()
        left = self.keepers()
        for pid in left.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + PATIENCE
        while any(not (folder / "exit").exists() for folder in left) and time.monotonic() < until:
            time.sleep(0.05)


@pytest.fixture
def sited(house):
    made = Sited(house, None)
    (made.work / "spread.py").write_text(SPREAD)
    yield made
    made.end()


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Leave real executors to `make test-programs`: they take minutes."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.programs)
