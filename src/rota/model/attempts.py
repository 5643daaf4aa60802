"""Attempts: assignments, kept attempts, exit records, output, reports and outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from rota.model.budgets import Amounts
from rota.model.events import EventName
from rota.model.ids import Epoch, RunId, trace_id
from rota.model.notifications import MailFields
from rota.model.runs import Lease
from rota.model.settlement import AttemptNotes, NewDelivery
from rota.model.tasks import Task


class OutputStream(StrEnum):
    """What a program writes to."""

    OUT = "out"
    ERR = "err"


class ExitReason(StrEnum):
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


UNBEGUN = frozenset(
    {ExitReason.EXEC_FAILED, ExitReason.SPAWN_FAILED, ExitReason.LOST_NEVER_STARTED}
)
"""Ends of attempts whose program was not started."""
CANNOT_START = b"cannot start "
"""How the line begins that an executor writes instead of what a program would have written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolState:
    """What became of one stream: `size` bytes are in the spool, of `total` that were written.

    `tail` holds the newest bytes that are not in the spool, `errno` why the disk took no more.
    """

    size: int = 0
    total: int = 0
    errno: int = 0
    tail: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """How the processes of an attempt ended, once and for all.

    `proven` says that no process of its tree is alive, as the kernel told somebody who was there.
    `killed` says that it had to be ended by force. `ago` is for how many seconds they had been gone
    when somebody looked. `begun` is false once it was seen that the program was not started.
    """

    reason: ExitReason
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
    out: SpoolState = field(default_factory=SpoolState)
    err: SpoolState = field(default_factory=SpoolState)
    begun: bool = True

    @property
    def lost(self) -> bool:
        """Whether nobody who was there could tell."""
        return self.reason.startswith("lost:")


class AgentSessionRef(NamedTuple):
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
class KeptAttempt:
    """An attempt under a keeper, and how much of its output is on record.

    `home` is where its keeper's folder is; `nonce` and `boot` tell it from any other that was ever
    there. `current` is false once its run has gone on without it.

    An attempt has another keeper for each try inside it: `launches` counts those that were in vain,
    `relaunch_at` is when the next one may begin, None while one goes on, and `started_at` is when
    the first one did. `session` is what this try goes on in, `agent` who does the work, whatever
    its task says meanwhile, and `prompt_text` what it was told. `gate_reply` is empty while the
    gate of the attempt runs and its work has not begun; then it is what the gate said, as JSON.
    `can_write_outside` says that it could write to somewhere outside.
    """

    run_id: RunId
    epoch: Epoch
    home: str
    nonce: str
    boot: str
    executor: str
    out_offset: int = 0
    err_offset: int = 0
    launches: int = 0
    relaunch_at: int | None = None
    started_at: int = 0
    session: AgentSessionRef | None = None
    agent: str = ""
    prompt_text: str = ""
    current: bool = True
    gate_reply: str | None = None
    can_write_outside: bool = False

    def at(self, stream: OutputStream) -> int:
        """Return up to where a stream is on record."""
        return self.out_offset if stream is OutputStream.OUT else self.err_offset


class NewEvent(NamedTuple):
    """Something that an attempt did or said, to be recorded as an event."""

    name: EventName
    data: Mapping[str, Any]


class PricedUsage(NamedTuple):
    """What an agent said that it used; `priced` if it told what that costs."""

    used: Amounts
    priced: bool


class ProgressNotice(NamedTuple):
    """A message for people in the thread of a run that goes on.

    With `most` it is dropped where that many notices of the run were sent on the way already, or
    the last one less than `gap` microseconds ago.
    """

    delivery: NewDelivery
    most: int | None = None
    gap: int = 0


class OutputChunk(NamedTuple):
    """A part of a stream that was read, from and up to an offset, and what it comes to."""

    stream: OutputStream
    start: int
    end: int
    happened: tuple[NewEvent, ...] = ()
    used: PricedUsage | None = None
    for_people: tuple[ProgressNotice, ...] = ()


class Relaunch(NamedTuple):
    """A try that was in vain: how the attempt is kept from now on, and why.

    `lost` is the session in which it was, if no run can go on in that any more.
    """

    kept: KeptAttempt
    why: NewEvent
    lost: AgentSessionRef | None = None


LONGEST_RESULT = 256 * 1024
"""How many bytes a result may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The work was done; `result` is JSON text or None.

    A `silent` one is not delivered to anybody. `next_check` is how long from now it wants to look
    again, in its own words. Where people were told some of the result while it worked, `rest` is
    what is left to tell them, JSON text; empty if nothing is.
    """

    result: str | None = None
    silent: bool = False
    next_check: str | None = None
    rest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The work ended without being done.

    What is sent to people is the first line of the message, or else a `sentence` in its place:
    where that line is the program's own.
    """

    code: str
    message: str
    retryable: bool = True
    sentence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingForAnswer:
    """The run waits for a person.

    `default` is the answer if nobody gives one in time. With an `action`, as it is shown to people,
    the question is whether to approve exactly that.
    """

    question: str
    context: str = ""
    options: tuple[str, ...] = ()
    expires_in: timedelta = timedelta(hours=24)
    default: str | None = None
    action: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Somebody stopped the run."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """The run's deadline or its question ran out."""

    reason: str
    code: str = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The attempt vanished; nobody knows how far it got.

    `wrote` says whether it has written to somewhere outside; None if nobody has looked, or could.
    """

    reason: str
    wrote: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The run is given back before its work was done: the worker shuts down, or a budget is spent.

    Then `reason` says which, and it may begin again at `until`, in microseconds.
    """

    until: int | None = None
    reason: str | None = None


Outcome: TypeAlias = Succeeded | Failed | WaitingForAnswer | Cancelled | Expired | Lost | Released


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message a run wants sent once it has settled; `client_id` makes it the same on a retry."""

    client_id: str
    channel: str
    target: str
    body: str
    mail: MailFields | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReport:
    """An outcome, and what the attempt wants done in the same transaction.

    `exit` is how its processes ended, as JSON, where it had any. `away` is for how many
    microseconds they had been gone before anybody was there to hear of it. One that is `unbegun`
    had no program that could have read what it was given.
    """

    outcome: Outcome
    messages: tuple[OutgoingMessage, ...] = field(default=())
    exit: str | None = None
    notes: AttemptNotes | None = None
    away: int = 0
    unbegun: bool = False


DONE = AttemptReport(outcome=Succeeded())
"""What an attempt that has nothing to say reports."""


class Assignment(NamedTuple):
    """A lease with its task, the answers people have given, and the database it is of."""

    lease: Lease
    task: Task
    answers: tuple[str, ...] = ()
    incarnation: str = ""
    kept: KeptAttempt | None = None
    """What an earlier process has left of this attempt, to be carried on."""

    @property
    def trace_id(self) -> str:
        """What the run is called in every log."""
        return trace_id(self.incarnation, self.lease.run_id)

    @property
    def timeout(self) -> timedelta | None:
        """How long the attempt may take."""
        return self.task.policy.timeout
