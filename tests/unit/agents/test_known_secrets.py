"""A known secret is found by its value before its shape, and before a part of a text is taken."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rota.agents.claude.agent import ClaudeAgent
from rota.agents.codex.agent import CodexAgent
from rota.agents.command.agent import CommandAgent, ScriptAgent
from rota.agents.pi.agent import PiAgent
from rota.agents.shared.stream import MAX_DETAIL, MAX_SUMMARY, MAX_TEXT
from rota.model.agents import AgentSpec, ProcessExit
from rota.ports.agent import AgentWorkspace
from rota.rules.redaction import Redactor

SECRET = "sk-ant-api03-AbCdEfGhIjKl+/=42~tail%of:it"  # noqa: S105
MARK = "[secret anthropic]"
TAIL = "+/=42"
ROOM = AgentWorkspace(
    folder="/f", cwd="/w", home="/h", program="p", redactor=Redactor({"anthropic": SECRET})
)
AGENTS = (ClaudeAgent(), CodexAgent(), PiAgent(), CommandAgent(), ScriptAgent())
LEAKS = [SECRET[:12], SECRET[-8:], TAIL]


def told(agent, *records, end=None, room=ROOM):
    """Return all that a reader says of a stream, and what it came to."""
    reader = agent.reader(AgentSpec(), room)
    said = []
    for record in records:
        line = record if isinstance(record, bytes) else json.dumps(record).encode()
        said += reader.feed(line + b"\n")
    return repr(said), repr(reader.end(end or ProcessExit(code=0)))


def tool(words):
    block = {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": words}}
    return {"type": "assistant", "message": {"id": "m", "content": [block]}}


@pytest.mark.parametrize(
    ("agent", "records"),
    [
        (ClaudeAgent(), [tool(f"curl -H {SECRET}")]),
        (ClaudeAgent(), [tool("x" * (MAX_SUMMARY - 20) + SECRET)]),
        (ClaudeAgent(), [{"type": "result", "is_error": True, "result": f"bad key {SECRET}"}]),
        (CodexAgent(), [{"type": "error", "message": f"bad key {SECRET}"}]),
        (CodexAgent(), [{"type": "item.completed", "item": {"type": "error", "message": SECRET}}]),
        (PiAgent(), [{"type": "auto_retry_end", "success": False, "finalError": SECRET}]),
        (CommandAgent(), [{"rota": "error", "message": f"no: {SECRET}"}]),
        (CommandAgent(), [{"rota": "progress", "message": f"with {SECRET}"}]),
        (CommandAgent(), [{"rota": "error", "message": "x" * (MAX_DETAIL - 20) + SECRET}]),
        (ScriptAgent(), [("x" * (MAX_TEXT - 20) + SECRET).encode()]),
        (ScriptAgent(), [f"the key is {SECRET!r}".encode()]),
    ],
)  # fmt: skip
def test_no_part_of_a_key_is_left_in_errors_and_progress(agent, records):
    words = "".join(told(agent, *records))
    assert MARK in words or "[secret" in words
    assert not [leak for leak in LEAKS if leak in words]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
@pytest.mark.parametrize("before", [0, 5, 20, MAX_DETAIL - 20, MAX_DETAIL + 20])
def test_no_part_of_a_key_is_left_in_the_standard_error(agent, before):
    behind = b"y" * (MAX_DETAIL - 10 if before == 5 else 3)
    tail = b"x" * before + b" " + SECRET.encode() + b" " + behind
    _, verdict = told(agent, end=ProcessExit(code=1, stderr_tail=tail))
    assert not [leak for leak in LEAKS if leak in verdict]


def test_a_line_that_is_no_json_is_told_without_a_key():
    _, verdict = told(ClaudeAgent(), f"cannot log in: {SECRET}".encode(), end=ProcessExit(code=1))
    assert MARK in verdict
    assert not [leak for leak in LEAKS if leak in verdict]


def test_a_number_that_is_a_secret_leaves_a_line_what_it_is():
    room = replace(ROOM, redactor=Redactor({"pin": "20261116"}))
    record = {"rota": "usage", "input_tokens": 20261116, "model": "m"}
    said, _ = told(CommandAgent(), record, room=room)
    assert "input=20261116" in said


@pytest.mark.parametrize(
    "key",
    [
        "sk-ant-api03-AbCdEfGhIjKl+/=42~tail",
        "ghp_0123456789abcdefghij",
        "Bearer abcdefgh+/=.~12",
        "xoxb-1234567890-abc/def+gh==",
    ],
)
def test_what_only_looks_like_a_key_leaves_no_tail_either(key):
    said, _ = told(CommandAgent(), {"rota": "progress", "message": f"with {key}, and more"})
    assert "with [secret], and more" in said
