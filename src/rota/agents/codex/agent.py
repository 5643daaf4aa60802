"""Codex: its arguments, environment and tool servers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from rota.agents.codex.reader import CodexReader
from rota.agents.shared import capabilities
from rota.agents.shared.capabilities import environment
from rota.model.agents import AgentSpec
from rota.model.programs import Program
from rota.ports.agent import (
    AgentCapabilities,
    AgentPlugin,
    AgentSettings,
    AgentWorkspace,
    McpServer,
    PreparedProgram,
)

BASE_URL = "OPENAI_BASE_URL"
"""Codex does not look there itself."""
VARIABLES = frozenset({"CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL"})


class CodexAgent:
    """Runs Codex without a terminal.

    Its tool servers are told in its words; the secrets they need go by the environment.
    """

    name = "codex"
    abilities = AgentCapabilities(
        models=True,
        thinking=("none", "minimal", "low", "medium", "high", "xhigh"),
        permission_modes=("read-only", "workspace-write", "danger-full-access"),
        resume=True,
        money=False,
        envelope=True,
        mcp=True,
        variables=VARIABLES,
        requires=("codex",),
    )

    def check(self, wish: AgentSpec) -> None:
        """Refuse what Codex cannot do."""
        capabilities.check(self.name, self.abilities, wish)

    def prepare(self, wish: AgentSpec, room: AgentWorkspace) -> PreparedProgram:
        """Return the program."""
        self.check(wish)
        capabilities.check_room(self.name, self.abilities, room)
        secrets = {
            _variable(server, name): value
            for server in room.servers
            for name, value in server.headers.items()
        }
        inner = {name: value for server in room.servers for name, value in server.env.items()}
        command = Program(
            argv=tuple(_words(wish, room)),
            env=environment(room, VARIABLES, {**inner, **secrets}),
            cwd=room.cwd,
            stdin=wish.instructions.encode("utf-8", "replace"),
        )
        return PreparedProgram(command=command)

    def reader(self, _wish: AgentSpec, room: AgentWorkspace, /) -> CodexReader:
        """Return a reader of its stream."""
        return CodexReader(room.redactor, resumed=room.session is not None, used=room.used)


PLUGIN = AgentPlugin(make=lambda _settings: CodexAgent(), settings=AgentSettings)


def _words(wish: AgentSpec, room: AgentWorkspace) -> Iterator[str]:
    yield from (room.program or "codex", "exec", "--json", "--skip-git-repo-check")
    yield from ("--color", "never")
    yield from ("-c", "tools.update_plan.enabled=true")  # else it never tells how far it is
    if wish.model:
        yield from ("--model", wish.model)
    if wish.permission_mode:
        yield from ("--sandbox", wish.permission_mode)
    if BASE_URL in room.ids:
        yield from ("-c", f"openai_base_url={_toml(room.ids[BASE_URL])}")
    if wish.thinking:
        yield from ("-c", f"model_reasoning_effort={_toml(wish.thinking)}")
    for server in room.servers:
        for key, value in _settings(server):
            yield from ("-c", f"mcp_servers.{server.name}.{key}={value}")
    if room.session:
        yield from ("resume", room.session)
    yield "-"


def _settings(server: McpServer) -> Iterator[tuple[str, str]]:
    if server.url is not None:
        yield "url", _toml(server.url)
        headers = (f"{_toml(name)}={_toml(_variable(server, name))}" for name in server.headers)
        if listed := ",".join(headers):
            yield "env_http_headers", f"{{{listed}}}"
        return
    yield "command", _toml(server.argv[0])
    yield "args", f"[{','.join(map(_toml, server.argv[1:]))}]"
    if server.env:
        yield "env_vars", f"[{','.join(map(_toml, server.env))}]"


def _toml(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def _variable(server: McpServer, header: str) -> str:
    return re.sub(r"\W", "_", f"ROTA_MCP_{server.name}_{header}").upper()
