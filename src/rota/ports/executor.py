"""Executors: where and how a program runs.

An executor turns a program and its ExecutionSpec into the KeeperSpec of a keeper. `wrap` only
builds the command; changes to the machine happen when the keeper runs it. An executor that cannot
provide what was requested raises Unavailable instead of providing less.
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
"""Where executors look for their tools, independent of the PATH of Rota's own process."""

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
"""A name that is also used for files, labels, cgroups and host names."""

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
"""Files that tools of the host would execute later: programs must not change them."""


@dataclass(frozen=True, slots=True)
class MissingRequirement:
    """Something an executor needs and does not find, with a remedy.

    Without a requirement that is not `needed`, it still runs programs, with fewer guarantees. A
    requirement for `isolation` is only needed by isolated programs.
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
    """A socket of the host that is reachable on a port of 127.0.0.1 inside a site.

    If it is `alone` in its folder, the folder is mounted, so that a recreated socket is found.
    """

    socket: str
    port: int
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSpec:
    """The folders, sockets, limits and isolation of one attempt.

    `state` is the attempt's own folder, mode 0700, invisible to isolated programs. `folder` is its
    working folder; `home`, `artifacts` and `outbox` are its own and always writable. `shared` are
    the mounts of the task; if one is not available, nothing runs. `desk` is the socket of the agent
    API; its folder is mounted, so that a recreated socket is found.
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
    "egress is not set up: give the gateway a secret with `rota secret set`, or set "
    "`egress_socket` to the socket to connect to"
)


class Executor(Protocol):
    """A way to run programs.

    `certain_kill`: once the process tree is gone and `sweep` has returned, no process of the
    attempt is left.
    """

    name: str
    certain_kill: bool

    def check(self) -> list[MissingRequirement]:
        """Test the executor's requirements, and return what is missing."""

    def admit(self, site: Site, role: SpaceRole) -> None:
        """Raise Invalid or NotPermitted unless a task may have its image and its mounts."""

    def holds(self, *, isolated: bool) -> Mapping[str, LimitEnforcement]:
        """Return how limits on memory, processes and CPUs are enforced."""

    def wrap(self, command: Program, room: ExecutionSpec) -> KeeperSpec:
        """Return what a keeper must start; raise Unavailable if a guarantee cannot be given."""

    def sweep(self, spec: KeeperSpec) -> None:
        """Clean up what outlives the process tree; raise Unavailable while something is left."""


@runtime_checkable
class TerminalExecutor(Protocol):
    """An executor whose programs run in a terminal that can be captured."""

    def capture(self, state: str) -> str:
        """Return the terminal content of an attempt, by its state folder; empty once it is gone."""


def refuse(executor: str, missing: Sequence[MissingRequirement], *, isolated: bool = False) -> None:
    """Raise Unavailable with all missing requirements that are needed, if there are any."""
    needed = [str(each) for each in missing if each.needed or (isolated and each.isolation)]
    if needed:
        raise Unavailable(f"{executor} is not available on this machine: {'; '.join(needed)}")


class Terminal(Protocol):
    """The terminal of one attempt, on the machine of its keeper."""

    @property
    def there(self) -> bool:
        """Whether it exists; raise NotPermitted if it belongs to another user."""

    def lives(self) -> bool:
        """Whether its program is running."""

    def attach_argv(self, *, typing: bool = False) -> list[str]:
        """Return the command that shows it in a terminal; keys reach it only when `typing`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorHost:
    """What an executor is created with.

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
    """An executor as an entry point of the group `rota.executors` provides it.

    If its capabilities include a terminal, `terminal` returns it for the state folder of an
    attempt.
    """

    make: Callable[[Any, ExecutorHost], Executor]
    capabilities: ExecutorCapabilities
    terminal: Callable[[str], Terminal] | None = None

    def conflict(self, others: Iterable[Self]) -> str | None:
        """Return a conflict with other plug-ins: no terminal, or a default that is taken."""
        if self.capabilities.terminal and self.terminal is None:
            return "its capabilities include a terminal, and it has none"
        mine = self.capabilities.default_for
        if any(mine & other.capabilities.default_for for other in others):
            return "another executor is the default of the same spaces"
        return None


class ProcessTreeMode(StrEnum):
    """How the processes of an attempt are kept together.

    `pidns` is a PID namespace: when its first process ends, the kernel kills the rest. `guard` is a
    process that collects orphans; it fails if both the keeper and the guard are killed.
    """

    AUTO = "auto"
    PIDNS = "pidns"
    GUARD = "guard"


class StopSignalTarget(StrEnum):
    """Which processes receive the SIGTERM of a stop."""

    ALL = "all"
    MAIN = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperSpec:
    """What a keeper needs to know about its attempt.

    `name` is unique; every process of the tree carries it in its environment, so that escaped
    processes can be found.
    """

    name: str
    command: Program
    bounds: ResourceLimits = field(default_factory=ResourceLimits)
    tree: ProcessTreeMode = ProcessTreeMode.AUTO
    term: StopSignalTarget = StopSignalTarget.ALL


class EgressGateway(Protocol):
    """Gives attempts, identified by name, access to the gateway, which outlives the daemon."""

    def filter_environment(
        self, offered: Mapping[str, str], *, isolated: bool
    ) -> Mapping[str, str]:
        """Return the variables that programs may choose from, without those of secrets."""

    def environment(
        self,
        name: str,
        ids: tuple[int, int],
        space: str,
        offered: Mapping[str, str],
        scope: WriteScope,
        *,
        own_loopback: bool,
    ) -> dict[str, str]:
        """Return the gateway's variables for an attempt; empty if it may reach nothing."""

    async def admit(
        self, name: str, ids: tuple[int, int], ended: str, *, own_loopback: bool
    ) -> str:
        """Grant access until a file says that the attempt ended; return the path of its socket."""

    def can_write(self, name: str) -> bool:
        """Whether an attempt with a grant could write to the outside."""

    def has_written(self, name: str) -> bool | None:
        """Return whether an attempt has written to the outside; None if that is unknown."""

    def readmit(self, name: str, ids: tuple[int, int], ended: str, *, own_loopback: bool) -> None:
        """Grant access again to an attempt that an earlier process started."""

    def extend_lease(self, until: float) -> None:
        """Extend all grants to an instant of boot time."""

    def revoke_others(self, living: Collection[str]) -> None:
        """Revoke the grants of all other attempts."""

    async def revoke(self, name: str) -> None:
        """Revoke the grant of an attempt."""

    def close(self) -> None:
        """Close the connection to the gateway; it keeps running."""
