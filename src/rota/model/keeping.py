"""Kept attempts: those whose processes outlive the daemon that started them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from rota.model.budgets import Amounts
from rota.model.events import EventName
from rota.model.ids import Epoch, RunId
from rota.model.settlements import NewDelivery


class Stream(StrEnum):
    """What a program writes to."""

    OUT = "out"
    ERR = "err"


class Reason(StrEnum):
    """Why the processes of an attempt ended; what begins with `lost` was found out afterwards."""

    EXITED = "exited"
    SIGNALED = "signaled"
    CANCELLED = "cancelled"
    HARD_TIMEOUT = "hard_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    LEASE_EXPIRED = "lease_expired"
    TOO_MANY_PROCESSES = "too_many_processes"
    KEEPER_SIGTERM = "keeper_sigterm"
    EXEC_FAILED = "exec_failed"
    SPAWN_FAILED = "spawn_failed"
    KEEPER_ERROR = "keeper_error"
    INIT_KILLED = "init_killed"
    LOST_REBOOT = "lost:reboot"
    LOST_NEVER_STARTED = "lost:never_started"
    LOST_KEEPER_DIED = "lost:keeper_died"
    LOST_UNSWEPT = "lost:unswept"


UNBEGUN = frozenset({Reason.EXEC_FAILED, Reason.SPAWN_FAILED, Reason.LOST_NEVER_STARTED})
"""Ends of attempts whose program was not started."""
CANNOT_START = b"cannot start "
"""How the line begins that an executor writes instead of what a program would have written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spooled:
    """What became of one stream: `size` bytes are in the spool, of `total` that were written.

    `tail` holds the newest bytes that are not in the spool, `errno` why the disk took no more.
    """

    size: int = 0
    total: int = 0
    errno: int = 0
    tail: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the processes of an attempt ended, once and for all.

    `proven` says that no process of its tree is alive, as the kernel told somebody who was there.
    `killed` says that it had to be ended by force. `ago` is for how many seconds they had been gone
    when somebody looked. `begun` is false once it was seen that the program was not started.
    """

    reason: Reason
    detail: str = ""
    nonce: str = ""
    code: int | None = None
    signal: int | None = None
    killed: bool = False
    proven: bool = False
    tree: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    ago: float = field(default=0.0, compare=False)
    in_offset: int = 0
    cpu_seconds: float = 0.0
    rss_bytes: int = 0
    out: Spooled = field(default_factory=Spooled)
    err: Spooled = field(default_factory=Spooled)
    begun: bool = True

    @property
    def lost(self) -> bool:
        """Whether nobody who was there could tell."""
        return self.reason.startswith("lost:")


class KeptSession(NamedTuple):
    """An agent's conversation that a later run may go on in, and the tokens used in it so far.

    `was` is what it was called when this attempt went on in it, if the agent calls it otherwise
    now. With `shared` the next run of its thread goes on in it.
    """

    agent: str
    id: str
    input: int = 0
    output: int = 0
    cached: int = 0
    was: str = ""
    shared: bool = True


ASKING = ""
"""What is on record of a gate that has not answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An attempt under a keeper, and how much of its output is on record.

    `home` is where its keeper's folder is; `nonce` and `boot` tell it from any other that was ever
    there. `current` is false once its run has gone on without it.

    An attempt has another keeper for each try inside it: `tries` counts those that were in vain,
    `until` is when the next one may begin, None while one goes on, and `began` is when the first
    one did. `session` is what this try goes on in, `agent` who does the work, whatever its task
    says meanwhile, and `said` what it was told. `gate` is empty while the gate of the attempt runs
    and its work has not begun; then it is what the gate said, as JSON. `writes` says that it could
    write to somewhere outside.
    """

    run_id: RunId
    epoch: Epoch
    home: str
    nonce: str
    boot: str
    executor: str
    out_at: int = 0
    err_at: int = 0
    tries: int = 0
    until: int | None = None
    began: int = 0
    session: KeptSession | None = None
    agent: str = ""
    said: str = ""
    current: bool = True
    gate: str | None = None
    writes: bool = False

    def at(self, stream: Stream) -> int:
        """Return up to where a stream is on record."""
        return self.out_at if stream is Stream.OUT else self.err_at


class Happened(NamedTuple):
    """Something that an attempt did or said, to be recorded as an event."""

    name: EventName
    data: Mapping[str, Any]


class Used(NamedTuple):
    """What an agent said that it used; `priced` if it told what that costs."""

    used: Amounts
    priced: bool


class ForPeople(NamedTuple):
    """A message for people in the thread of a run that goes on.

    With `most` it is dropped where that many notices of the run were sent on the way already, or
    the last one less than `gap` microseconds ago.
    """

    delivery: NewDelivery
    most: int | None = None
    gap: int = 0


class Heard(NamedTuple):
    """A part of a stream that was read, from and up to an offset, and what it comes to."""

    stream: Stream
    start: int
    end: int
    happened: tuple[Happened, ...] = ()
    used: Used | None = None
    for_people: tuple[ForPeople, ...] = ()


class Pause(NamedTuple):
    """A try that was in vain: how the attempt is kept from now on, and why.

    `lost` is the session in which it was, if no run can go on in that any more.
    """

    kept: Kept
    why: Happened
    lost: KeptSession | None = None
