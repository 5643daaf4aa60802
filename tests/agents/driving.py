"""Runs a real agent in a plain process against the stub of its provider, and reads it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from rota.agents.claude.agent import ClaudeAgent
from rota.agents.codex.agent import CodexAgent
from rota.agents.pi.agent import PiAgent
from rota.model.agents import (
    AgentEvent,
    AgentInputClosed,
    AgentInputRequested,
    AgentResult,
    AgentSpec,
    ProcessExit,
    StopReason,
)
from rota.model.threads import MessageState, ThreadMessage
from rota.ports.agent import AgentWorkspace, McpServer
from tests.agents.programs import PROGRAMS
from tests.tools.providers import Provider

AGENTS = {agent.name: agent for agent in (ClaudeAgent(), CodexAgent(), PiAgent())}
PATIENCE = 60
KEY = "sk-stub-0123456789abcdef"
PROVIDER = """
model = "stub-model"
model_provider = "stub"
[model_providers.stub]
name = "stub"
base_url = "{url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


@dataclass
class Told:
    """What came of one run."""

    lines: list[bytes]
    said: list[AgentEvent]
    verdict: AgentResult
    end: ProcessExit
    argv: Sequence[str] = ()
    asked: list[dict[str, object]] = field(default_factory=list)


@dataclass
class Place:
    """The folders of an agent; two runs in one place share its sessions."""

    root: Path

    def room(
        self, agent: str, url: str, session: str | None, servers: Sequence[McpServer]
    ) -> AgentWorkspace:
        for name in ("home", "work", "attempt", "tmp"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        home = self.root / "home"
        self.settle(agent, home, url)
        return AgentWorkspace(
            folder=str(self.root / "attempt"),
            cwd=str(self.root / "work"),
            home=str(home),
            program=str(PROGRAMS[agent].executable),
            session=session,
            servers=tuple(servers),
            offered={
                "ANTHROPIC_BASE_URL": url,
                "ANTHROPIC_API_KEY": KEY,
                "CLAUDE_CODE_MAX_RETRIES": "1",
                "OPENAI_API_KEY": KEY,
                "TMPDIR": str(self.root / "tmp"),
            },
            isolated=True,
        )

    def settle(self, agent: str, home: Path, url: str) -> None:
        """Tell an agent of the stub, where its environment cannot."""
        if agent == "codex":
            (home / ".codex").mkdir(exist_ok=True)
            (home / ".codex" / "config.toml").write_text(PROVIDER.format(url=url))
        if agent == "pi":
            stub = {
                "baseUrl": f"{url}/v1",
                "api": "openai-completions",
                "apiKey": "OPENAI_API_KEY",
                "models": [{"id": "stub-model"}],
            }
            (home / ".pi" / "agent").mkdir(parents=True, exist_ok=True)
            models = home / ".pi" / "agent" / "models.json"
            models.write_text(json.dumps({"providers": {"stub": stub}}))


def drive(
    agent: str,
    place: Place,
    provider: Provider,
    wish: AgentSpec,
    *,
    session: str | None = None,
    servers: Sequence[McpServer] = (),
    stop_when_asked: bool = False,
    more: str = "",
) -> Told:
    """Run one attempt to its end, or until its first request when it shall be stopped then.

    If there is more to say, it is said while the agent waits for its first answer.
    """
    known = AGENTS[agent]
    room = place.room(agent, provider.url, session, servers)
    room = replace(room, steered=bool(more))
    prepared = known.prepare(wish, room)
    for file in prepared.files:
        (Path(room.folder) / file.name).write_bytes(file.content)
    command = prepared.command
    assert not any(KEY in word for word in command.argv)
    process = subprocess.Popen(
        command.argv,
        env=dict(command.env),
        cwd=command.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        if stop_when_asked:
            process.stdin.write(command.stdin)
            process.stdin.close()
            process.stdin = None
            assert provider.script.heard.wait(PATIENCE)
            end_all(process)
            out, err = process.communicate(timeout=PATIENCE)
        elif more:
            out, err = told_more(process, command.stdin, known, provider, more)
        else:
            out, err = process.communicate(command.stdin, timeout=PATIENCE)
    finally:
        end_all(process)
        process.communicate()
    end = exit_of(
        process.returncode, err, stopped=StopReason.CANCELLED if stop_when_asked else None
    )
    told = read(agent, out.splitlines(), end, wish, resumed=session)
    told.argv, told.asked = command.argv, provider.script.asked
    return told


def told_more(process, stdin, agent, provider, more):
    """Tell a steered agent more during its first request, and whatever it wants, until it is over.

    Both streams are read here as they come; it says little enough to fit a pipe.
    """
    reader, lines = agent.reader(AgentSpec(), AgentWorkspace(folder="/", cwd="/", home="/")), []
    process.stdin.write(stdin)
    process.stdin.flush()
    assert provider.script.heard.wait(PATIENCE)
    process.stdin.write(agent.line(said(more)))
    process.stdin.flush()
    over = False
    while not over and (line := process.stdout.readline()):
        lines.append(line)
        if b"queue_update" in line:
            provider.script.released.set()
        for one in reader.feed(line):
            over = over or isinstance(one, AgentInputClosed)
            if isinstance(one, AgentInputRequested):
                process.stdin.write(one.line.encode())
                process.stdin.flush()
    out, err = process.communicate(timeout=PATIENCE)
    return b"".join(lines) + out, err


def said(text: str) -> ThreadMessage:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    return ThreadMessage(
        id=171, thread="cli:default", sender="ann", body=text, at=at,
        state=MessageState.PENDING, reader_run_id=9, run_id=None, epoch=None, read_at=None,
    )  # fmt: skip


def end_all(process: subprocess.Popen[bytes]) -> None:
    """End a process and everything of its session, for some agents are two programs."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def exit_of(code: int, stderr: bytes, *, stopped: StopReason | None) -> ProcessExit:
    if code < 0:
        return ProcessExit(signal=-code, stderr_tail=stderr[-2000:], stopped=stopped)
    return ProcessExit(code=code, stderr_tail=stderr[-2000:], stopped=stopped)


def read(
    agent: str, lines: list[bytes], end: ProcessExit, wish: AgentSpec, *, resumed: str | None
) -> Told:
    """Read lines that were printed."""
    reader = AGENTS[agent].reader(
        wish, AgentWorkspace(folder="/", cwd="/", home="/", session=resumed)
    )
    said = [one for line in lines for one in reader.feed(line)]
    return Told(lines, said, reader.end(end), end)
