"""Claude Code: its arguments, environment and tool servers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rota.agents.claude.reader import ClaudeReader, message_of, name_of
from rota.agents.shared import capabilities
from rota.agents.shared.capabilities import environment
from rota.agents.shared.stream import parse
from rota.model.agents import AgentSpec
from rota.model.programs import Program
from rota.model.threads import ThreadMessage
from rota.ports.agent import (
    DESK,
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
FIXED = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_ENABLE_TODO_TOOLS": "1",  # else it never tells how far it is
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

    The tool servers are those Rota names and no others. Of the environment it never sees the names
    that choose a model: the task does that.
    """

    name = "claude"
    abilities = AgentCapabilities(
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

    def check(self, wish: AgentSpec) -> None:
        """Refuse what Claude Code cannot do."""
        capabilities.check(self.name, self.abilities, wish)

    def prepare(self, wish: AgentSpec, room: AgentWorkspace) -> PreparedProgram:
        """Return the program and the list of its tool servers."""
        self.check(wish)
        capabilities.check_room(self.name, self.abilities, room)
        fixed = dict(FIXED)
        if room.servers:
            fixed["ENABLE_TOOL_SEARCH"] = "false"  # else their tools are not in the request
        if "TodoWrite" in (wish.tools or ()):
            fixed["CLAUDE_CODE_ENABLE_TASKS"] = "0"  # which would take its place
        if room.isolated:
            fixed["IS_SANDBOX"] = "1"  # else root may not bypass permissions
        command = Program(
            argv=tuple(_words(wish, room)),
            env=environment(room, VARIABLES, fixed),
            cwd=room.cwd,
            stdin=_input(wish.instructions, room),
            keep_stdin_open=room.steered,
        )
        files = (
            (WorkspaceFile(name=SERVERS, content=_servers(room.servers)),) if room.servers else ()
        )
        return PreparedProgram(command=command, files=files)

    def reader(self, _wish: AgentSpec, room: AgentWorkspace, /) -> ClaudeReader:
        """Return a reader of its stream."""
        return ClaudeReader(room.redactor, resumed=room.session is not None)

    def steers(self, _wish: AgentSpec, /) -> bool:
        """Return that it takes messages while it works."""
        return True

    def line(self, message: ThreadMessage, files: str | None = None) -> bytes:
        """Return a message as a line of its input, escaped as in a prompt."""
        return _line(sender_line(message, files), name_of(message.id))

    def message_in(self, line: bytes) -> int | None:
        """Return the id of the message that a line of its input is."""
        return message_of(parse(line) or {})


PLUGIN = AgentPlugin(make=lambda _settings: ClaudeAgent(), default=True, settings=AgentSettings)


def _input(prompt: str, room: AgentWorkspace) -> bytes:
    return _line(prompt) if room.steered else prompt.encode("utf-8", "replace")


def _line(text: str, name: str | None = None) -> bytes:
    told = {"type": "user", "message": {"role": "user", "content": text}}
    named = {} if name is None else {"uuid": name}
    return json.dumps({**told, **named}).encode() + b"\n"


def _words(wish: AgentSpec, room: AgentWorkspace) -> Iterator[str]:
    yield from (room.program or "claude", "-p", "--output-format", "stream-json", "--verbose")
    if room.steered:
        yield from ("--input-format", "stream-json", "--replay-user-messages")
    if room.mailbox is not None:  # what people send may be read without asking anybody
        yield from ("--add-dir", files_in(room.mailbox))
    yield "--strict-mcp-config"
    if room.servers:
        yield from ("--mcp-config", f"{room.folder}/{SERVERS}")
    choices = {
        "--resume": room.session,
        "--model": wish.model,
        "--fallback-model": ",".join(wish.fallback_models),
        "--effort": wish.thinking,
        "--permission-mode": wish.permission_mode,
        "--max-turns": wish.max_turns,
    }
    for flag, choice in choices.items():
        if choice:
            yield from (flag, str(choice))
    if wish.tools is not None:
        yield from ("--tools", ",".join(_own_tools(wish.tools)))
    allowed = wish.tools or (_of_desk(room) if wish.tools is None else ())
    if allowed:
        yield from ("--allowedTools", *allowed)
    if wish.denied_tools:
        yield from ("--disallowedTools", *wish.denied_tools)


def _of_desk(room: AgentWorkspace) -> Sequence[str]:
    """Return the tools that ask nobody: the desk sees to it by itself who may do what."""
    return [f"mcp__{DESK}"] if any(server.name == DESK for server in room.servers) else []


def _own_tools(tools: Sequence[str]) -> Sequence[str]:
    """Return the tools that are Claude Code's own, by their bare names, each once."""
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
