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
    """An output stream of a program."""

    OUT = "out"
    ERR = "err"


class ExitReason(StrEnum):
    """Why the processes of an attempt ended; `lost:` reasons were concluded afterwards."""

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
"""Reasons that mean that the program was not started."""
CANNOT_START = b"cannot start "
"""Start of the line that an executor writes if it cannot start the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolState:
    """What became of one output stream: `size` of `total` written bytes are in the spool.

    `tail` holds the newest bytes that are not in the spool; `errno` is why the disk took no more.
    """

    size: int = 0
    total: int = 0
    errno: int = 0
    tail: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """How the processes of an attempt ended; written once.

    `proven`: the kernel confirmed that no process of the tree is alive. `killed`: the tree was
    ended with SIGKILL. `ago`: seconds between the end and the moment somebody looked. `begun` is
    false if the program was not started.
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
        """Whether the end was concluded afterwards, not observed."""
        return self.reason.startswith("lost:")


class AgentSessionRef(NamedTuple):
    """A session of an agent that a later run can continue, with the tokens used in it so far.

    `was` is the session's id when this attempt resumed it, if the agent has changed it since. A
    `shared` session is continued by the next run of its thread.
    """

    agent: str
    id: str
    input: int = 0
    output: int = 0
    cached: int = 0
    was: str = ""
    shared: bool = True


ASKING = ""
"""The value of `gate` while the gate program of an attempt runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAttempt:
    """An attempt under a keeper, and how much of its output is recorded.

    `home` is the folder of its keeper; `nonce` and `boot` distinguish it from other attempts in the
    same place. `current` is false once its run has continued without it.

    Each launch within the attempt has a keeper of its own: `launches` counts failed launches,
    `relaunch_at` is when the next may start (None while one runs), `started_at` is when the first
    one started. `session` is what this launch continues, `prompt_text` is its prompt, and `agent`
    runs it even if the task names another one by now. `gate_reply` is empty while the gate program
    runs, then its reply as JSON. `can_write_outside` means that it could write to the outside.
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
        """Return the offset up to which a stream is recorded."""
        return self.out_offset if stream is OutputStream.OUT else self.err_offset


class NewEvent(NamedTuple):
    """Something that happened in an attempt, to be recorded as an event."""

    name: EventName
    data: Mapping[str, Any]


class PricedUsage(NamedTuple):
    """Usage that an agent reported; `priced` if it reported its cost too."""

    used: Amounts
    priced: bool


class ProgressNotice(NamedTuple):
    """A message to the thread of a run that is still running.

    It is dropped if `most` notices of the run were sent already, or if the last one was sent less
    than `gap` microseconds ago.
    """

    delivery: NewDelivery
    most: int | None = None
    gap: int = 0


class OutputChunk(NamedTuple):
    """A part of a stream, from `start` to `end`, with what was parsed from it."""

    stream: OutputStream
    start: int
    end: int
    happened: tuple[NewEvent, ...] = ()
    used: PricedUsage | None = None
    for_people: tuple[ProgressNotice, ...] = ()


class Relaunch(NamedTuple):
    """A failed launch: the attempt as it is kept from now on, and why.

    `lost` is the session of the launch if no run can continue it.
    """

    kept: KeptAttempt
    why: NewEvent
    lost: AgentSessionRef | None = None


MAX_RESULT_BYTES = 256 * 1024
"""Bytes of a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The work is done; `result` is JSON text or None.

    A `silent` success is delivered to nobody. `next_check` is how long to wait before the next run,
    as the program wrote it. If parts of the result were sent while it ran, `rest` is the part still
    to send, as JSON text; empty if there is none.
    """

    result: str | None = None
    silent: bool = False
    next_check: str | None = None
    rest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The work failed.

    People are sent the first line of `message`, or `sentence` instead if that line was written by
    the program.
    """

    code: str
    message: str
    retryable: bool = True
    sentence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingForAnswer:
    """The run waits for the answer of a person.

    `default` is the answer if nobody answers in time. With `action`, the question asks for approval
    of exactly this text.
    """

    question: str
    context: str = ""
    options: tuple[str, ...] = ()
    expires_in: timedelta = timedelta(hours=24)
    default: str | None = None
    action: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """A person or a program cancelled the run."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """The deadline of the run or of its question has passed."""

    reason: str
    code: str = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The attempt vanished; how far it got is unknown.

    `wrote` says whether it has written to the outside; None if that is unknown.
    """

    reason: str
    wrote: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The run goes back to the queue unfinished: the worker shuts down or a budget is used up.

    If a budget is used up, `reason` names it, and the run may start again at `until`
    (microseconds).
    """

    until: int | None = None
    reason: str | None = None


Outcome: TypeAlias = Succeeded | Failed | WaitingForAnswer | Cancelled | Expired | Lost | Released


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message to send once the run has settled; `client_id` deduplicates it over retries."""

    client_id: str
    channel: str
    target: str
    body: str
    mail: MailFields | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReport:
    """The outcome of an attempt, and what is to be written in the same transaction.

    `exit` is the exit record as JSON, if there were processes. `away` is for how many
    microseconds they had been gone before this was noticed. `unbegun`: the program was not started,
    so nothing has read its input.
    """

    outcome: Outcome
    messages: tuple[OutgoingMessage, ...] = field(default=())
    exit: str | None = None
    notes: AttemptNotes | None = None
    away: int = 0
    unbegun: bool = False


DONE = AttemptReport(outcome=Succeeded())
"""The report of an attempt without a result."""


class Assignment(NamedTuple):
    """A lease with its task, the answers given so far, and the database it belongs to."""

    lease: Lease
    task: Task
    answers: tuple[str, ...] = ()
    incarnation: str = ""
    kept: KeptAttempt | None = None
    """The attempt that an earlier process started, to be adopted."""

    @property
    def trace_id(self) -> str:
        """Name of the run in every log."""
        return trace_id(self.incarnation, self.lease.run_id)

    @property
    def timeout(self) -> timedelta | None:
        """Time limit of the attempt."""
        return self.task.policy.timeout
