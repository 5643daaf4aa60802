"""`rota attach` shows the living pane of a run, and the yard can capture it."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import termios
import time

import pytest

from rota.app.settings import load_settings
from rota.app.sites import LocalSiteChecker
from rota.keeper.home import LocalKeeperHome, state_folders
from rota.model.attempts import KeptAttempt

PATIENCE = 30.0
ASKING = """
import os, time
print("\\x1b[31mname?\\x1b[0m", flush=True)
try:
    print("hello", open("/dev/tty").readline().strip(), flush=True)
except OSError:  # behind walls a program has a terminal, but none that controls it
    while not os.path.exists("go"):
        time.sleep(0.02)
    print("hello nobody", flush=True)
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


@pytest.fixture
def asking(sited, place):
    """A run in a pane that waits for somebody to type."""
    sited.settle(place)
    (sited.work / "ask.py").write_text(ASKING)
    sited.make("ask", "python3", "ask.py")
    sited.up()
    run = sited.start("ask")
    sited.said(run, "name?")
    return run


@contextlib.contextmanager
def attached(sited, run, *words):
    """`rota attach` on a terminal of its own."""
    house = sited.house
    line = house._command(["attach", str(run), *words])
    number, terminal = pty.fork()
    if number == 0:
        os.environ["TERM"] = "xterm"
        os.execve(line[0], line, {**house._environment({}), "TERM": "xterm"})  # noqa: S606
    try:
        yield terminal
    finally:
        os.kill(number, signal.SIGTERM)
        with contextlib.suppress(OSError):
            while os.read(terminal, 65536):
                pass
        os.waitpid(number, 0)
        os.close(terminal)


def shown(terminal, text):
    seen, until = b"", time.monotonic() + PATIENCE
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, until - time.monotonic()))
        assert ready, seen
        seen += os.read(terminal, 65536)
    return seen


def captured(sited, run):
    home = sited.house.home
    yard = LocalKeeperHome(home, "here", LocalSiteChecker(load_settings(str(home))).executors)
    nonce = state_folders(home, run, 1)[-1].name + "0" * 8
    kept = KeptAttempt(run_id=run, epoch=1, home="", nonce=nonce, boot="", executor="tmux")
    return yard.capture_pane(kept)


@pytest.mark.parametrize("place", ["walled"], indirect=True)
def test_a_pane_behind_walls_is_watched_and_captured(sited, place, asking):
    assert captured(sited, asking) == "name?"
    with attached(sited, asking) as terminal:
        shown(terminal, b"name?")
        sited.go()
        assert sited.ended(asking)["result"] == "hello nobody"
    assert captured(sited, asking) == ""


@pytest.mark.parametrize("place", ["tmux"], indirect=True)
def test_what_is_typed_reaches_a_pane_only_when_asked_for(sited, place, asking):
    with attached(sited, asking) as terminal:
        shown(terminal, b"name?")
        os.write(terminal, b"nobody\r")
    assert captured(sited, asking) == "name?"
    with attached(sited, asking, "--write") as terminal:
        shown(terminal, b"name?")
        os.write(terminal, b"Ada\r")
        ended = sited.ended(asking)
    assert (ended["state"], ended["result"]) == ("succeeded", "hello Ada"), ended
    told = sited.rota("attach", str(asking))
    assert (told.returncode != 0, "has ended" in told.stderr) == (True, True)


@pytest.mark.parametrize("place", ["tmux"], indirect=True)
def test_a_terminal_is_put_back_when_the_run_of_its_pane_is_killed(sited, place):
    sited.settle(place)
    (sited.work / "deaf.py").write_text(DEAF)
    sited.make("deaf", "python3", "deaf.py", grace="100ms")
    sited.up()
    run = sited.start("deaf")
    sited.said(run, "deaf")
    with attached(sited, run) as terminal:
        before = termios.tcgetattr(terminal)
        shown(terminal, b"deaf")
        assert termios.tcgetattr(terminal) != before
        sited.json("cancel", str(run))
        seen = shown(terminal, b"cancelled by")
        assert b"\x1b[?1049l" in seen
        assert b"\x1b[?25h" in seen
        assert f"Run {run} of deaf cancelled by".encode() in seen
        assert termios.tcgetattr(terminal) == before


@pytest.mark.parametrize("place", ["tmux"], indirect=True)
def test_a_run_that_has_not_begun_or_has_ended_is_told_as_that(sited, place):
    sited.settle(place)
    sited.make("slow", "python3", "count.py", "1")
    run = str(sited.json("run", "slow")["run"])
    assert (
        f"run {run} is queued: it has a terminal only while it runs"
        in sited.rota("attach", run).stderr
    )
    sited.json("cancel", run)
    assert sited.rota("attach", run).stderr == f"rota: run {run} has ended: see `rota logs {run}`\n"


@pytest.mark.parametrize("place", ["tmux"], indirect=True)
def test_a_pane_is_for_terminals_only(sited, place, asking):
    told = sited.rota("attach", str(asking))
    assert f"rota logs {asking} -f" in told.stderr
    assert len(told.stderr.splitlines()) == 1


@pytest.mark.parametrize("place", ["process"], indirect=True)
def test_a_run_without_a_pane_says_what_to_do(sited, place):
    sited.settle(place)
    sited.make("slow", "python3", "count.py", "1")
    sited.up()
    run = sited.start("slow")
    sited.said(run, "line 0")
    told = sited.rota("attach", str(run))
    assert told.returncode != 0
    assert f"run {run} has no terminal" in told.stderr
    assert f"rota logs {run} -f" in told.stderr
    sited.go()
    sited.ended(run)


@pytest.mark.parametrize("place", ["tmux"], indirect=True)
def test_a_pane_of_a_queued_run_is_waited_for(sited, place):
    sited.settle(place)
    (sited.work / "ask.py").write_text(ASKING)
    sited.make("ask", "python3", "ask.py")
    sited.up()
    sited.json("limit", "set", "space", "background", "--cap", "0")
    run = sited.start("ask")
    with attached(sited, "ask") as terminal:
        told = shown(terminal, b"Waiting for it; Ctrl-C leaves.")
        assert f"Run {run} is queued: in the queue for ".encode() in told
        sited.json("limit", "set", "space", "background", "--cap", "1")
        shown(terminal, b"name?")
