"""Sites: where the programs of a task run, and what they see there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Network(StrEnum):
    """What a program behind walls may reach: `outlet` is one socket of the host's, and no more."""

    NONE = "none"
    OUTLET = "outlet"
    OPEN = "open"


class Held(StrEnum):
    """For whom a bound holds: all processes of a run together, each by itself, or nobody."""

    TOGETHER = "together"
    EACH = "each"
    NOT = "not"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A folder of the host that a program sees beside its own, at the same path."""

    path: str
    write: bool = False

    def __str__(self) -> str:
        return f"{self.path}:rw" if self.write else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a program runs; `isolated` says that walls stand around it, or it does not run."""

    executor: str
    isolated: bool = False
    image: str | None = None
    mounts: tuple[Share, ...] = ()
    network: Network = Network.NONE
