"""The real Claude Code, Codex and pi, in a plain process, against a stub of their providers."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rota.model.agents import (
    AgentErrorKind,
    AgentProgress,
    AgentSessionStarted,
    AgentText,
    AgentToolCall,
)
from rota.model.attempts import Cancelled, Failed, Succeeded, WaitingForAnswer
from rota.ports.agent import McpServer
from tests.agents.cases import TOOLS, WISHES, cases
from tests.agents.driving import Place, drive
from tests.agents.programs import PROGRAMS
from tests.agents.tool_server import serving
from tests.tools.providers import TOKENS_IN, TOKENS_OUT, Provider, Slow, Tool
from tests.tools.providers import Text as Says

pytestmark = pytest.mark.agents
SERVER = Path(__file__).parent / "tool_server.py"
WORD = "only-the-server-knows"


@pytest.fixture(params=TOOLS)
def agent(request):
    return installed(request.param)


def installed(name):
    if not PROGRAMS[name].here:
        pytest.skip(f"{name} could not be downloaded; see the list above")
    return name


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def percents(told):
    shares = (said.percent for said in told.said if isinstance(said, AgentProgress))
    return tuple(share for share in shares if share is not None)


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.agent}-{case.name}")
def test_what_the_provider_answers_is_what_is_read(case, place):
    with Provider(*case.script) as provider:
        words = {"session": case.session, "more": case.more}
        told = drive(installed(case.agent), place, provider, case.wish, **words)
    assert told.verdict.error is case.error, told.verdict
    assert sum(isinstance(said, AgentToolCall) for said in told.said) == case.tools
    assert percents(told) == case.percents
    if case.text:
        assert told.verdict.text == case.text
        spoken = [said.text for said in told.said if isinstance(said, AgentText)]
        assert "\n\n".join(spoken) == case.text
        assert isinstance(told.verdict.outcome, Succeeded)
    if case.name == "question":
        assert told.verdict.outcome == WaitingForAnswer(
            question="Which colour?", context="I need to know.", options=("red", "blue")
        )
    if case.error:
        assert isinstance(told.verdict.outcome, Failed)
        assert told.verdict.outcome.retryable is case.error.retry


def test_tokens_are_counted_once(agent, place):
    with Provider(TOOLS[agent], Says("done")) as provider:
        told = drive(agent, place, provider, WISHES[agent])
    assert (told.verdict.usage.input, told.verdict.usage.output) == (2 * TOKENS_IN, 2 * TOKENS_OUT)
    assert (told.verdict.usage.cost is None) is (agent == "codex")


def test_a_session_is_resumed_with_what_was_said_in_it(agent, place):
    with Provider(Says("the word is heron")) as provider:
        first = drive(agent, place, provider, WISHES[agent])
    with Provider(Says("again")) as provider:
        second = drive(agent, place, provider, WISHES[agent], session=first.verdict.session)
    assert second.verdict.text == "again"
    assert second.verdict.session == first.verdict.session
    assert AgentSessionStarted(id=first.verdict.session) in second.said
    assert "the word is heron" in str(second.asked[0])
    used = second.verdict.usage
    turns = 2 if used.of_session else 1
    assert (used.input, used.output) == (turns * TOKENS_IN, turns * TOKENS_OUT)
    assert used.cost == first.verdict.usage.cost


def test_a_stopped_agent_is_cancelled_and_not_tried_again(agent, place):
    with Provider(Slow("never")) as provider:
        told = drive(agent, place, provider, WISHES[agent], stop_when_asked=True)
    assert isinstance(told.verdict.outcome, Cancelled)
    assert not told.verdict.transient
    assert told.verdict.error is AgentErrorKind.CANCELLED


CALLS = {
    "claude": Tool("mcp__rota__echo", {"text": "hi"}),
    "codex": Tool("echo", {"text": "hi"}, namespace="mcp__rota"),
}


@pytest.fixture(params=["program", "address"])
def tool_server(request):
    if request.param == "program":
        yield McpServer(
            name="rota", argv=(sys.executable, "-I", str(SERVER)), env={"ECHO_SECRET": WORD}
        )
        return
    with serving() as url:
        yield McpServer(name="rota", url=url, headers={"Authorization": f"Bearer {WORD}"})


@pytest.mark.parametrize("name", CALLS)
def test_a_tool_server_is_called_and_its_secret_is_in_no_command_line(name, tool_server, place):
    wish = WISHES[installed(name)]
    if name == "claude":
        wish = replace(wish, tools=("mcp__rota__echo",))
    with Provider(CALLS[name], Says("done")) as provider:
        told = drive(name, place, provider, wish, servers=[tool_server])
    assert told.verdict.text == "done", told.verdict
    assert f"hi {WORD}" in str(told.asked[-1])
    assert not any(WORD in word for word in told.argv)
    called = [said.name for said in told.said if isinstance(said, AgentToolCall)]
    assert called == [{"claude": "mcp__rota__echo", "codex": "rota.echo"}[name]]
