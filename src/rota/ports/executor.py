"""Executors: where a program runs, and what it is given.

An executor turns a program and a room into the spec of a keeper. `wrap` only puts words together;
what must happen on the machine happens when the keeper starts those words. Nothing is done by
halves: an executor that cannot hold what it promises refuses.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from rota.errors import Invalid, Unavailable
from rota.model.executors import ExecutorCapabilities
from rota.model.programs import (
    LimitEnforcement,
    NetworkAccess,
    Program,
    ResourceLimits,
    SharedFolder,
    Site,
)
from rota.model.spaces import SpaceRole
from rota.ports.plugins import Plugin
from rota.rules.effects import WriteScope

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where an executor looks for its tools; never the path of whoever started Rota."""

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
"""A name that is also a file, a label, a control group and a host name."""

GUARDED = (
    ".git/hooks",
    ".git/config",
    ".claude",
    ".codex",
    ".pi",
    ".mcp.json",
    ".vscode",
    ".envrc",
)
"""What a tool of the host would run later without being asked."""


@dataclass(frozen=True, slots=True)
class MissingRequirement:
    """One thing an executor does not find: what, where, what to do.

    Without what is not `needed` an executor still runs programs, but promises less. With
    `isolation` only isolated programs need it.
    """

    what: str
    where: str
    remedy: str
    needed: bool = True
    isolation: bool = False

    def __str__(self) -> str:
        return f"{self.what} ({self.where}): {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressSocket:
    """The one way out: a socket of the host that answers on a port of 127.0.0.1 inside.

    One that is `alone` in its folder is shown with it, so that one made anew is found.
    """

    socket: str
    port: int
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSpec:
    """What one attempt is given.

    `state` is the attempt's own folder, 0700, which the program never sees where it is isolated.
    `folder` is where it works; `home`, `artifacts` and `outbox` are its own, always writable.
    `shared` is what a task asks for beside: shown as it was asked, or nothing runs. `desk` is a
    second way out, to Rota itself: the folder of its socket is shown, so that it may be made anew.
    """

    name: str
    state: str
    folder: str
    home: str
    artifacts: str | None = None
    outbox: str | None = None
    readable: Sequence[str] = ()
    shared: Sequence[SharedFolder] = ()
    writable: bool = True
    guarded: Sequence[str] = GUARDED
    egress: EgressSocket | None = None
    desk: EgressSocket | None = None
    network: NetworkAccess = NetworkAccess.NONE
    bounds: ResourceLimits = field(default_factory=ResourceLimits)
    isolated: bool = True
    role: SpaceRole = SpaceRole.MEMBER
    image: str | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise Invalid("name", self.name, "use a-z, 0-9, - and _, at most 63")
        own = [self.state, self.folder, self.home, *self.readable]
        own += [share.path for share in self.shared]
        own += [path for path in (self.artifacts, self.outbox) if path]
        own += [way.socket for way in (self.egress, self.desk) if way]
        for path in own:
            if not path.startswith("/") or posixpath.normpath(path) != path or "\0" in path:
                raise Invalid("path", path, "give an absolute path without . and ..")
        for name in self.guarded:
            if name.startswith("/") or posixpath.normpath(name) != name or ".." in name.split("/"):
                raise Invalid("guarded", name, "give a path inside the working folder")


NO_EGRESS = (
    "programs have no egress here: give the gateway a secret with `rota secret set`, or set "
    "`egress_socket` to the socket of a proxy"
)


class Executor(Protocol):
    """Somewhere programs run.

    `certain_kill`: once the tree is gone and `sweep` has returned, nothing of the attempt runs.
    """

    name: str
    certain_kill: bool

    def check(self) -> list[MissingRequirement]:
        """Try out what the executor needs, and return what is not to be had here."""

    def admit(self, site: Site, role: SpaceRole) -> None:
        """Raise Invalid or NotPermitted unless a task may have its image and its mounts."""

    def holds(self, *, isolated: bool) -> Mapping[str, LimitEnforcement]:
        """Return for whom memory, processes and processors can be bounded."""

    def wrap(self, command: Program, room: ExecutionSpec) -> KeeperSpec:
        """Return what a keeper must start; raise Unavailable rather than promise less."""

    def sweep(self, spec: KeeperSpec) -> None:
        """Clean up what outlives the tree; raise Unavailable while something is left."""


