"""A keeper is killed: its tree goes with it, the attempt is lost, and `on_lost` decides."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.system.attempt.conftest import processes
from tests.system.attempt.test_daemon_restarts import begun, ended

FORKING = """
import os, sys, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        os.execvp(sys.executable, [sys.executable, "-c", "import time; time.sleep(120)", sys.argv[1]])
print("line 5", flush=True)
time.sleep(120)
"""


def gone(kept, seconds=10.0):
    end = time.monotonic() + seconds
    while kept.living():
        assert time.monotonic() < end, kept.living()
        time.sleep(0.02)


def start_forking(kept, on_lost):
    (kept.work / "forking.py").write_text(FORKING)
    kept.create("fork", "python3", "forking.py", kept.token, **{"on-lost": on_lost})
    kept.up()
    number = kept.json("run", "fork")["run"]
    kept.until(number, begun)
    assert len(kept.living()) == 4
    return number


@pytest.mark.parametrize("on_lost", ["retry", "fail", "ask"])
def test_a_keeper_that_is_killed_takes_its_tree_along_and_the_task_decides(kept, on_lost):
    number = start_forking(kept, on_lost)
    keeper, _ = kept.keeper()
    before = kept.living()
    os.kill(keeper, signal.SIGKILL)
    if on_lost == "retry":
        again = kept.until(number, lambda run: len(run["attempts"]) == 1 and begun_twice(run))
        assert again["attempts"][0]["outcome"] == "lost"
        assert not set(before) & set(kept.living())
        kept.json("cancel", str(number))
        assert kept.until(number, ended)["state"] == "cancelled"
    elif on_lost == "fail":
        run = kept.until(number, ended)
        assert (run["state"], run["error_code"]) == ("failed", "lost"), run
        assert "its keeper was killed" in run["error"]
    else:
        run = kept.until(number, lambda run: run["state"] == "waiting")
        kept.json("answer", str(run["questions"][0]["id"]), "fail")
        assert kept.until(number, ended)["error_code"] == "lost"
    gone(kept)
    assert kept.rota("verify").returncode == 0


def begun_twice(run):
    return sum("line 5" in part["text"] for part in run["logs"]) == 2


@pytest.mark.parametrize("both", [False, True])
def test_without_a_namespace_what_is_left_is_found_by_its_marker(kept, both, tmp_path):
    """A daemon that may make no namespaces: a guard holds the tree, and can die too."""
    without = no_namespaces()
    if without is None:
        pytest.skip("this machine cannot take the right to make namespaces away")
    kept.house._command = lambda words: [
        *without,
        sys.executable,
        "-m",
        "rota.cli.main",
        *words,
    ]
    number = start_forking(kept, "fail")
    keeper, guard = kept.keeper()
    dying = (guard, keeper) if both else (keeper,)  # a dead keeper is seen, and its guard woken
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for pid in dying:
            os.kill(pid, signum)
    run = kept.until(number, ended)
    assert (run["state"], run["error_code"]) == ("failed", "lost"), run
    assert ("could not be proven" in run["error"]) == both, run["error"]
    gone(kept)


def no_namespaces():
    """Return the words that start a program without the right to make namespaces."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or os.geteuid() != 0:
        return None
    words = [setpriv, "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    probe = [*words, "unshare", "--pid", "--fork", "true"]
    done = subprocess.run(probe, capture_output=True, check=False)
    return words if done.returncode else None


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("runs", "kills"), [(4, 5), pytest.param(10, 20, marks=pytest.mark.programs)]
)
def test_programs_live_through_many_deaths_of_their_daemon(kept, runs, kills):
    chance = random.Random(5)
    lines = 60
    kept.create("count", "python3", "count.py", str(lines), kept.token, overlap="allow")
    kept.up()
    numbers = [kept.json("run", "count")["run"] for _ in range(runs)]
    for _ in range(kills):
        time.sleep(chance.random() * 0.5)
        kept.kill()
        kept.up()
    kept.go()
    counted = ["begun", *(f"line {n}" for n in range(lines)), "finished"]
    for number in numbers:
        run = kept.until(number, ended, seconds=60)
        assert (run["state"], run["result"]) == ("succeeded", "finished"), run
        if len(run["attempts"]) == 1:
            assert kept.output(number) == counted
    assert processes(kept.token) == []
    assert kept.rota("verify").returncode == 0
