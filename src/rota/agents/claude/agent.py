"""Claude Code: its arguments, environment and MCP servers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rota.agents.claude.reader import ClaudeReader, message_id_in, message_uuid
from rota.agents.shared import capabilities
from rota.agents.shared.capabilities import environment
from rota.agents.shared.stream import parse
from rota.model.agents import AgentSpec
from rota.model.programs import Program
from rota.model.threads import ThreadMessage
from rota.ports.agent import (
    AGENT_API_SERVER,
    AgentCapabilities,
    AgentPlugin,
    AgentSettings,
    AgentWorkspace,
    McpServer,
    PreparedProgram,
    WorkspaceFile,
)
from rota.ports.mailbox import files_in
from rota.rules.prompts import sender_line

SERVERS = "mcp.json"
FIXED_VARIABLES = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_ENABLE_TODO_TOOLS": "1",  # needed for progress
    "DISABLE_AUTOUPDATER": "1",
}
VARIABLES = frozenset(
    {
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL",
        "ANTHROPIC_CUSTOM_HEADERS", "API_TIMEOUT_MS", "CLAUDE_CODE_MAX_RETRIES",
        "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR",
        "CLAUDE_CODE_USE_BEDROCK", "AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK",
        "CLAUDE_CODE_USE_VERTEX", "CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID",
        "GOOGLE_APPLICATION_CREDENTIALS",
    }
)  # fmt: skip


class ClaudeAgent:
    """Runs Claude Code without a terminal.

    It uses only the MCP servers that Rota configures. Environment variables that choose a model are
    not passed on: the task chooses it.
    """

    name = "claude"
    capabilities = AgentCapabilities(
        models=True,
        fallback_models=True,
        tools=True,
        denied_tools=True,
        thinking=("low", "medium", "high", "xhigh", "max"),
        permission_modes=("acceptEdits", "auto", "bypassPermissions", "dontAsk", "manual", "plan"),
        max_turns=True,
        resume=True,
        envelope=True,
        mcp=True,
        variables=VARIABLES,
        requires=("claude",),
    )

    def check(self, spec: AgentSpec) -> None:
        """Raise Invalid for what Claude Code does not support."""
        capabilities.check(self.name, self.capabilities, spec)

    def prepare(self, spec: AgentSpec, workspace: AgentWorkspace) -> PreparedProgram:
        """Return the program with the configuration of its MCP servers."""
        self.check(spec)
        capabilities.check_workspace(self.name, self.capabilities, workspace)
        fixed = dict(FIXED_VARIABLES)
        if workspace.servers:
            fixed["ENABLE_TOOL_SEARCH"] = "false"  # otherwise their tools are missing in requests
        if "TodoWrite" in (spec.tools or ()):
            fixed["CLAUDE_CODE_ENABLE_TASKS"] = "0"  # tasks would replace TodoWrite
        if workspace.isolated:
            fixed["IS_SANDBOX"] = "1"  # needed to bypass permissions as root
        command = Program(
            argv=tuple(_arguments(spec, workspace)),
            env=environment(workspace, VARIABLES, fixed),
            cwd=workspace.cwd,
            stdin=_input(spec.instructions, workspace),
            keep_stdin_open=workspace.steered,
        )
        files = (
            (WorkspaceFile(name=SERVERS, content=_servers(workspace.servers)),)
            if workspace.servers
            else ()
        )
        return PreparedProgram(command=command, files=files)

    def reader(self, _spec: AgentSpec, workspace: AgentWorkspace, /) -> ClaudeReader:
        """Return a reader of its stream-json output."""
        return ClaudeReader(workspace.redactor, resumed=workspace.session is not None)

    def accepts_messages(self, _spec: AgentSpec, /) -> bool:
        """Whether it accepts messages while it works: always."""
        return True

    def message_line(self, message: ThreadMessage, files: str | None = None) -> bytes:
        """Return a message as a line of its input, escaped as in a prompt."""
        return _line(sender_line(message, files), message_uuid(message.id))

    def message_in(self, line: bytes) -> int | None:
        """Return the id of the message in a line of its input."""
        return message_id_in(parse(line) or {})


PLUGIN = AgentPlugin(make=lambda _settings: ClaudeAgent(), default=True, settings=AgentSettings)


def _input(prompt: str, workspace: AgentWorkspace) -> bytes:
    return _line(prompt) if workspace.steered else prompt.encode("utf-8", "replace")


def _line(text: str, name: str | None = None) -> bytes:
    told = {"type": "user", "message": {"role": "user", "content": text}}
    named = {} if name is None else {"uuid": name}
    return json.dumps({**told, **named}).encode() + b"\n"


def _arguments(spec: AgentSpec, workspace: AgentWorkspace) -> Iterator[str]:
    yield from (workspace.program or "claude", "-p", "--output-format", "stream-json", "--verbose")
    if workspace.steered:
        yield from ("--input-format", "stream-json", "--replay-user-messages")
    if workspace.mailbox is not None:  # allows it to read the files of messages
        yield from ("--add-dir", files_in(workspace.mailbox))
    yield "--strict-mcp-config"
    if workspace.servers:
        yield from ("--mcp-config", f"{workspace.folder}/{SERVERS}")
    choices = {
        "--resume": workspace.session,
        "--model": spec.model,
        "--fallback-model": ",".join(spec.fallback_models),
        "--effort": spec.thinking,
        "--permission-mode": spec.permission_mode,
        "--max-turns": spec.max_turns,
    }
    for flag, choice in choices.items():
        if choice:
            yield from (flag, str(choice))
    if spec.tools is not None:
        yield from ("--tools", ",".join(_own_tools(spec.tools)))
    allowed = spec.tools or (_agent_api_tools(workspace) if spec.tools is None else ())
    if allowed:
        yield from ("--allowedTools", *allowed)
    if spec.denied_tools:
        yield from ("--disallowedTools", *spec.denied_tools)


def _agent_api_tools(workspace: AgentWorkspace) -> Sequence[str]:
    """Return tools that need no confirmation: the agent API checks permissions itself."""
    return (
        [f"mcp__{AGENT_API_SERVER}"]
        if any(server.name == AGENT_API_SERVER for server in workspace.servers)
        else []
    )


def _own_tools(tools: Sequence[str]) -> Sequence[str]:
    """Return Claude Code's own tools by their bare names, without duplicates."""
    bare = (tool.partition("(")[0].strip() for tool in tools if not tool.startswith("mcp__"))
    return tuple(dict.fromkeys(bare))


def _servers(servers: Sequence[McpServer]) -> bytes:
    listed: dict[str, object] = {}
    for server in servers:
        if server.url is not None:
            listed[server.name] = {
                "type": "http",
                "url": server.url,
                "headers": dict(server.headers),
            }
        else:
            listed[server.name] = {
                "type": "stdio",
                "command": server.argv[0],
                "args": list(server.argv[1:]),
                "env": dict(server.env),
            }
    return json.dumps({"mcpServers": listed}, indent=1).encode()
