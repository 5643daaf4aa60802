"""Checks, gates and budgets through a real daemon, also when it is killed amid them."""

from __future__ import annotations

import json
import time

import pytest

from tests.system.attempt.test_daemon_restarts import ended

CHECK = """
import pathlib, sys, time
with open("looked", "a") as looked:
    looked.write("x")
while not pathlib.Path("go").exists():
    time.sleep(0.02)
"""
GATE = """
import json, sys
told = json.load(sys.stdin)
seen = told["state"] or 0
print(json.dumps({"wake": seen == 1, "reason": f"seen {seen}", "state": seen + 1, "input": "new"}))
"""
SPENDER = """
import json, time
print(json.dumps({"rota": "usage", "input_tokens": 500}), flush=True)
time.sleep(60)
"""


def test_a_check_that_its_daemon_did_not_live_to_see_is_looked_at_again(kept):
    (kept.work / "look.py").write_text(CHECK)
    checks = [
        {"command": ["python3", "look.py", kept.token]},
        {"file_newer": "made"},
        {"not_like": "(fail|err)+", "regex": True},
    ]
    body = {"name": "made", "command": ["sh", "-c", "echo x > made"], "checks": checks}
    kept.up()
    assert kept.call("POST", "/v1/tasks", body)[0] == 201
    number = kept.json("run", "made")["run"]
    looked = kept.work / "looked"
    wait(looked.exists)
    (first,) = kept.living()
    kept.kill()
    kept.up()
    wait(lambda: looked.read_text() == "xx" and first not in kept.living())
    kept.go()
    run = kept.until(number, ended)
    assert (run["state"], run["check_state"]) == ("succeeded", "verified"), run
    (attempt,) = run["attempts"]
    assert [found["passed"] for found in attempt["check_results"]] == [True, True, True]
    assert kept.living() == []
    assert kept.rota("verify").returncode == 0


@pytest.mark.programs
def test_a_success_that_is_none_is_tried_again_and_shown_with_its_evidence(simple):
    words = "sh -c 'test -e again && echo finished > report; touch again; echo done'"
    simple.json(
        *("task", "create", "report", "--command", words, "--retry", "2", "--retry-base", "1s"),
        *("--check", "file_newer=report", "--check", "command=grep -q finished report"),
    )
    simple.up()
    run = simple.done("report")
    assert (run["state"], run["check_state"], run["retries"]) == ("succeeded", "verified", 1), run
    first, second = run["attempts"]
    assert [found["passed"] for found in first["check_results"]] == [False, False]
    assert [found["passed"] for found in second["check_results"]] == [True, True]
    assert "verified" in simple.rota("runs").stdout
    shown = simple.rota("run", str(run["id"])).stdout
    assert "verified: its checks hold" in shown
    assert "it ended with 2" in shown
    simple.json("task", "edit", "report", "--check", "min_length=100", "--retry", "1")
    run = simple.done("report")
    assert (run["state"], run["error_code"], run["check_state"]) == (
        "failed", "check_failed", "contradicted",
    )  # fmt: skip
    assert "a check failed" in simple.rota("why", str(run["id"])).stdout


def test_a_gate_wakes_when_there_is_something_and_is_quiet_otherwise(simple):
    (simple.work / "gate.py").write_text(GATE)
    simple.json(
        *("task", "create", "inbox", "--command", "cat", "--output", "last_line"),
        *("--gate", "python3 gate.py", "--deliver-to", "log:"),
    )
    simple.up()
    quiet = simple.done("inbox")
    assert (quiet["state"], quiet["suppressed"], quiet["result"]) == (
        "succeeded",
        "by_gate",
        "seen 0",
    )
    assert quiet["deliveries"] == []
    woken = simple.done("inbox")
    assert (woken["suppressed"], json.loads(woken["result"])) == (None, {"input": "new"})
    assert len(woken["deliveries"]) == 1
    assert [run["id"] for run in simple.json("runs")["runs"]] == [woken["id"]]
    assert len(simple.json("runs", "--all")["runs"]) == 2
    assert simple.json("task", "show", "inbox")["counts"] == {"succeeded": 2, "suppressed": 1}
    assert simple.json("state", "get", "inbox", "gate")["value"] == 2


@pytest.mark.programs
def test_a_run_that_has_used_its_budget_stops_and_asks(simple):
    (simple.work / "spend.py").write_text(SPENDER)
    simple.json(
        *("task", "create", "dear", "--instructions", "Go", "--agent", "command"),
        *("--command", f"python3 spend.py {simple.token}", "--output", "lines"),
    )
    simple.json("budget", "set", "dear", "--per", "run", "--tokens", "100")
    simple.up()
    number = simple.json("run", "dear")["run"]
    run = simple.until(number, lambda run: run["state"] == "waiting")
    assert run["questions"][0]["options"] == ["continue with more", "stop", "pause the task"]
    assert simple.living() == []
    shown = simple.json("budget", "show", "dear")
    assert shown["budgets"][1]["used"]["tokens"] == 500
    assert simple.rota("answer", str(number), "pause the task").returncode == 0
    assert simple.until(number, ended)["state"] == "cancelled"
    assert simple.json("task", "show", "dear")["state"] == "disabled"


def test_a_script_that_has_used_its_time_stops_and_asks_whoever_watches_it(kept):
    kept.create("count", "python3", "count.py", "1", kept.token)
    kept.json("budget", "set", "count", "--per", "run", "--time", "2s")
    kept.json("budget", "set", "--space", "main", "--time", "1h", "--tokens", "1")
    kept.up()
    number = kept.json("run", "count")["run"]
    wait(kept.living)
    kept.kill()
    kept.up()
    run = kept.until(number, lambda run: run["state"] == "waiting")
    assert run["questions"][0]["options"] == ["continue with more", "stop", "pause the task"]
    assert "this run may use 2 seconds" in run["questions"][0]["question"]
    assert kept.living() == []
    _, task, space = kept.json("budget", "show", "count")["budgets"]
    assert task["used"]["seconds"] == space["used"]["seconds"] >= 2
    assert space["reserved"]["seconds"] == 0
    kept.go()
    assert kept.rota("answer", str(number), "continue with more").returncode == 0
    run = kept.until(number, ended)
    assert (run["state"], run["result"]) == ("succeeded", "finished"), run
    shown = kept.json("task", "show", "count")
    assert shown["forecast"]["median"]["seconds"] >= task["used"]["seconds"]
    assert kept.rota("verify").returncode == 0
    refused = kept.rota("budget", "set", "count", "--tokens", "5")
    assert "a script uses no tokens: cap its time" in refused.stderr


def wait(test, seconds=30.0):
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end
        time.sleep(0.02)
