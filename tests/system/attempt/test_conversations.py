"""Conversations through a real daemon: sessions, what is said, and deaths in between."""

from __future__ import annotations

import json
import sys
import time

import pytest

from tests.system.attempt.test_daemon_restarts import ended

AGENT = """
import json, os, pathlib, sys, time

def say(kind, **more):
    print(json.dumps({"rota": kind, **more}), flush=True)

prompt = sys.stdin.read()
session = os.environ.get("ROTA_SESSION", "")
say("session", id=session or f"s-{os.environ['ROTA_RUN_ID']}")
say("text", text="begun")
while "wait" in prompt and not pathlib.Path("go").exists():
    time.sleep(0.02)
say("result", text=json.dumps({"session": session, "prompt": prompt}))
"""
HERE = "cli:default"


@pytest.fixture
def talk(kept):
    (kept.work / "agent.py").write_text(AGENT)
    wanted = {"instructions": "Talk.", "agent": "command", "output": "lines", "thread": HERE}
    words = [word for option, value in wanted.items() for word in (f"--{option}", value)]
    kept.json("task", "create", "talk", "--command", "python3 agent.py", "--answers", *words)
    kept.up()
    return kept


def ask(talk, method, path, said=None):
    status, body = talk.call(method, path, said)
    assert status in {200, 201}, body
    return json.loads(body)


def until(talk, number, test=ended, seconds=30.0):
    """Return a run once it passes a test, asked for over HTTP."""
    end = time.monotonic() + seconds
    while not test(run := ask(talk, "GET", f"/v1/runs/{number}")):
        assert time.monotonic() < end, run
        time.sleep(0.02)
    return run


def told(run):
    assert run["state"] == "succeeded", run
    return json.loads(run["result"])


def test_what_is_said_is_read_in_order_in_the_session_of_the_thread_through_deaths(talk):
    def say(text, **more):
        return ask(talk, "POST", f"/v1/threads/{HERE}/messages", {"text": text, **more})

    first = say("Please wait, <b>one</b>", sender="Ann")
    until(talk, first["reader"], lambda run: run["logs"])
    two, three = say("two"), say("three")
    assert two["reader"] == three["reader"] != first["reader"]
    assert ask(talk, "GET", f"/v1/runs/{two['reader']}")["state"] == "queued"
    talk.kill()
    four = talk.json("say", HERE, "four")
    assert four["reader"] == two["reader"]
    talk.up()
    talk.go()
    one = told(until(talk, first["reader"]))
    assert one["session"] == ""
    assert one["prompt"].endswith(">Please wait, &lt;b&gt;one&lt;/b&gt;</message>")
    assert '<message sender="Ann" time="' in one["prompt"]
    rest = told(until(talk, two["reader"]))
    assert rest["session"] == f"s-{first['reader']}"
    texts = [line.rpartition("<")[0].rpartition(">")[2] for line in rest["prompt"].splitlines()[2:]]
    assert texts == ["two", "three", "four"]
    found = ask(talk, "GET", f"/v1/threads/{HERE}/messages")["messages"]
    assert {one["state"] for one in found} == {"given"}
    (session,) = ask(talk, "GET", "/v1/sessions")["sessions"]
    assert (session["thread"], session["agent"], session["runs"]) == (HERE, "command", 2)
    assert talk.rota("verify").returncode == 0


def test_a_session_that_was_put_aside_can_be_resumed(talk):
    def next_session():
        return told(until(talk, ask(talk, "POST", "/v1/tasks/talk/run-now", {})["run"]))["session"]

    assert next_session() == ""
    name = next_session()
    assert name.startswith("s-")
    (session,) = talk.json("session", "archive", HERE, "--title", "Birds")["sessions"]
    assert next_session() == ""
    ask(talk, "POST", f"/v1/sessions/{session['id']}/resume", {})
    assert next_session() == name
    (newest, *_) = ask(talk, "GET", "/v1/sessions/search?words=talk")["found"]
    assert (newest["said"], newest["session"]) == ("Talk.", session["id"])
    assert "  > Talk." in talk.rota("session", "show", str(session["id"])).stdout
    ask(talk, "POST", "/v1/sessions/current/clear", {"thread": HERE})
    assert next_session() == ""


def test_what_a_run_that_could_not_be_started_was_told_is_read_with_the_next_message(talk):
    script = talk.work / "answer.py"
    script.write_text(f"#!{sys.executable}\n{AGENT}")
    script.chmod(0o755)
    talk.json("task", "edit", "talk", "--command", "answer.py")
    script.rename(aside := talk.work / "aside.py")
    lost = until(talk, talk.json("say", HERE, "cancel the flight")["reader"])
    assert (lost["state"], lost["error_code"]) == ("failed", "agent_unavailable")
    (message,) = talk.json("messages", HERE)["messages"]
    assert (message["state"], message["run"]) == ("unread", None)
    (thread,) = talk.json("thread", "list")["threads"]
    assert thread["pending"] == 1
    aside.rename(script)
    prompt = told(until(talk, talk.json("say", HERE, "two")["reader"]))["prompt"]
    assert prompt.count("cancel the flight") == 1
    assert ">two<" in prompt
    assert "flight" not in told(until(talk, talk.json("say", HERE, "three")["reader"]))["prompt"]
    assert talk.rota("verify").returncode == 0
