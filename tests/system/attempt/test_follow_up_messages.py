"""Programs that are told more while they work: on their input, in order, once, through deaths."""

from __future__ import annotations

import json

import pytest

from tests.system.attempt.test_conversations import ask, until

HERE = "cli:default"
AGENT = """
import json, sys

def say(kind, **more):
    print(json.dumps({"rota": kind, **more}), flush=True)

heard = []
for line in sys.stdin:
    told = json.loads(line)
    if told["rota"] == "instructions":
        say("text", text="begun")
        continue
    heard.append(told["text"])
    if told["text"] == "break":
        sys.exit(3)
    say("read", id=told["id"])
    if told["text"] == "flood":
        say("result", text="x" * 2**21)
        continue
    say("text", text=f"heard {told['text']}")
    if told["text"] == "stop":
        say("result", text=json.dumps(heard))
"""


@pytest.fixture
def talk(kept):
    (kept.work / "agent.py").write_text(AGENT)
    wanted = {"instructions": "Talk.", "agent": "command", "output": "lines", "thread": HERE,
              "prompt-by": "lines"}  # fmt: skip
    words = [word for option, value in wanted.items() for word in (f"--{option}", value)]
    program = f"python3 agent.py {kept.token}"
    kept.json("task", "create", "talk", "--command", program, "--answers", *words)
    return kept


def begin(talk):
    """Start a run that waits to be told more."""
    number = ask(talk, "POST", "/v1/tasks/talk/run-now", {})["run"]
    until(talk, number, lambda run: run["logs"])
    return number


def say(talk, text):
    return ask(talk, "POST", f"/v1/threads/{HERE}/messages", {"text": text})


def heard(run):
    assert run["state"] == "succeeded", run
    return json.loads(run["result"])


def states(talk):
    found = ask(talk, "GET", f"/v1/threads/{HERE}/messages")["messages"]
    return [(message["text"], message["state"], message["run"]) for message in reversed(found)]


def test_a_program_is_told_what_is_said_while_it_works(talk):
    talk.up()
    number = begin(talk)
    first = say(talk, "one <b>")
    until(talk, number, lambda run: any("one" in part["text"] for part in run["logs"]))
    say(talk, "stop")
    assert heard(until(talk, number)) == ["one <b>", "stop"]
    assert states(talk) == [("one <b>", "taken", number), ("stop", "taken", number)]
    assert until(talk, first["reader"])["state"] == "cancelled"
    assert talk.rota("verify").returncode == 0


@pytest.mark.parametrize(
    "fault",
    ["record_mailbox_number.begin", "record_output.committed", "acknowledge_messages.begin", "acknowledge_messages.committed"],
)  # fmt: skip
def test_a_daemon_that_dies_on_the_way_loses_no_message_and_gives_none_twice(talk, fault):
    talk.up()
    number = begin(talk)
    talk.kill()
    talk.up(ROTA_FAULT=f"{fault}:1:kill")
    for text in ("one", "two", "three"):
        talk.json("say", HERE, text)
    talk.daemon.wait()
    talk.up()
    talk.json("say", HERE, "stop")
    assert heard(until(talk, number)) == ["one", "two", "three", "stop"]
    assert {(state, run) for _, state, run in states(talk)} == {("taken", number)}
    assert len(talk.output(number)) == len(set(talk.output(number)))
    assert talk.rota("verify").returncode == 0


def test_a_result_that_is_too_long_to_be_read_ends_the_program_all_the_same(talk):
    talk.up()
    number = begin(talk)
    say(talk, "flood")
    run = until(talk, number)
    assert (run["state"], run["error_code"]) == ("failed", "no_result"), run


def test_what_a_program_never_takes_is_read_by_the_next_run(talk):
    talk.up()
    number = begin(talk)
    say(talk, "break")
    assert until(talk, number)["state"] == "failed"
    until(talk, number + 1, lambda run: run["logs"])
    assert states(talk) == [("break", "given", number + 1)]
