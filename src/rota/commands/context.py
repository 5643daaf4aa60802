"""What a command works with: the application and its caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

from pydantic import BaseModel

from rota.flow.observe.status import DaemonState, WarningThresholds
from rota.model.executors import NO_EXECUTORS, ExecutorRegistry
from rota.ports.agent import NO_AGENTS, AgentRegistry
from rota.ports.clock import Random
from rota.ports.host import ArtifactStore, Probes, SecretStore, SiteChecker
from rota.ports.plugins import PluginProblem
from rota.rules.permissions import Caller
from rota.store.sql_console import SqlConsole
from rota.store.store import Store


class Plugins(Protocol):
    """The plug-ins of this installation; what is not asked for is not loaded."""

    @property
    def executors(self) -> ExecutorRegistry:
        """What each executor offers."""

    @property
    def agents(self) -> AgentRegistry:
        """The agents, and the one of tasks that name none."""

    @property
    def channel_names(self) -> Sequence[str]:
        """The names of the channels."""

    @property
    def problems(self) -> Sequence[PluginProblem]:
        """What is installed and cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSet:
    """Plug-ins that were loaded before."""

    executors: ExecutorRegistry = NO_EXECUTORS
    agents: AgentRegistry = NO_AGENTS
    channel_names: Sequence[str] = ()
    problems: Sequence[PluginProblem] = ()


NO_PLUGINS = PluginSet()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """What an installation has settled for every door."""

    warnings: WarningThresholds = field(default_factory=WarningThresholds)
    calls: frozenset[str] = frozenset()
    """Dotted paths of callables that any door may name."""
    retention: timedelta = timedelta(days=30)


Answers = Counter[tuple[str, int]]
"""How many requests were answered, by route and status."""


class DaemonControl(Protocol):
    """The work of the process that a door belongs to."""

    @property
    def state(self) -> str:
        """Whether it works: `working`, `stopping`, `stopped`, `starting`, or `ending` for good."""

    @property
    def worker(self) -> str | None:
        """Which worker is its own, also once that has stopped."""

    @property
    def services(self) -> Sequence[PollerStatus]:
        """What keeps going while it works."""

    @property
    def blocks(self) -> Blocks | None:
        """What has blocked its loop; None while nothing watches it."""

    def start(self) -> None:
        """Work again, as soon as an earlier stop has ended; nothing happens if it does."""

    def stop(self) -> None:
        """Take nothing new and let what runs end; nothing happens if it has stopped."""


class Block(Protocol):
    """One time that code blocked the loop: for how long, and what ran, if that was seen."""

    @property
    def seconds(self) -> float:
        """How long."""

    @property
    def ran(self) -> str | None:
        """What ran."""


class Blocks(Protocol):
    """How often code has blocked the loop, and for how long altogether."""

    count: int
    seconds: float

    def recent(self) -> Sequence[Block]:
        """Return those of the last hour, the newest last."""


class PollerStatus(Protocol):
    """One loop of a daemon."""

    name: str
    failures: int
    last_error: str | None

    @property
    def silent_for(self) -> float:
        """Seconds since a step last ended well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppContext:
    """What an interface needs for every request."""

    store: Store
    chance: Random
    limits: CommandLimits = field(default_factory=CommandLimits)
    plugins: Plugins = NO_PLUGINS
    sql_console: SqlConsole | None = None
    sites: SiteChecker | None = None
    artifacts: ArtifactStore | None = None
    probes: Probes | None = None
    secrets: SecretStore | None = None
    daemon: DaemonControl | None = None
    answers: Answers = field(default_factory=Counter)


Shape: TypeAlias = Callable[["RequestContext", Any], Awaitable[BaseModel | None]]
"""Makes the response from the result of a change; None where that was nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One request: the application and the caller.

    `local` says that the caller is the owner of this process. `expected_version` is the version of
    the resource to change that the caller has seen.
    """

    app: AppContext
    caller: Caller
    local: bool = False
    expected_version: str | None = None
    keeps: Callable[[Sequence[Callable[..., Any]], Shape, bool], None] | None = None

    @property
    def store(self) -> Store:
        """The store of the application."""
        return self.app.store

    def with_app(self, **changes: Any) -> RequestContext:  # noqa: ANN401 - fields of the app
        """Return the request with another store, or with another part of the application."""
        return replace(self, app=replace(self.app, **changes))

    def keep(self, shape: Callable[[Any], BaseModel | None], *changes: Callable[..., Any]) -> None:
        """Keep the answer in the transaction of the change, if this request may come again.

        `changes` are the operations of the store that make it; `shape` is given the result.
        """

        async def shaped(_office: RequestContext, result: object) -> BaseModel | None:
            return shape(result)

        self.keep_seen(shaped, *changes)

    def keep_seen(self, shape: Shape, *changes: Callable[..., Any], whole: bool = True) -> None:
        """Do the same where an answer tells more than the result: `shape` may look at the store.

        One that is not `whole` is what is told again only if nothing more could be kept.
        """
        if self.keeps is not None:
            self.keeps(changes, shape, whole)

    @property
    def own(self) -> DaemonState | None:
        """What the daemon that answers says of itself, if one does."""
        daemon = self.app.daemon
        return None if daemon is None else DaemonState(daemon.state, daemon.worker)