@runtime_checkable
class TerminalExecutor(Protocol):
    """An executor whose programs can be watched."""

    def capture(self, state: str) -> str:
        """Return what the window of an attempt shows, by its state folder; nothing once gone."""


def refuse(executor: str, missing: Sequence[MissingRequirement], *, isolated: bool = False) -> None:
    """Raise with every missing thing that is needed, if there is any."""
    needed = [str(each) for each in missing if each.needed or (isolated and each.isolation)]
    if needed:
        raise Unavailable(f"{executor} cannot be had here: {'; '.join(needed)}")


class Terminal(Protocol):
    """The terminal of one attempt, on the machine of its keeper."""

    @property
    def there(self) -> bool:
        """Whether there is one; raises NotPermitted if it is another user's."""

    def lives(self) -> bool:
        """Whether its program goes on."""

    def attach_argv(self, *, typing: bool = False) -> list[str]:
        """Return the command that shows it in a terminal; keys reach it only when `typing`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorHost:
    """What an executor is made with.

    `mounts` is the operator's list of folders that tasks may mount, if the settings name one.
    `environment` is that of the daemon, without the variables of Rota. `default` returns the
    executor of tasks in spaces of a role that name none, for executors that run others.
    """

    home: Path
    mounts: Path | None
    environment: Mapping[str, str]
    default: Callable[[SpaceRole], Executor]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorPlugin(Plugin):
    """What an entry point of the group `rota.executors` names.

    One whose capabilities include a terminal has `terminal`: called with the state folder of an
    attempt, it returns the terminal.
    """

    make: Callable[[Any, ExecutorHost], Executor]
    capabilities: ExecutorCapabilities
    terminal: Callable[[str], Terminal] | None = None

    def conflict(self, others: Iterable[Self]) -> str | None:
        """Return the conflict: its terminal is missing, or a default is taken."""
        if self.capabilities.terminal and self.terminal is None:
            return "its capabilities include a terminal, and it has none"
        mine = self.capabilities.default_for
        if any(mine & other.capabilities.default_for for other in others):
            return "another executor is the default of the same spaces"
        return None


class ProcessTreeMode(StrEnum):
    """How the processes of an attempt are held together.

    `pidns` is a PID namespace: when its first process ends, the kernel ends the rest. `guard` is a
    process that gathers strays; two kills at once can outwit it.
    """

    AUTO = "auto"
    PIDNS = "pidns"
    GUARD = "guard"


class StopSignalTarget(StrEnum):
    """Whom the first, polite signal of a stop goes to."""

    ALL = "all"
    MAIN = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperSpec:
    """Everything about one attempt that its keeper must know.

    `name` is unlike that of any other attempt; every process of the tree carries it in its
    environment, so that what escaped can be found.
    """

    name: str
    command: Program
    bounds: ResourceLimits = field(default_factory=ResourceLimits)
    tree: ProcessTreeMode = ProcessTreeMode.AUTO
    term: StopSignalTarget = StopSignalTarget.ALL


class EgressGateway(Protocol):
    """Leads attempts, by their names, to where they may ask; it outlives the daemon as they do."""

    def offered(self, offered: Mapping[str, str], *, isolated: bool) -> Mapping[str, str]:
        """Return what programs may choose from of an environment."""

    def told(
        self,
        name: str,
        ids: tuple[int, int],
        space: str,
        offered: Mapping[str, str],
        scope: WriteScope,
        *,
        walled: bool,
    ) -> dict[str, str]:
        """Return what an attempt finds in its environment; nothing if there is nothing to reach."""

    async def admit(self, name: str, ids: tuple[int, int], ended: str, *, walled: bool) -> str:
        """Let an attempt in until a file says that it ended; return the path of its door."""

    def writes(self, name: str) -> bool:
        """Whether an attempt that was told of it could write to somewhere outside."""

    def wrote(self, name: str) -> bool | None:
        """Return whether an attempt has written to somewhere outside; None if nobody knows."""

    def carry_on(self, name: str, ids: tuple[int, int], ended: str, *, walled: bool) -> None:
        """Let an attempt in again that a process before this one has started."""

    def promise(self, until: float) -> None:
        """Let attempts ask until a moment of boot time."""

    def keep(self, living: Collection[str]) -> None:
        """Let nobody ask but these."""

    async def dismiss(self, name: str) -> None:
        """Let an attempt in no more."""

    def close(self) -> None:
        """Let go of it."""
