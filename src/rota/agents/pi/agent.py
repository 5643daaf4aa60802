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

FIXED_VARIABLES = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
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
    """Runs pi without a terminal; models are written `provider/name`."""

    name = "pi"
    capabilities = AgentCapabilities(
        models=True,
        tools=True,
        thinking=("off", "minimal", "low", "medium", "high", "xhigh"),
        resume=True,
        envelope=True,
        variables=VARIABLES,
        requires=("pi",),
    )

    def check(self, spec: AgentSpec) -> None:
        """Raise Invalid for what pi does not support."""
        capabilities.check(self.name, self.capabilities, spec)

    def prepare(self, spec: AgentSpec, workspace: AgentWorkspace) -> PreparedProgram:
        """Return the program, with an extension for its todo list."""
        self.check(spec)
        capabilities.check_workspace(self.name, self.capabilities, workspace)
        command = Program(
            argv=tuple(_arguments(spec, workspace)),
            env=environment(workspace, VARIABLES, FIXED_VARIABLES),
            cwd=workspace.cwd,
            stdin=_input(spec.instructions, workspace),
            keep_stdin_open=workspace.steered,
        )
        listing = WorkspaceFile(name=pi_reader.EXTENSION, content=pi_reader.extension())
        return PreparedProgram(command=command, files=(listing,) if _has_todo_tool(spec) else ())

    def reader(self, _spec: AgentSpec, workspace: AgentWorkspace, /) -> pi_reader.PiRpcReader:
        """Return a reader of its output."""
        return pi_reader.PiRpcReader(workspace.redactor)

    def accepts_messages(self, _spec: AgentSpec, /) -> bool:
        """Whether it accepts messages while it works: always."""
        return True

    def message_line(self, message: ThreadMessage, files: str | None = None) -> bytes:
        """Return a message as a line of its input."""
        return pi_reader.steer_line(message, files)

    def message_in(self, line: bytes) -> int | None:
        """Return the id of the message in a line of its input."""
        return pi_reader.steered_message_id(line)


PLUGIN = AgentPlugin(make=lambda _settings: PiAgent(), settings=AgentSettings)


def _input(prompt: str, workspace: AgentWorkspace) -> bytes:
    return pi_reader.first_input(prompt) if workspace.steered else prompt.encode("utf-8", "replace")


def _arguments(spec: AgentSpec, workspace: AgentWorkspace) -> Iterator[str]:
    yield workspace.program or "pi"
    yield from ("--mode", "rpc") if workspace.steered else ("--mode", "json", "--print")
    if workspace.session:
        yield from ("--session", workspace.session)
    if spec.model:
        yield from ("--model", spec.model)
    if spec.thinking:
        yield from ("--thinking", spec.thinking)
    if _has_todo_tool(spec):
        yield from ("--extension", f"{workspace.folder}/{pi_reader.EXTENSION}")
    if spec.tools:
        yield from ("--tools", ",".join(spec.tools))
    elif spec.tools is not None:
        yield "--no-tools"


def _has_todo_tool(spec: AgentSpec) -> bool:
    return spec.tools is None or pi_reader.TOOL in spec.tools
