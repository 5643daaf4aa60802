"""A daemon that is stopped for longer than its lease: its programs go on, and nobody runs twice."""

from __future__ import annotations

import os
import signal

import pytest

FAST = {"ROTA_WORKER_TTL": "2s", "ROTA_HEARTBEAT": "1s"}


def begun(run):
    return any("line 5" in part["text"] for part in run["logs"])


def silent(run):
    return any(event["name"] == "run.silent" for event in run["events"])


@pytest.fixture
def shared(kept, tmp_path):
    """A house on a shared database, where another daemon with another home looks on."""
    if kept.store is None:
        pytest.skip("on SQLite one process works on the database, and nobody else looks on")
    kept.extra = FAST
    number = kept.count(10)
    kept.until(number, begun)
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    kept.house.up("--port", "0", **{**kept._extra(), **FAST, "ROTA_HOME": str(other)})
    yield number
    os.kill(kept.daemon.process.pid, signal.SIGCONT)


def test_its_run_is_noted_by_others_kept_for_it_and_carried_on(kept, shared):
    (first,) = kept.living()
    kept.daemon.signal(signal.SIGSTOP)
    run = kept.until(shared, silent)
    (event,) = [event for event in run["events"] if event["name"] == "run.silent"]
    assert "its keeper may continue" in event["data"]["reason"]
    assert (run["state"], run["losses"], run["attempt"]) == ("running", 0, 1)
    assert "its keeper may continue" in kept.rota("why", str(shared)).stdout
    assert kept.living() == [first]
    kept.daemon.signal(signal.SIGCONT)
    run = kept.until(shared, lambda run: run["heartbeat"]["silence"] is None)
    assert kept.living() == [first]
    kept.go()
    run = kept.until(shared, lambda run: run["state"] == "succeeded")
    assert [attempt["number"] for attempt in run["attempts"]] == [1]
    counted = [f"line {n}" for n in range(10)]
    assert kept.output(shared) == ["begun", *counted, "finished"]
