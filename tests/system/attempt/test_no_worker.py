"""A program goes on while nobody works: what people ask for then is told as not done yet."""

from __future__ import annotations

import pytest

STOPPED = "The daemon is stopped: run `rota start`."
NOBODY = "No worker is running: start `rota up`."


@pytest.fixture
def running(simple):
    """The number of a run whose program goes on until the test lets it end."""
    number = simple.count(10)
    simple.until(number, lambda run: any("line 5" in part["text"] for part in run["logs"]))
    return str(number)


def check_told(simple, running, words):
    """See that every command that asks for work says that nobody does it."""
    queued = simple.rota("run", "count", "--key", "next")
    assert queued.stderr.splitlines() == [words]
    number = str(int(running) + 1)
    waited = simple.rota("run", number, "--wait", "--timeout", "100ms")
    assert waited.returncode == 8
    assert waited.stderr.splitlines()[-1] == f"Run {number} of count is still queued. {words}"
    step = words.partition("`")[2].partition("`")[0]
    for each in (running, number):
        assert f"`{step}`" in simple.rota("why", each).stdout
    assert simple.rota("cancel", running).stderr.splitlines() == [words]


def test_a_daemon_that_was_stopped_while_a_program_goes_on(simple, running):
    simple.json("stop")
    simple.daemon.log.wait("daemon.resting")
    check_told(simple, running, STOPPED)
    assert simple.json("status")["idle"] == "the daemon is stopped: run `rota start`"


def test_a_daemon_that_was_killed_while_a_program_goes_on(simple, running):
    simple.kill()
    check_told(simple, running, NOBODY)
