"""The context of a command: the application and the caller."""

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
    """Settings that apply to every interface."""

    warnings: WarningThresholds = field(default_factory=WarningThresholds)
    calls: frozenset[str] = frozenset()
    """Dotted paths of the functions that requests over the network may name."""
    retention: timedelta = timedelta(days=30)


Answers = Counter[tuple[str, int]]
"""Number of responses by route and status."""


class DaemonControl(Protocol):
    """Control of the daemon that serves an interface."""

    @property
    def state(self) -> str:
        """`working`, `stopping`, `stopped`, `starting`, or `ending` at the end of the process."""

    @property
    def worker(self) -> str | None:
        """The id of its worker, also after the worker has stopped."""

    @property
    def services(self) -> Sequence[PollerStatus]:
        """The pollers of the daemon."""

    @property
    def blocks(self) -> Blocks | None:
        """What has blocked its event loop; None if that is not measured."""

    def start(self) -> None:
        """Start work, after an earlier stop has ended; does nothing if it works already."""

    def stop(self) -> None:
        """Claim no more runs and wait for the running ones; does nothing if it has stopped."""


class Block(Protocol):
    """One time that code blocked the event loop."""

    @property
    def seconds(self) -> float:
        """The duration."""

    @property
    def ran(self) -> str | None:
        """The code that ran, if known."""


class Blocks(Protocol):
    """Number and total duration of blocks of the event loop."""

    count: int
    seconds: float

    def recent(self) -> Sequence[Block]:
        """Return the blocks of the last hour, newest last."""


class PollerStatus(Protocol):
    """The state of one poller."""

    name: str
    failures: int
    last_error: str | None

    @property
    def silent_for(self) -> float:
        """Seconds since the last successful step."""


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
    recorder: Callable[[Sequence[Callable[..., Any]], Shape, bool], None] | None = None

    @property
    def store(self) -> Store:
        """The store of the application."""
        return self.app.store

    def with_app(self, **changes: Any) -> RequestContext:  # noqa: ANN401 - fields of the app
        """Return the request with another store, or with another part of the application."""
        return replace(self, app=replace(self.app, **changes))

    def record(
        self, shape: Callable[[Any], BaseModel | None], *changes: Callable[..., Any]
    ) -> None:
        """Record the response in the transaction of the change, if the request has a key.

        `changes` are the store operations that make the change; `shape` gets their result.
        """

        async def shaped(_context: RequestContext, result: object) -> BaseModel | None:
            return shape(result)

        self.record_with(shaped, *changes)

    def record_with(self, shape: Shape, *changes: Callable[..., Any], whole: bool = True) -> None:
        """Record a response that needs more than the result: `shape` may read from the store.

        One that is not `whole` is a fallback, used if the full response could not be recorded.
        """
        if self.recorder is not None:
            self.recorder(changes, shape, whole)

    @property
    def daemon_state(self) -> DaemonState | None:
        """The state of the daemon that serves the request, if one does."""
        daemon = self.app.daemon
        return None if daemon is None else DaemonState(daemon.state, daemon.worker)
