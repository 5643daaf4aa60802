"""The real Claude Code and pi are told more while they work, through a death of their daemon."""

from __future__ import annotations

import json
import time

import pytest

from tests.agents.programs import PROGRAMS
from tests.agents.test_through_daemon import (  # noqa: F401 - fixtures
    ENDED,
    bytecode,
    engine,
    everywhere,
    folder,
    lodging,
    provider,
)
from tests.tools.providers import Refusal, Slow, Tool
from tests.tools.providers import Text as Says

pytestmark = pytest.mark.agents

WAITS = "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo 42"


WAITING = {
    "claude": Tool("Bash", {"command": WAITS, "description": "wait"}),
    "pi": Tool("bash", {"command": WAITS}),
}


@pytest.fixture(params=WAITING)
def agent(request):
    if not PROGRAMS[request.param].here:
        pytest.skip(f"{request.param} could not be downloaded; see the list above")
    return request.param


def in_thread(place, *more):
    """Make a task that answers what is said in a thread."""
    thread = f"cli:{place.space}"
    place.make("talk", "--thread", thread, "--answers", "--timeout", "3m", *more)
    return thread


def say(place, thread, text):
    return place.json("say", thread, text, "--space", place.space)


def until_told(place, agent, words):
    """Wait until words lie on the input of a program, and one that confirms them has done so."""
    until_there(place, "in", words)
    if agent == "pi":
        until_there(place, "out", b'"message-')


def until_there(place, stream, words):
    attempts = place.house.home / "keepers" / "attempts"
    end = time.monotonic() + 60.0
    while not any(words in found.read_bytes() for found in attempts.glob(f"*/{stream}")):
        assert time.monotonic() < end
        time.sleep(0.02)


def until_ended(place, number):
    return place.until(number, lambda run: run["state"] in ENDED, 120.0)


@everywhere
def test_an_agent_is_told_what_is_said_while_it_uses_a_tool(lodging, agent, provider):  # noqa: F811
    provider.script.words = (WAITING[agent], Says("it is 42, and blue"))
    thread = in_thread(lodging)
    first = say(lodging, thread, "what is it?")["reader"]
    lodging.until(first, lambda run: any(e["name"] == "run.tool" for e in run["events"]), 60.0)
    lodging.kill()
    later = say(lodging, thread, "in <b>blue</b>, please")["reader"]
    lodging.up()
    until_told(lodging, agent, b"please")
    work = lodging.house.home / "spaces" / lodging.space / "work"
    (work / "go").touch()
    run = until_ended(lodging, first)
    assert (run["state"], run["result"]) == ("succeeded", "it is 42, and blue"), run["error"]
    assert len(provider.script.asked) == 2
    asked = json.dumps(provider.script.asked[-1])
    assert asked.count("in &lt;b&gt;blue&lt;/b&gt;, please</message>") == 1
    assert until_ended(lodging, later)["state"] == "cancelled"


def test_what_comes_too_late_for_a_turn_is_a_turn_of_the_same_run(lodging, agent, provider):  # noqa: F811
    provider.script.words = (Slow("the first"), Says("the second"))
    thread = in_thread(lodging, "--deliver-to", "log:", "--acknowledge")
    first = say(lodging, thread, "one")["reader"]
    assert provider.script.heard.wait(60.0)
    later = say(lodging, thread, "two")["reader"]
    until_told(lodging, agent, b"two")
    provider.script.released.set()
    run = until_ended(lodging, first)
    assert run["result"] == "the first\n\nthe second", run
    told = sorted((one["id"], one["body"]) for one in run["deliveries"])
    assert [body for _, body in told] == [told[0][1], "the first", "the second"]
    assert until_ended(lodging, later)["state"] == "cancelled"


def test_a_refusal_ends_a_steered_run_as_it_ends_any_other(lodging, provider):  # noqa: F811
    provider.script.words = (Refusal(401, "authentication_error", "invalid key"),)
    run = until_ended(lodging, say(lodging, in_thread(lodging), "one")["reader"])
    assert (run["state"], run["error_code"]) == ("failed", "authentication"), run


@pytest.mark.parametrize("agent", ["pi"], indirect=True)
def test_an_agent_that_tries_again_by_itself_is_let_do_so(lodging, provider):  # noqa: F811
    provider.script.words = (Refusal(529, "overloaded_error", "Overloaded"), Says("done"))
    run = until_ended(lodging, say(lodging, in_thread(lodging), "one")["reader"])
    assert (run["state"], run["result"]) == ("succeeded", "done"), run
    assert not [event for event in run["events"] if event["name"] == "run.fault"]


@pytest.mark.parametrize("agent", ["pi"], indirect=True)
def test_a_session_goes_on_that_was_begun_by_a_run_that_was_told_more(lodging, provider):  # noqa: F811
    provider.script.words = (Says("the word is heron"), Says("again"))
    thread = in_thread(lodging)
    for text in ("one", "two"):
        run = until_ended(lodging, say(lodging, thread, text)["reader"])
        assert run["state"] == "succeeded", run
    assert "the word is heron" in json.dumps(provider.script.asked[-1])
