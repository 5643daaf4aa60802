"""What every agent must do, whatever its program is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rota.errors import Invalid
from rota.model.agents import AgentErrorKind, AgentSpec, ProcessExit, SessionMode, StopReason
from rota.model.attempts import Cancelled, Failed, Succeeded
from rota.ports.agent import Agent, AgentWorkspace

SECRET_NAMES = ("ROTA_DATABASE", "GITHUB_TOKEN", "LD_PRELOAD", "NODE_OPTIONS", "PYTHONPATH")
WORK = AgentWorkspace(
    folder="/attempt",
    cwd="/work",
    home="/home/agent",
    offered=dict.fromkeys(SECRET_NAMES, "not for agents"),
    ids={"ROTA_RUN_ID": "7"},
)
RUBBISH = (
    b"",
    b"\xff\xfe\x00",
    b"{",
    b"null",
    b"[" * 50_000,
    b'{"type": 1}',
    b'{"type": "result", "usage": [], "is_error": "no"}',
    json.dumps({"type": "assistant", "message": "\ud800"}).encode(),
)


class AgentContract:
    """For an `agent`, and a `spec` that it can work on."""

    def test_what_is_run_is_decided_by_the_spec_and_the_workspace_alone(
        self, agent: Agent, spec: AgentSpec
    ) -> None:
        assert agent.prepare(spec, WORK) == agent.prepare(spec, WORK)

    def test_the_environment_is_chosen_by_name(self, agent: Agent, spec: AgentSpec) -> None:
        env = agent.prepare(spec, WORK).command.env
        assert not set(SECRET_NAMES) & set(env)
        assert not set(SECRET_NAMES) & agent.capabilities.variables
        assert (env["HOME"], env["ROTA_RUN_ID"]) == ("/home/agent", "7")
        assert env["PATH"]

    def test_no_key_is_among_the_words(self, agent: Agent, spec: AgentSpec) -> None:
        offered = dict.fromkeys(agent.capabilities.variables, "a-key")
        command = agent.prepare(spec, replace(WORK, offered=offered)).command
        assert not any("a-key" in word for word in command.argv)
        assert offered.items() <= command.env.items()

    def test_the_instructions_arrive(self, agent: Agent, spec: AgentSpec) -> None:
        command = agent.prepare(replace(spec, instructions="weigh the hérons"), WORK).command
        assert command.stdin == "weigh the hérons".encode()
        assert command.cwd == "/work"

    def test_no_instructions_are_refused(self, agent: Agent, spec: AgentSpec) -> None:
        with pytest.raises(Invalid, match="instructions"):
            agent.check(replace(spec, instructions=""))

    def test_what_is_not_among_its_abilities_is_refused(
        self, agent: Agent, spec: AgentSpec
    ) -> None:
        able = agent.capabilities
        thinking = (*able.thinking, "high")[0]
        mode = (*able.permission_modes, "plan")[0]
        wanted = {
            "model": (replace(spec, model="some-model"), able.models),
            "fallback_models": (replace(spec, fallback_models=("x",)), able.fallback_models),
            "tools": (replace(spec, tools=("some_tool",)), able.tools),
            "denied_tools": (replace(spec, denied_tools=("some_tool",)), able.denied_tools),
            "max_turns": (replace(spec, max_turns=3), able.max_turns),
            "session": (replace(spec, session=SessionMode.SHARED), able.resume),
            "thinking": (replace(spec, thinking=thinking), bool(able.thinking)),
            "permission_mode": (replace(spec, permission_mode=mode), bool(able.permission_modes)),
        }
        for field, (changed, can) in wanted.items():
            if can:
                agent.check(changed)
                continue
            with pytest.raises(Invalid) as refused:
                agent.check(changed)
            assert refused.value.field == field

    def test_rubbish_raises_nothing(self, agent: Agent, spec: AgentSpec) -> None:
        reader = agent.reader(spec, WORK)
        for line in RUBBISH:
            reader.feed(line)
            reader.feed(line, cut=True)
        assert reader.end(ProcessExit(code=1)).error is not None

    def test_what_is_said_depends_on_the_lines_alone(self, agent: Agent, spec: AgentSpec) -> None:
        first, second = agent.reader(spec, WORK), agent.reader(spec, WORK)
        assert [first.feed(line) for line in RUBBISH] == [second.feed(line) for line in RUBBISH]
        assert first.end(ProcessExit(code=0)) == second.end(ProcessExit(code=0))

    def test_no_bad_end_is_a_success(self, agent: Agent, spec: AgentSpec) -> None:
        for end in (
            ProcessExit(code=1),
            ProcessExit(code=127),
            ProcessExit(signal=15),
            ProcessExit(signal=9),
            ProcessExit(),
        ):
            result = agent.reader(spec, WORK).end(end)
            assert isinstance(result.outcome, Failed)
            assert result.outcome.code == result.error

    def test_a_kill_by_somebody_else_is_out_of_memory(self, agent: Agent, spec: AgentSpec) -> None:
        result = agent.reader(spec, WORK).end(ProcessExit(code=137))
        assert result.error is AgentErrorKind.OUT_OF_MEMORY
        assert isinstance(result.outcome, Failed)
        assert not result.outcome.retryable

    def test_a_stop_is_what_it_was_for(self, agent: Agent, spec: AgentSpec) -> None:
        cancelled = agent.reader(spec, WORK).end(ProcessExit(code=0, stopped=StopReason.CANCELLED))
        late = agent.reader(spec, WORK).end(ProcessExit(signal=9, stopped=StopReason.TIMEOUT))
        assert isinstance(cancelled.outcome, Cancelled)
        assert late.error is AgentErrorKind.TIMEOUT
        assert not isinstance(late.outcome, Succeeded)
