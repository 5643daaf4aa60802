"""Agents: which program to run, and how to read its output.

An agent starts nothing and touches no file. Where its program runs is an executor's business, and
any agent runs in any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

from rota.errors import Invalid
from rota.model.agents import AgentResult, AgentSpec, AgentUsage, ProcessExit, Said
from rota.model.budgets import NO_PRICES, Prices
from rota.model.executors import not_installed
from rota.model.programs import Program
from rota.model.tasks import TaskKind
from rota.model.threads import ThreadMessage
from rota.ports.plugins import Plugin

DESK = "rota"
"""The tool server that is Rota's own desk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCapabilities:
    """What an agent can be asked for."""

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
    """Whether it tells what it costs, or may."""
    envelope: bool = False
    """Whether it is told of its run in the sections of a prompt, unless a task says otherwise."""
    variables: frozenset[str] = frozenset()
    """The environment it may see, by name, of what is offered to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A tool server the agent may use: at an address, or a program it starts."""

    name: str
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


class Redaction(Protocol):
    """Knows secrets, and names them where they stand."""

    def holds(self, text: str) -> bool:
        """Whether a secret stands in a text."""

    def text(self, text: str) -> str:
        """Return a text without secrets."""

    def data(self, value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """Return what JSON can hold without secrets in any text or name of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWorkspace:
    """Where an attempt works, by the paths its own program sees.

    `folder` is the attempt's own, out of the agent's way; `home` is where the agent keeps its
    sessions, and both it and `cwd` must be the same again for a session to be resumed. `work` is
    the space's folder, in which `cwd` lies: the programs of the space are there. `offered` is
    the environment the agent may choose from, `ids` what it is told of its run in any case.
    `isolated` says that nothing outside can be harmed, `in_image` that the files there are those of
    an image and not the host's, `egress` that it is handed the one socket that leads out, `desk`
    that it is handed the one of the desk. `used` is what is known to have been used in the session
    before. `python` is an interpreter that is there. `artifacts` is where files for people go, and
    `result` the one there that counts as a script's result; `resources` has files for the task, and
    `config` is what they say of it, in JSON. `mailbox` is the folder of the try through which it
    talks to Rota. With `steered` its input stays open, and messages come there while it works.
    `settled` says that what is there stays as it is: no new attempt begins; `writes`, that what it
    writes to somewhere outside may be passed on. `redactor` knows the secrets that its reader takes
    out of what it says, before it takes a part of that.
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
    """A small file to be written into the attempt's own folder, readable by its owner alone."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedProgram:
    """A program to run, and the files it wants to find; no secret is among its words."""

    command: Program
    files: tuple[WorkspaceFile, ...] = ()


class OutputReader(Protocol):
    """Reads one attempt's standard output.

    What it says depends on nothing but the lines, so after a restart a new one is fed from the
    beginning, and what was recorded already is thrown away. It never raises and its memory is
    bounded, whatever the bytes are. The lines of a `plain` one are text for people, so that also
    the beginning of one can be shown.
    """

    @property
    def plain(self) -> bool:
        """Whether its lines are text."""

    def feed(self, line: bytes, *, cut: bool = False) -> Sequence[Said]:
        """Return what a line says; `cut` means that the line goes on with the next call."""

    def end(self, end: ProcessExit) -> AgentResult:
        """Return what the attempt came to, once, after the last line."""


@runtime_checkable
class CumulativeUsageReader(Protocol):
    """A reader of an agent that tells what it has used only now and then."""

    def pending(self) -> AgentUsage:
        """Return what was used since it was told last, as far as the lines say."""


@runtime_checkable
class SteerableAgent(Protocol):
    """An agent that takes messages on its input while it works.

    Its reader says `Taken` for each of them once the agent has taken it in, and a result when it
    has nothing more to do. What lies on the input of an agent then is its next turn, unless the
    reader says that it is `Over`. What must be asked to know that is `Wanted`: a line that is put
    there once.
    """

    def steers(self, wish: AgentSpec) -> bool:
        """Return whether it takes them in a task that wants this."""

    def line(self, message: ThreadMessage, files: str | None = None) -> bytes:
        """Return a message as a line of its input: the same bytes every time.

        `files` is where its program finds the files of messages, None if nowhere.
        """

    def message_in(self, line: bytes) -> int | None:
        """Return the id of the message that a line of its input is; None for any other line."""


class Agent(Protocol):
    """A kind of agent."""

    name: str
    abilities: AgentCapabilities

    def check(self, wish: AgentSpec) -> None:
        """Raise Invalid, naming the field, if this agent cannot do what a task wants."""

    def prepare(self, wish: AgentSpec, room: AgentWorkspace) -> PreparedProgram:
        """Return the program and its files; raises Invalid as `check` does."""

    def reader(self, wish: AgentSpec, room: AgentWorkspace, /) -> OutputReader:
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
    """The agents that are installed, and the one of tasks that name none."""

    known: Mapping[str, Agent]
    usual: str = ""
    prices: Prices = field(default_factory=lambda: NO_PRICES)
    tiers: Mapping[str, Mapping[ModelTier, str]] = field(default_factory=dict)
    """The models of each agent, by tier."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """The agents that could not be loaded, and why."""

    def named(self, name: str | None) -> Agent:
        """Return the agent of a name; Invalid if there is none."""
        wanted = name or self.usual
        agent = self.known.get(wanted)
        if agent is None:
            raise Invalid("agent", wanted, not_installed(wanted, self.known, self.failed))
        return agent

    def takes_program(self, name: str | None) -> bool:
        """Whether an agent runs a program that its task names."""
        agent = self.known.get(name or self.usual)
        return agent is not None and agent.abilities.program

    def model_of(self, agent: str, tier: ModelTier) -> str:
        """Return the model of an agent's tier; Invalid if the settings name none."""
        model = self.tiers.get(agent, {}).get(tier)
        if model is None:
            advice = f"the settings name no model for it: say so under [agents.{agent}.tiers]"
            raise Invalid("model_tier", tier, advice)
        return model


NO_AGENTS = AgentRegistry({})
