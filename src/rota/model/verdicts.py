"""How an agent's process ended, and what that means for the attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from rota.model.faults import FaultKind
from rota.model.outcomes import Asked, Cancelled, Failed, Succeeded
from rota.model.said import Usage


class Stop(StrEnum):
    """Why Rota itself ended a process."""

    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process ended: by its code or by a signal, and whether Rota was the one who ended it.

    `out_of_memory` is what the kernel told of the attempt's own group, where it has one. `begun` is
    false where the process was an executor's, which said that it cannot start the program.
    """

    code: int | None = None
    signal: int | None = None
    stopped: Stop | None = None
    stderr_tail: bytes = b""
    out_of_memory: bool = False
    begun: bool = True


Judged: TypeAlias = Succeeded | Failed | Asked | Cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an attempt came to.

    `text` is the agent's last answer; it is kept for people also when it does not count. `results`
    is how many it gave. After an agent was stopped, `usage` is at least what was used. A `guessed`
    fault is one that words of the program's own seem to tell.
    """

    outcome: Judged
    fault: FaultKind | None = None
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    session: str | None = None
    until: datetime | None = None
    results: int = 0
    tool_calls: int = 0
    guessed: bool = False

    @property
    def transient(self) -> bool:
        """Whether to try again inside the attempt, without counting it; never on a guess."""
        return self.fault is not None and self.fault.transient and not self.guessed
