"""An agent that asks in words, through a real daemon."""

from __future__ import annotations

import json

MARK = "[ZUBOT_CONTROL_REQUEST]"
REQUEST = {"action_id": "a1", "action": "kill_task_run", "title": "End it?", "payload": {"run": 3}}
AGENT = f"""
import json, os, sys
answers = json.loads(os.environ.get("ROTA_ANSWERS", "[]"))
print("Told", len(answers), answers[-1] if answers else "nothing")
print("I would delete 3 files.")
print({MARK!r}, {json.dumps(REQUEST)!r}, {MARK!r})
if len(answers) < 2:
    print("Should I proceed?")
"""


def test_a_run_waits_for_an_approval_then_for_words_and_goes_on(simple):
    (simple.work / "agent.py").write_text(AGENT)
    words = ("--instructions", "Tidy.", "--agent", "command", "--command", "python3 agent.py")
    simple.json("task", "create", "tidy", *words, "--phrases")
    simple.json("task", "create", "plain", *words)
    simple.up()
    number = simple.json("run", "tidy")["run"]
    waiting = simple.until(number, lambda run: run["state"] == "waiting")
    (first,) = waiting["questions"]
    assert (first["question"], first["options"]) == ("End it?", ["approve", "deny"])
    assert json.loads(first["action"])["action"] == REQUEST
    assert simple.rota("answer", str(number), "approve").returncode != 0
    simple.json("answer", str(number), "approve", "--hash", first["action_hash"])
    waiting = simple.until(number, lambda run: len(run["questions"]) > 1)
    second = waiting["questions"][-1]
    assert second["question"].endswith("Should I proceed?")
    assert f"approve sha256:{first['action_hash']}" in second["question"]
    simple.json("answer", str(number), "yes")
    run = simple.until(number, lambda run: run["finished_at"] is not None)
    assert run["state"] == "succeeded"
    assert run["result"].startswith("Told 2 yes")
    assert simple.done("plain")["state"] == "succeeded"
