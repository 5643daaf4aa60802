"""Agents: which program to run, and how to read its output.

An agent starts no process and accesses no file; the executor of the task does. Every agent works
with every executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

from rota.errors import Invalid
from rota.model.agents import AgentEvent, AgentResult, AgentSpec, AgentUsage, ProcessExit
from rota.model.budgets import NO_PRICES, Prices
from rota.model.executors import not_installed
from rota.model.programs import Program
from rota.model.tasks import TaskKind
from rota.model.threads import ThreadMessage
from rota.ports.plugins import Plugin

AGENT_API_SERVER = "rota"
"""Name of Rota's own MCP server in the configuration of agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCapabilities:
    """Which fields of a spec an agent supports."""

    models: bool = False
    fallback_models: bool = False
    tools: bool = False
    denied_tools: bool = False
    thinking: tuple[str, ...] = ()
    permission_modes: tuple[str, ...] = ()
    max_turns: bool = False
    resume: bool = False
    mcp: bool = False
    program: bool = False
    """Whether it runs a program that its task names."""
    requires: tuple[str, ...] = ()
    """The programs that it runs by itself, which must be on the PATH."""
    money: bool = True
    """Whether it may report its cost."""
    envelope: bool = False
    """Whether its prompts have sections by default."""
    variables: frozenset[str] = frozenset()
    """Names of the environment variables it may see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """An MCP server the agent may use: at a URL, or a program it starts."""

    name: str
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


class Redaction(Protocol):
    """Finds and replaces known secrets."""

    def contains_secret(self, text: str) -> bool:
        """Whether a text contains a secret."""

    def redact_text(self, text: str) -> str:
        """Return a text without secrets."""

    def redact_json(self, value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """Return a JSON value without secrets in its strings and keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWorkspace:
    """The surroundings of an attempt; all paths are as its program sees them.

    `folder` is the attempt's own, not meant for the agent; `home` holds the agent's sessions. To
    resume a session, `home` and `cwd` must be the same as before. `work` is the folder of the space
    above `cwd`, with its programs.

    `offered` are variables the agent may choose from, `ids` variables that are always set. With
    `isolated` the program cannot affect anything outside. With `in_image` the files are those of an
    image, not of the host. With `egress` and `desk` it is passed the egress socket and the socket
    of the agent API.

    `used` is the known usage of the resumed session. `python` is an interpreter that exists there.
    `artifacts` is the folder for files for people, `result` the result file in it, `resources` the
    task's files, `config` their description as JSON, `mailbox` the mailbox of the launch.

    With `steered`, its input stays open for messages. `settled` attempts have ended and are only
    read. With `writes`, its writes to the outside may be forwarded. `redactor` removes secrets from
    its output before that is shortened.
    """

    folder: str
    cwd: str
    home: str
    work: str | None = None
    program: str | None = None
    session: str | None = None
    used: AgentUsage | None = None
    servers: tuple[McpServer, ...] = ()
    offered: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    isolated: bool = False
    in_image: bool = False
    python: str = "python3"
    artifacts: str | None = None
    resources: str | None = None
    result: str | None = None
    config: str | None = None
    egress: bool = False
    desk: bool = False
    mailbox: str | None = None
    steered: bool = False
    settled: bool = False
    writes: bool = False
    redactor: Redaction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceFile:
    """A small file to write into the attempt's own folder, readable by its owner only."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedProgram:
    """A program to run and the files it needs; its argv contains no secrets."""

    command: Program
    files: tuple[WorkspaceFile, ...] = ()


class OutputReader(Protocol):
    """Parses the standard output of one attempt.

    Its events depend only on the lines: after a restart a new reader is fed from the beginning, and
    events that were recorded already are dropped. It never raises, and its memory is bounded for
    any input. The lines of a `plain` reader are text for people, so that also incomplete lines can
    be shown.
    """

    @property
    def plain(self) -> bool:
        """Whether its lines are text for people."""

    def feed(self, line: bytes, *, cut: bool = False) -> Sequence[AgentEvent]:
        """Return the events of a line; `cut` means that the line continues in the next call."""

    def end(self, end: ProcessExit) -> AgentResult:
        """Return the result of the attempt; called once, after the last line."""


@runtime_checkable
class CumulativeUsageReader(Protocol):
    """A reader of an agent that reports usage only at intervals."""

    def unreported_usage(self) -> AgentUsage:
        """Return the usage since the last report, as far as the lines tell it."""


@runtime_checkable
class SteerableAgent(Protocol):
    """An agent that accepts messages on its input while it works.

    Its reader returns `AgentMessageAccepted` for each accepted message, and a result when the agent
    has nothing left to do. Input it has not read by then starts its next turn, unless the reader
    has returned `AgentInputClosed`. To find out, the line of an `AgentInputRequested` is written
    once.
    """

    def accepts_messages(self, spec: AgentSpec) -> bool:
        """Whether it accepts messages in a task with this spec."""

    def message_line(self, message: ThreadMessage, files: str | None = None) -> bytes:
        """Return a message as a line of its input; equal messages give equal bytes.

        `files` is the folder with files of messages, as its program sees it; None if it has no
        access.
        """

    def message_in(self, line: bytes) -> int | None:
        """Return the id of the message in a line of its input; None for other lines."""


class Agent(Protocol):
    """A kind of agent."""

    name: str
    capabilities: AgentCapabilities

    def check(self, spec: AgentSpec) -> None:
        """Raise Invalid, naming the field, if this agent does not support a spec."""

    def prepare(self, spec: AgentSpec, workspace: AgentWorkspace) -> PreparedProgram:
        """Return the program and its files; raise Invalid as `check` does."""

    def reader(self, spec: AgentSpec, workspace: AgentWorkspace, /) -> OutputReader:
        """Return a reader for one attempt."""


ModelTier: TypeAlias = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What `[agents.NAME]` may say of any agent that has models."""

    tiers: Mapping[ModelTier, str] = field(
        default_factory=dict,
        hash=False,
        metadata={
            "about": "in the file: the models that `model_tier` means (`low`, `medium`, `high`)"
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlugin(Plugin):
    """What an entry point of the group `rota.agents` names.

    Tasks name agents of the kind AGENT; an agent of another kind does all the work of that kind.
    Tasks that name none have the `default` one, unless the settings name another.
    """

    make: Callable[[Any], Agent]
    kind: TaskKind = TaskKind.AGENT
    default: bool = False

    def conflict(self, others: Iterable[Self]) -> str | None:
        """Return the conflict: another agent has its role."""
        for other in others:
            if self.default and other.default:
                return "another agent is the default"
            if self.kind is other.kind and self.kind is not TaskKind.AGENT:
                return f"another agent does all the work of the kind {self.kind}"
        return None


@dataclass(frozen=True, slots=True)
class AgentRegistry:
    """The available agents, and the default for tasks that name none."""

    known: Mapping[str, Agent]
    default: str = ""
    prices: Prices = field(default_factory=lambda: NO_PRICES)
    tiers: Mapping[str, Mapping[ModelTier, str]] = field(default_factory=dict)
    """Models of each agent, by tier."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Agents that could not be loaded, with the reason."""

    def get(self, name: str | None) -> Agent:
        """Return an agent by name; raise Invalid if there is none."""
        chosen = name or self.default
        agent = self.known.get(chosen)
        if agent is None:
            raise Invalid("agent", chosen, not_installed(chosen, self.known, self.failed))
        return agent

    def takes_program(self, name: str | None) -> bool:
        """Whether an agent runs a program that its task names."""
        agent = self.known.get(name or self.default)
        return agent is not None and agent.capabilities.program

    def model_of(self, agent: str, tier: ModelTier) -> str:
        """Return the model of an agent's tier; raise Invalid if the settings name none."""
        model = self.tiers.get(agent, {}).get(tier)
        if model is None:
            advice = f"the settings name no model for it: set one under [agents.{agent}.tiers]"
            raise Invalid("model_tier", tier, advice)
        return model


NO_AGENTS = AgentRegistry({})
