"""Agents through a real daemon: every end, tries inside an attempt, sessions and questions."""

from __future__ import annotations

import json
import re
import time

import pytest

from tests.system.attempt.test_daemon_restarts import ended

AGENT = """
import json, os, pathlib, sys, time

def say(kind, **more):
    print(json.dumps({"rota": kind, **more}), flush=True)

prompt = sys.stdin.read()
count = pathlib.Path("tries")
tries = int(count.read_text()) if count.exists() else 0
count.write_text(str(tries + 1))
way = prompt.split()[0]
if way == "overload" and tries < 2:
    say("text", text=f"try {tries}")
    say("error", **{"class": "overload", "message": "529 from 10.0.0.1"})
    sys.exit(1)
if way == "always":
    say("error", **{"class": "overload", "message": "529 from 10.0.0.1"})
    sys.exit(1)
if way == "memory":
    os.kill(os.getpid(), 9)
if way == "twice":
    say("result", text="one")
if way == "fails":
    say("result", text="done")
    sys.exit(3)
if way == "banner":
    say("result", text="API Error: 401 invalid key")
    sys.exit()
if way == "long":
    print("x" * 200_000)
if way == "session":
    say("session", id="s-1")
    say("result", text=os.environ.get("ROTA_SESSION", "none"))
    sys.exit()
if way == "ask" and "red" not in prompt:
    say("question", text="Which colour?", options=["red", "blue"])
    sys.exit()
if way == "ask":
    say("result", text=prompt)
    sys.exit()
if way == "stubborn":
    say("text", text="here")
    import signal
    signal.signal(signal.SIGTERM, lambda *_: (say("result", text="done"), sys.exit(0)))
    time.sleep(60)
if way != "nothing":
    say("result", text="done")
"""


@pytest.fixture
def agent(kept):
    (kept.work / "agent.py").write_text(AGENT)

    def create(instructions, name="think", **more):
        wanted = {"instructions": instructions, "output": "lines", "agent": "command", **more}
        kept.create(name, "python3", "agent.py", **wanted)

    kept.agent = create
    return kept


def faults(run):
    return [event["data"] for event in run["events"] if event["name"] == "run.fault"]


ENDS = {
    "nothing": ("failed", "no_result"),
    "twice": ("succeeded", "done"),
    "fails": ("failed", "other"),
    "banner": ("failed", "authentication"),
    "long": ("succeeded", "done"),
    "memory": ("failed", "out_of_memory"),
}


def test_every_end_has_its_outcome(agent):
    for way in ENDS:
        agent.agent(way, way, retry="2", **{"retry-base": "1ms", "deliver-to": "log:"})
    agent.up()
    runs = {way: agent.json("run", way)["run"] for way in ENDS}
    for way, (state, told) in ENDS.items():
        run = agent.until(runs[way], ended)
        assert run["state"] == state, run
        assert (run["result"] if state == "succeeded" else run["error_code"]) == told
        tried_again = told in {"no_result", "other"}
        assert len(run["attempts"]) == (2 if tried_again else 1)
        if state == "failed":
            (delivery,) = run["deliveries"]
            why = run["error"].splitlines()[0]
            if told == "other":  # its own words stay with the run
                why = f"It failed; look at its output (rota run {run['id']})."
            assert delivery["body"] == f"{run['task']}: run {run['id']} failed: {why}"


def test_a_result_after_a_cancellation_does_not_count(agent):
    agent.agent("stubborn")
    agent.up()
    number = agent.json("run", "think")["run"]
    agent.until(number, lambda run: run["logs"])
    agent.json("cancel", str(number))
    run = agent.until(number, ended)
    assert (run["state"], run["result"]) == ("cancelled", None)


def test_what_a_provider_refuses_for_a_moment_is_tried_again_inside_the_attempt(agent):
    agent.extra["ROTA_AGENT_WAIT"] = "50ms"
    agent.agent("overload", **{"deliver-to": "log:"})
    agent.up()
    number = agent.json("run", "think")["run"]
    run = agent.until(number, ended)
    assert (run["state"], run["result"]) == ("succeeded", "done"), run
    assert [attempt["number"] for attempt in run["attempts"]] == [1]
    assert [data["retry"] for data in faults(run) if "retry" in data] == [1, 2]
    assert agent.output(number) == ["try 0", "try 1"]
    logs = agent.rota("logs", str(number)).stdout
    assert logs.count("run.fault") == 2
    assert re.search(r"provider is overloaded \(.*\); Rota tries again at .* \(1 of 3\)\.\n", logs)
    assert agent.rota("verify").returncode == 0


def test_a_daemon_that_is_killed_while_it_waits_tries_neither_once_more_nor_less(agent):
    agent.extra["ROTA_AGENT_WAIT"] = "2s"
    agent.agent("always", **{"deliver-to": "log:"})
    agent.up()
    number = agent.json("run", "think")["run"]
    for retry in (1, 2):
        agent.until(number, lambda run, n=retry: any(d.get("retry", 0) >= n for d in faults(run)))
        agent.kill()
        why = agent.rota("why", "think").stdout
        assert " of 3): The model's provider is overloaded" in why
        agent.up()
    run = agent.until(number, ended)
    assert (run["state"], run["error_code"]) == ("failed", "overload")
    assert [data["retry"] for data in faults(run) if "retry" in data] == [1, 2, 3]
    assert (agent.work / "tries").read_text() == "4"
    assert len(run["attempts"]) == 1
    assert run["deliveries"][0]["body"] == (
        f"think: run {number} failed: The model's provider is overloaded; wait and try again."
    )


def test_a_cancellation_ends_the_wait(agent):
    agent.extra["ROTA_AGENT_WAIT"] = "10m"
    agent.agent("always")
    agent.up()
    number = agent.json("run", "think")["run"]
    agent.until(number, lambda run: any("retry" in data for data in faults(run)))
    begun = time.monotonic()
    agent.json("cancel", str(number))
    assert agent.until(number, ended)["state"] == "cancelled"
    assert time.monotonic() - begun < 20
    assert (agent.work / "tries").read_text() == "1"


def test_the_next_run_goes_on_in_the_session_also_after_a_restart(agent):
    agent.agent("session")
    agent.json("task", "edit", "think", "--context", "group")
    agent.up()
    first = agent.until(agent.json("run", "think")["run"], ended)
    agent.stop()
    agent.up()
    second = agent.until(agent.json("run", "think")["run"], ended)
    assert (first["result"], second["result"]) == ("none", "s-1")


def test_an_answer_reaches_the_agent(agent):
    agent.agent("ask")
    agent.up()
    number = agent.json("run", "think")["run"]
    run = agent.until(number, lambda run: run["state"] == "waiting")
    assert [q["question"] for q in run["questions"]] == ["Which colour?"]
    agent.json("answer", str(number), "red")
    run = agent.until(number, ended)
    assert run["result"] == "ask\n\nYou asked: Which colour?\nThe answer is: red"


def test_an_agent_that_cannot_do_it_is_refused_at_once(agent):
    done = agent.rota("task", "create", "no", "--instructions", "x", "--agent", "pi",
                      "--max-turns", "3", "--json")  # fmt: skip
    assert done.returncode == 2
    assert "max_turns" in done.stdout + done.stderr
    assert json.loads(agent.rota("task", "list", "--json").stdout)["tasks"] == []
