"""The coding agent pi: its arguments and environment."""

from __future__ import annotations

from collections.abc import Iterator

from rota.agents.pi import reader as pi_reader
from rota.agents.shared import capabilities
from rota.agents.shared.capabilities import environment
from rota.model.agents import AgentSpec
from rota.model.programs import Program
from rota.model.threads import ThreadMessage
from rota.ports.agent import (
    AgentCapabilities,
    AgentPlugin,
    AgentSettings,
    AgentWorkspace,
    PreparedProgram,
    WorkspaceFile,
)

FIXED = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
VARIABLES = frozenset(
    {
        "ANTHROPIC_API_KEY", "ANTHROPIC_OAUTH_TOKEN", "AZURE_OPENAI_API_KEY",
        "AZURE_OPENAI_BASE_URL", "CEREBRAS_API_KEY", "DEEPSEEK_API_KEY", "FIREWORKS_API_KEY",
        "GEMINI_API_KEY", "GROQ_API_KEY", "KIMI_API_KEY", "MINIMAX_API_KEY", "MISTRAL_API_KEY",
        "MOONSHOT_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "XAI_API_KEY", "ZAI_API_KEY",
        "AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
        "AWS_BEARER_TOKEN_BEDROCK", "PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR",
    }
)  # fmt: skip


class PiAgent:
    """Runs pi without a terminal; a model is written `provider/name`."""

    name = "pi"
    abilities = AgentCapabilities(
        models=True,
        tools=True,
        thinking=("off", "minimal", "low", "medium", "high", "xhigh"),
        resume=True,
        envelope=True,
        variables=VARIABLES,
        requires=("pi",),
    )

    def check(self, wish: AgentSpec) -> None:
        """Refuse what pi cannot do."""
        capabilities.check(self.name, self.abilities, wish)

    def prepare(self, wish: AgentSpec, room: AgentWorkspace) -> PreparedProgram:
        """Return the program, and the tool by which it keeps a list of its work."""
        self.check(wish)
        capabilities.check_room(self.name, self.abilities, room)
        command = Program(
            argv=tuple(_words(wish, room)),
            env=environment(room, VARIABLES, FIXED),
            cwd=room.cwd,
            stdin=_input(wish.instructions, room),
            keep_stdin_open=room.steered,
        )
        listing = WorkspaceFile(name=pi_reader.EXTENSION, content=pi_reader.extension())
        return PreparedProgram(command=command, files=(listing,) if _keeps_todos(wish) else ())

    def reader(self, _wish: AgentSpec, room: AgentWorkspace, /) -> pi_reader.PiRpcReader:
        """Return a reader of its stream."""
        return pi_reader.PiRpcReader(room.redactor)

    def steers(self, _wish: AgentSpec, /) -> bool:
        """Return that it takes messages while it works."""
        return True

    def line(self, message: ThreadMessage, files: str | None = None) -> bytes:
        """Return a message as a line of its input."""
        return pi_reader.line(message, files)

    def message_in(self, line: bytes) -> int | None:
        """Return the id of the message that a line of its input is."""
        return pi_reader.message_in(line)


PLUGIN = AgentPlugin(make=lambda _settings: PiAgent(), settings=AgentSettings)


def _input(prompt: str, room: AgentWorkspace) -> bytes:
    return pi_reader.opening(prompt) if room.steered else prompt.encode("utf-8", "replace")


def _words(wish: AgentSpec, room: AgentWorkspace) -> Iterator[str]:
    yield room.program or "pi"
    yield from ("--mode", "rpc") if room.steered else ("--mode", "json", "--print")
    if room.session:
        yield from ("--session", room.session)
    if wish.model:
        yield from ("--model", wish.model)
    if wish.thinking:
        yield from ("--thinking", wish.thinking)
    if _keeps_todos(wish):
        yield from ("--extension", f"{room.folder}/{pi_reader.EXTENSION}")
    if wish.tools:
        yield from ("--tools", ",".join(wish.tools))
    elif wish.tools is not None:
        yield "--no-tools"


def _keeps_todos(wish: AgentSpec) -> bool:
    return wish.tools is None or pi_reader.TOOL in wish.tools
