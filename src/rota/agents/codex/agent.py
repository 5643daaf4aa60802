"""Codex: its arguments, environment and MCP servers."""

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
"""Codex does not read this variable itself."""
VARIABLES = frozenset({"CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL"})


class CodexAgent:
    """Runs Codex without a terminal.

    MCP servers are configured by arguments; their secrets are passed in the environment.
    """

    name = "codex"
    capabilities = AgentCapabilities(
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

    def check(self, spec: AgentSpec) -> None:
        """Raise Invalid for what Codex does not support."""
        capabilities.check(self.name, self.capabilities, spec)

    def prepare(self, spec: AgentSpec, workspace: AgentWorkspace) -> PreparedProgram:
        """Return the program."""
        self.check(spec)
        capabilities.check_workspace(self.name, self.capabilities, workspace)
        secrets = {
            _variable(server, name): value
            for server in workspace.servers
            for name, value in server.headers.items()
        }
        inner = {name: value for server in workspace.servers for name, value in server.env.items()}
        command = Program(
            argv=tuple(_arguments_for(spec, workspace)),
            env=environment(workspace, VARIABLES, {**inner, **secrets}),
            cwd=workspace.cwd,
            stdin=spec.instructions.encode("utf-8", "replace"),
        )
        return PreparedProgram(command=command)

    def reader(self, _spec: AgentSpec, workspace: AgentWorkspace, /) -> CodexReader:
        """Return a reader of its JSON events."""
        return CodexReader(
            workspace.redactor, resumed=workspace.session is not None, used=workspace.used
        )


PLUGIN = AgentPlugin(make=lambda _settings: CodexAgent(), settings=AgentSettings)


def _arguments_for(spec: AgentSpec, workspace: AgentWorkspace) -> Iterator[str]:
    yield from (workspace.program or "codex", "exec", "--json", "--skip-git-repo-check")
    yield from ("--color", "never")
    yield from ("-c", "tools.update_plan.enabled=true")  # needed for progress
    if spec.model:
        yield from ("--model", spec.model)
    if spec.permission_mode:
        yield from ("--sandbox", spec.permission_mode)
    if BASE_URL in workspace.ids:
        yield from ("-c", f"openai_base_url={_toml(workspace.ids[BASE_URL])}")
    if spec.thinking:
        yield from ("-c", f"model_reasoning_effort={_toml(spec.thinking)}")
    for server in workspace.servers:
        for key, value in _settings(server):
            yield from ("-c", f"mcp_servers.{server.name}.{key}={value}")
    if workspace.session:
        yield from ("resume", workspace.session)
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
