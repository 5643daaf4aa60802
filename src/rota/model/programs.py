"""Programs, their resource limits, and the sites they run at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to run, as an argv; never a shell command line.

    `env` is the whole environment; nothing is inherited.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    stdin: bytes = b""
    keep_stdin_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """Resource limits of an attempt; None means no limit set by Rota."""

    hard_seconds: float | None = None
    idle_seconds: float | None = None
    grace_seconds: float = 10.0
    output_bytes: int = 64 * MIB
    memory_bytes: int | None = None
    processes: int | None = None
    open_files: int | None = None
    file_bytes: int | None = None
    cpus: float | None = None


class NetworkAccess(StrEnum):
    """What an isolated program may reach; `egress` is one socket of the host and nothing else."""

    NONE = "none"
    EGRESS = "egress"
    OPEN = "open"


class LimitEnforcement(StrEnum):
    """How a limit applies: to all processes of a run together, to each of them, or not at all."""

    TOGETHER = "together"
    EACH = "each"
    NOT = "not"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFolder:
    """A folder of the host that is visible to a program at the same path."""

    path: str
    write: bool = False

    def __str__(self) -> str:
        return f"{self.path}:rw" if self.write else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a program runs; if `isolated`, it runs only where isolation is available.

    With `own_network` it has its own loopback even if its network is open.
    """

    executor: str
    isolated: bool = False
    image: str | None = None
    mounts: tuple[SharedFolder, ...] = ()
    network: NetworkAccess = NetworkAccess.NONE
    own_network: bool = False

    @property
    def own_loopback(self) -> bool:
        """Whether 127.0.0.1 is not the host's: only a socket leads out of there."""
        return self.isolated and (self.own_network or self.network is not NetworkAccess.OPEN)
