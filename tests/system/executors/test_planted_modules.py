"""A14: what a program behind walls leaves for Python is imported by no process of the host."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from rota.app.probes import Evaluator
from rota.executors.shared import exec_program, port_forward
from rota.keeper.build import Interpreter, build_keeper
from tests.system.executors.planted_modules import planting
from tests.system.executors.test_container import container, podman  # noqa: F401 - fixtures
from tests.system.executors.test_docker import docker, image, kit  # noqa: F401 - fixtures
from tests.system.executors.test_tmux import tmux  # noqa: F401 - a fixture

WALLS = ("sandbox", "tmux", "container", "docker")


@pytest.fixture(params=WALLS)
def walled(request, ground):
    """An executor with walls, and what else it needs to run something."""
    name = request.param
    executor = request.getfixturevalue(name)
    if name == "tmux":
        request.getfixturevalue("sandbox")
    images = {"container": ("podman", "image"), "docker": ("kit", "image")}
    if name in images:
        fixture, field = images[name]
        return executor, {"image": getattr(request.getfixturevalue(fixture), field)}
    return executor, {}


@pytest.fixture
def canaries(ground):
    made = ground.root / "canaries"
    made.mkdir()
    return made


@pytest.fixture
def planted(walled, ground, canaries):
    """Have a program behind walls leave it all in its folder."""
    script, names = planting(canaries)
    executor, changes = walled
    done = ground.run(executor, "/bin/sh", "-c", script, **changes)
    assert done.returncode == 0, done.stderr
    assert names <= {path.name for path in ground.folder.iterdir()}, (
        "what was not left proves nothing"
    )
    return executor, changes


def told(canaries):
    return sorted(path.name for path in canaries.iterdir())


def test_it_is_run_by_a_python_that_looks_there(ground, canaries):
    """Otherwise the test below would pass with files that nobody could import."""
    script, _ = planting(canaries)
    subprocess.run(["/bin/sh", "-c", script], cwd=ground.folder, check=True)
    python = Interpreter.running().program
    subprocess.run([python, "-c", "import planted"], cwd=ground.folder, check=False)
    assert "planted" in told(canaries)


def test_no_python_of_the_host_imports_sitecustomize_conftest_or_what_pyproject_names(
    planted, ground, canaries, monkeypatch, tmp_path
):
    executor, changes = planted
    monkeypatch.chdir(ground.folder)
    monkeypatch.setenv("HOME", str(ground.folder))
    state = ground.root / "again"
    state.mkdir(mode=0o700)
    done = ground.run(executor, "/bin/sh", "-c", ":", state=str(state), **changes)
    assert done.returncode == 0, done.stderr
    python = Interpreter.running()
    starts = {
        "keeper": build_keeper(tmp_path / "keepers").argv("--try"),
        "start": python.script(str(Path(exec_program.__file__)), "--", "/bin/true"),
        "forward": python.script(str(Path(port_forward.__file__)), "--", "/bin/true"),
        "module": python.module("rota.keeper.build"),
    }
    for name, words in starts.items():
        done = subprocess.run(words, capture_output=True, check=False)
        assert (done.returncode in {0, 1}, done.stderr) == (True, b""), name
    assert asyncio.run(Evaluator().ask("main", "search", "a+", "caat")) == (True,)
    assert told(canaries) == []
