"""What every executor holds to, through a real daemon."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

TALKING = """
import os, sys
print("payload", sys.stdin.read().strip(), flush=True)
print("task", os.environ["ROTA_TASK"], flush=True)
print("oh no", file=sys.stderr, flush=True)
print("last", sys.argv[1], flush=True)
sys.exit(int(sys.argv[1]))
"""


def test_output_exit_code_and_payload_come_through(sited, place):
    sited.settle(place)
    (sited.work / "talk.py").write_text(TALKING)
    made = sited.make("well", "python3", "talk.py", "0")
    assert made["site"]["executor"] == place.options[1]
    assert made["site"]["isolated"] is (place.name not in {"process", "tmux"})
    sited.make("badly", "python3", "talk.py", "3")
    sited.up()
    run = sited.ended(sited.json("run", "well", "--payload", '{"a": 1}')["run"])
    assert (run["state"], run["result"]) == ("succeeded", "last 0"), run
    assert sited.output(run["id"]).count("oh no") == 1
    assert 'payload {"a": 1}' in sited.output(run["id"])
    assert "task well" in sited.output(run["id"])
    run = sited.ended(sited.start("badly"))
    assert run["state"] == "failed", run
    assert "3" in run["error"]
    assert "last 3" in sited.output(run["id"])
    assert sited.living() == []
    if "ROTA_EXECUTORS_CONTAINER_ENGINE" in place.settings:
        asked = [place.settings["ROTA_EXECUTORS_CONTAINER_ENGINE"], "ps", "--all", "--quiet"]
        assert subprocess.run(asked, capture_output=True, check=True).stdout == b""


def test_cancelled_or_too_slow_nothing_is_left_of_a_program_that_hides(sited, place):
    sited.settle(place)
    sited.make("slow", "python3", "spread.py", timeout="6s")
    sited.up()
    run = sited.start("slow")
    sited.said(run, "spread")
    assert len(sited.living()) >= 4
    sited.json("cancel", str(run))
    assert sited.ended(run)["state"] == "cancelled"
    assert sited.living() == []
    for file in sited.work.glob("hidden-*"):
        file.unlink()
    run = sited.start("slow")
    sited.said(run, "spread")
    assert len(sited.living()) >= 4
    ended = sited.ended(run)
    assert (ended["state"], ended["error_code"]) == ("failed", "timeout"), ended
    assert sited.living() == []


def test_a_killed_daemon_comes_back_to_the_same_processes(sited, place):
    goes_on(sited.settle(place))


@pytest.mark.parametrize("place", ["walled"], indirect=True)
def test_a_killed_daemon_comes_back_on_postgresql(sited, place, postgres_address):
    sited.store = postgres_address
    goes_on(sited.settle(place))


def goes_on(sited):
    sited.make("count", "python3", "count.py", "20")
    sited.up()
    run = sited.start("count")
    sited.said(run, "line 5")
    living = sited.living()
    sited.kill()
    assert sited.living() == living
    sited.up()
    assert sited.living() == living
    sited.go()
    ended = sited.ended(run)
    assert (ended["state"], ended["result"]) == ("succeeded", "finished"), ended
    assert sited.output(run) == ["begun", *(f"line {n}" for n in range(20)), "finished"]
    assert sited.living() == []
    assert sited.rota("verify").returncode == 0


def test_a_killed_keeper_takes_everything_with_it(sited, place):
    sited.settle(place)
    sited.make("slow", "python3", "spread.py", **{"on-lost": "fail"})
    sited.up()
    run = sited.start("slow")
    sited.said(run, "spread")
    (keeper,) = sited.keepers().values()
    os.kill(keeper, signal.SIGKILL)
    ended = sited.ended(run)
    assert (ended["state"], ended["error_code"]) == ("failed", "lost"), ended
    assert sited.living() == []
