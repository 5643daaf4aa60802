"""Every agent keeps the contract of its port."""

import pytest

from rota.agents.claude.agent import ClaudeAgent
from rota.agents.codex.agent import CodexAgent
from rota.agents.command.agent import CommandAgent, ScriptAgent
from rota.agents.pi.agent import PiAgent
from rota.model.agents import AgentSpec
from rota.testing.agent_contract import AgentContract


@pytest.fixture(params=[ClaudeAgent, CodexAgent, CommandAgent, PiAgent, ScriptAgent])
def agent(request):
    return request.param()


@pytest.fixture
def spec(agent):
    program = ("prog",) if agent.capabilities.program else ()
    return AgentSpec(instructions="say hello", program=program)


class TestAgents(AgentContract):
    pass
