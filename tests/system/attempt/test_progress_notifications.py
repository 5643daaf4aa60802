"""What people hear of a run in their conversation while it goes on: each thing once, with deaths."""

from __future__ import annotations

import time

import pytest

from tests.system.attempt.test_conversations import until
from tests.system.attempt.test_follow_up_messages import HERE, say

AGENT = """
import json, os, sys, time

def say(kind, **more):
    print(json.dumps({"rota": kind, **more}), flush=True)

for line in sys.stdin:
    told = json.loads(line)
    if told["rota"] == "instructions":
        say("text", text="begun")
        while not os.path.exists("go"):
            time.sleep(0.01)
        say("result", text="first")
        continue
    say("read", id=told["id"])
    say("tool", name="look", summary=told["text"])
    say("result", text=f"answer to {told['text']}<internal>not for people</internal>")
"""


@pytest.fixture
def talk(kept):
    (kept.work / "agent.py").write_text(AGENT)
    wanted = {"instructions": "Talk.", "agent": "command", "output": "lines", "thread": HERE,
              "prompt-by": "lines", "deliver-to": "log:", "progress": "2"}  # fmt: skip
    words = [word for option, value in wanted.items() for word in (f"--{option}", value)]
    program = f"python3 agent.py {kept.token}"
    kept.json("task", "create", "talk", "--command", program, "--answers", "--acknowledge", *words)
    return kept


def until_told(talk, words):
    """Wait until words lie on the input of the program."""
    attempts = talk.house.home / "keepers" / "attempts"
    end = time.monotonic() + 30.0
    while not any(words in found.read_bytes() for found in attempts.glob("*/in")):
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    "fault", ["record_launch.committed", "record_output.begin", "record_output.committed", "none"]
)
def test_each_result_reaches_people_once_whenever_the_daemon_dies(talk, fault):
    talk.up(**({"ROTA_FAULT": f"{fault}:1:kill"} if fault == "record_launch.committed" else {}))
    number = say(talk, "zero")["reader"]
    if fault == "record_launch.committed":
        talk.daemon.wait()
        talk.up()
    until(talk, number, lambda run: run["logs"])
    for text in ("one", "two", "three"):
        say(talk, text)
    until_told(talk, b"three")
    if fault.startswith("hear"):
        talk.kill()
        talk.up(ROTA_FAULT=f"{fault}:1:kill")
        talk.go()
        talk.daemon.wait()
        talk.up()
    talk.go()
    run = until(talk, number)
    assert (run["state"], run["result"]) == ("succeeded", "answer to three")
    told = [one["body"] for one in sorted(run["deliveries"], key=lambda one: one["id"])]
    begun = told[0]
    answers = [body for body in told[1:] if not body.startswith("look")]
    assert answers == ["first", "answer to one", "answer to two", "answer to three"]
    assert begun not in answers and len(told) - len(answers) <= 2, told
    assert talk.rota("verify").returncode == 0
