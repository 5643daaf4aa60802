"""What a command works with: the application and its caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

from pydantic import BaseModel

from rota.flow.observe.status import DaemonState, WarningThresholds
from rota.ports.agent import AgentRegistry
from rota.ports.clock import Random
from rota.ports.host import ArtifactStore, Probes, SecretStore, SiteChecker
from rota.rules.permissions import Caller
from rota.store.sql_console import SqlConsole
from rota.store.store import Store

NO_AGENTS = AgentRegistry({})


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
    """What a door that stays open lends to every request."""

    store: Store
    chance: Random
    bounds: CommandLimits = field(default_factory=CommandLimits)
    agents: AgentRegistry = NO_AGENTS
    channels: tuple[str, ...] = ()
    inquirer: SqlConsole | None = None
    sites: SiteChecker | None = None
    artifacts: ArtifactStore | None = None
    probes: Probes | None = None
    secrets: SecretStore | None = None
    daemon: DaemonControl | None = None
    answers: Answers = field(default_factory=Counter)


Shape: TypeAlias = Callable[["RequestContext", Any], Awaitable[BaseModel | None]]
"""Makes the answer of what a change has come to; None where that was nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Serves one request: the store, who asks, and under which conditions.

    `local` says that the owner of this process asks, and nobody over a wire; `stands` is what the
    caller believes the thing to be like that is to be changed.
    """

    store: Store
    caller: Caller
    chance: Random
    bounds: CommandLimits = field(default_factory=CommandLimits)
    agents: AgentRegistry = NO_AGENTS
    channels: tuple[str, ...] = ()
    inquirer: SqlConsole | None = None
    sites: SiteChecker | None = None
    artifacts: ArtifactStore | None = None
    probes: Probes | None = None
    secrets: SecretStore | None = None
    local: bool = False
    stands: str | None = None
    daemon: DaemonControl | None = None
    keeps: Callable[[Sequence[Callable[..., Any]], Shape, bool], None] | None = None

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
        return None if self.daemon is None else DaemonState(self.daemon.state, self.daemon.worker)
