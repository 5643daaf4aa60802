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


WANTED = [
    {"action_id": "a1", "action": "enqueue_task", "payload": {"task": "report"}},
    {"action_id": "a2", "action": "query_central_db",
     "payload": {"sql": "select count(*) from runs where task = $1", "params": ["report"]}},
    {"action_id": "a3", "action": "kill_task_run", "payload": {"run_id": 987654}},
]  # fmt: skip
CONTROLLING = f"""
import json, os
blocks = {[f"{MARK}{json.dumps(each)}{MARK}" for each in WANTED]!r}
answers = json.loads(os.environ.get("ROTA_ANSWERS", "[]"))
if len(answers) < len(blocks):
    print(*blocks, sep="\\n")
else:
    print("ended", *answers, sep="\\n")
"""


def test_what_is_approved_is_done_by_rota_and_told_through_a_death_of_the_daemon(simple):
    (simple.work / "agent.py").write_text(CONTROLLING)
    words = ("--instructions", "Tidy.", "--agent", "command", "--command", "python3 agent.py")
    simple.json("task", "create", "tidy", *words, "--phrases")
    simple.create("report", "true")
    simple.up()
    number = simple.json("run", "tidy")["run"]
    for count, wanted in enumerate(WANTED, 1):
        waiting = simple.until(number, lambda run: len(run["questions"]) == count)  # noqa: B023
        question = waiting["questions"][-1]
        assert json.loads(question["action"])["action"] == wanted
        done = simple.rota("answer", str(number), "approve", "--hash", question["action_hash"])
        assert "Result of the action: " in done.stdout, done
        simple.kill()
        simple.up()
    run = simple.until(number, lambda run: run["finished_at"] is not None)
    assert run["state"] == "succeeded"
    _, *told = run["result"].splitlines()
    outcomes = [question["outcome"] for question in run["questions"]]
    assert [json.loads(line.split(" ", 2)[2]) for line in told] == outcomes
    (report,) = simple.json("runs", "--task", "report")["runs"]
    assert outcomes[0] == {"ok": True, "run": report["id"], "created": True}
    assert (outcomes[1]["ok"], outcomes[1]["rows"]) == (True, [[1]])
    assert (outcomes[2]["ok"], outcomes[2]["error"]["code"]) == (False, "not_found")
    shown = simple.rota("run", str(number)).stdout
    assert f"approve: run {report['id']} is queued" in shown
