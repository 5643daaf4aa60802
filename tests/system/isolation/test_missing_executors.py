"""An executor that is not to be had is refused: nothing runs anywhere else instead."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from rota.ports.executor import SEARCH_PATH


@pytest.fixture
def hidden(request, house):
    """Let every command of the house live on a machine without a tool."""
    path = shutil.which(request.param, path=SEARCH_PATH)
    if path is None:
        return request.param
    trial = ["unshare", "--mount", "sh", "-c", "mount --bind /dev/null /dev/null"]
    if os.geteuid() != 0 or subprocess.run(trial, capture_output=True, check=False).returncode:
        pytest.skip(f"{request.param} is installed, and only root can hide it")
    plain = house._command
    hide = f'mount --bind /dev/null {path} && exec "$@"'
    house._command = lambda words: ["unshare", "--mount", "sh", "-c", hide, "sh", *plain(words)]
    return request.param


def refused(sited, *options):
    done = sited.rota("task", "create", "no", "--command", "touch ran", *options)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("hidden", ["bwrap"], indirect=True)
def test_without_bubblewrap_nothing_that_needs_walls_runs(sited, hidden):
    for options in (("sandbox",), ("tmux", "--isolate")):
        told = refused(sited, "--executor", *options)
        assert "install the package bubblewrap" in told
    sited.json("space", "create", "bob")
    made = sited.json("task", "create", "own", "--command", "touch ran", "--space", "bob")
    assert made["site"]["executor"] == "sandbox"
    assert "choose container, sandbox or tmux" in refused(
        sited, "--space", "bob", "--executor", "process"
    )
    sited.up()
    run = sited.ended(sited.json("run", "own", "--space", "bob")["run"])
    assert (run["state"], run["error_code"]) == ("failed", "script_unavailable"), run
    assert "install the package bubblewrap" in run["error"]
    assert list(sited.house.home.rglob("ran")) == []


@pytest.mark.parametrize("hidden", ["tmux"], indirect=True)
def test_without_tmux_nothing_runs_in_a_pane(sited, hidden):
    assert "install the package tmux" in refused(sited, "--executor", "tmux")


def test_an_engine_that_has_gone_is_told_and_nothing_runs(sited, request):
    program, image = request.getfixturevalue("engine")
    sited.settings = {"ROTA_EXECUTORS_CONTAINER_ENGINE": program}
    words = ("task", "create", "own", "--command", "touch ran", "--executor", "container")
    sited.json(*words, "--image", image)
    sited.settings = {"ROTA_EXECUTORS_CONTAINER_ENGINE": "/nonexistent/podman"}
    digest = f"x@{'sha256:' + '0' * 64}"
    told = refused(sited, "--executor", "container", "--image", digest)
    assert "install docker or podman" in told
    sited.up()
    run = sited.ended(sited.start("own"))
    assert (run["state"], run["error_code"]) == ("failed", "script_unavailable"), run
    assert list(sited.house.home.rglob("ran")) == []
