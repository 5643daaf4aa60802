"""Runs: states and transitions, leases, ended attempts, questions.

              claim                  succeed, fail, cancel
    QUEUED ------------------> RUNNING ----------------------> SUCCEEDED, FAILED, CANCELLED
    ^  |  ^                     |   |
    |  |  +--- retry, lose -----+   | ask
    |  |                            v
    |  |   +------- answer ------ WAITING
    |  |   |                        |
    +--+---+                        +----> CANCELLED (cancel), EXPIRED (expire), FAILED (fail)
       |
       +----> CANCELLED (cancel), EXPIRED (expire), FAILED (fail)

A retry or a delay is QUEUED with a later `available_at`. The place of a queued run in its queue is
READY (it can be claimed), DELAYED (not yet available) or HELD (behind another run of its lane).

Invariants, kept by every store and tested by the contract suite:

1. A run has a holder exactly while it is RUNNING.
2. Only the newest epoch moves a run out of RUNNING; every other writer changes nothing.
3. A finished run never changes again, except to be pruned.
4. A run has a place if and only if it is QUEUED.
5. At most one run of a lane is RUNNING, and at most one is READY.
6. The end of a run appends one event in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from rota.errors import IllegalMove
from rota.model.checks import CheckState, SuppressionReason
from rota.model.ids import Epoch, QuestionId, RunId, ScheduleId, SpaceId, TaskId, WorkerId
from rota.model.instants import maybe_instant
from rota.model.tasks import Pool

MAX_PAYLOAD_BYTES = 256 * 1024
"""Bytes of a payload."""


class RunSource(StrEnum):
    """What created a run."""

    SLOT = "slot"
    CATCH_UP = "catch_up"
    ENQUEUE = "enqueue"
    MANUAL = "manual"
    BACKFILL = "backfill"
    AFTER = "after"


class AttemptCause(StrEnum):
    """Why an attempt was started; only `retry` counts against the retry policy."""

    FIRST = "first"
    RETRY = "retry"
    LOST = "lost"
    RESUME = "resume"
    RELEASED = "released"


class NewRun(NamedTuple):
    """A run to be queued, without payload and key; the store assigns its id and place.

    A tuple for speed: a planner may create thousands at one instant.
    """

    space_id: SpaceId
    task_id: TaskId
    route: str
    pool: Pool = Pool.BACKGROUND
    priority: int = 0
    lane: str | None = None
    group: str = ""
    metered: bool = True
    source: RunSource = RunSource.ENQUEUE
    available_at: int | None = None
    expires_at: int | None = None
    schedule_id: ScheduleId | None = None
    slot_key: str | None = None
    slot_at: int | None = None
    upstream_id: RunId | None = None
    depth: int = 0
    thread: str | None = None


class RunBatch(NamedTuple):
    """Runs that differ only in payload (JSON text) and key."""

    template: NewRun
    payloads: Sequence[str]
    keys: Sequence[str | None] = ()

    def key(self, index: int) -> str | None:
        """Return the key of the run at an index."""
        return self.keys[index] if self.keys else None


class Enqueued(NamedTuple):
    """The result of queueing one run.

    `created` is false if a run with the same key and payload already existed. `conflict` is true if
    one with the same key and another payload existed; then nothing was changed.
    """

    run_id: RunId
    created: bool = True
    conflict: bool = False


class Lease(NamedTuple):
    """The right to execute a run, given by a claim; `epoch` fences everything it records.

    A tuple for speed: a busy worker makes tens of thousands a second.
    """

    run_id: RunId
    epoch: Epoch
    space_id: SpaceId
    task_id: TaskId
    route: str
    cause: str
    retries: int
    losses: int
    created_micros: int
    expires_micros: int | None
    slot_micros: int | None
    slot_key: str | None
    depth: int
    question_count: int
    thread: str | None
    key: str | None
    payload: str

    @property
    def slot_at(self) -> datetime | None:
        """Planned instant of the run's slot, if it has one."""
        return maybe_instant(self.slot_micros)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as stored."""

    id: RunId
    space: str
    task_id: TaskId
    task: str
    state: RunState
    queue_state: QueueState | None
    source: RunSource
    pool: Pool
    priority: int
    lane: str | None
    route: str
    epoch: Epoch
    cause: AttemptCause
    retries: int
    losses: int
    created_at: datetime
    available_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    cancel_requested_at: datetime | None
    stuck: bool
    worker_id: WorkerId | None
    schedule_id: ScheduleId | None
    slot_key: str | None
    slot_at: datetime | None
    upstream_id: RunId | None
    key: str | None
    payload: str
    result: str | None
    error_code: str | None
    error: str | None
    check_state: CheckState | None = None
    suppressed: SuppressionReason | None = None
    ended_at: datetime | None = None
    """When its newest attempt ended, possibly long before that was noticed."""

    @property
    def took(self) -> timedelta | None:
        """Duration of the newest attempt, once it has ended."""
        ended = self.ended_at or self.finished_at
        if self.started_at is None or ended is None:
            return None
        return max(ended - self.started_at, timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAttempt:
    """An attempt that has ended; `exit` is its exit record, if it had processes.

    `check_results` holds the results of its task's checks.
    """

    run_id: RunId
    epoch: Epoch
    cause: AttemptCause
    worker_id: WorkerId | None
    started_at: datetime
    ended_at: datetime
    outcome: str
    error: str | None
    exit: dict[str, object] | None = None
    check_results: list[dict[str, object]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """What is needed to decide about an unfinished run."""

    run_id: RunId
    task_id: TaskId
    space_id: SpaceId
    state: RunState
    epoch: Epoch
    retries: int
    losses: int
    created_micros: int
    depth: int
    cancel_requested: bool = False
    worker_id: str | None = None
    """The worker that held it when it was found lost."""
    restored: bool = False
    """Whether it was running in the backup from which the store was restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question that a run waits for; it is answered once.

    `kind` is `ask` or `approval` (asked by the run) or `lost` (asked by Rota).
    """

    id: QuestionId
    run_id: RunId
    epoch: Epoch
    kind: str
    question: str
    context: str
    options: tuple[str, ...]
    asked_at: datetime
    expires_at: datetime
    answered_at: datetime | None
    answer: str | None
    answered_by: str | None
    default: str | None = None
    """The answer if nobody answers in time."""
    action: str | None = None
    digest: str | None = None
    """The action shown for approval, and the SHA-256 of exactly that text."""
    outcome: str | None = None
    """Result of an approved action that Rota carried out itself, as JSON."""


class RunState(StrEnum):
    """State of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class QueueState(StrEnum):
    """Place of a queued run in its queue."""

    READY = "ready"
    DELAYED = "delayed"
    HELD = "held"


class RunTransition(StrEnum):
    """A transition between states."""

    CLAIM = "claim"
    ASK = "ask"
    ANSWER = "answer"
    RETRY = "retry"
    LOSE = "lose"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"


FINISHED = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.EXPIRED})

MOVES = MappingProxyType(
    {
        (RunState.QUEUED, RunTransition.CLAIM): RunState.RUNNING,
        (RunState.QUEUED, RunTransition.FAIL): RunState.FAILED,
        (RunState.QUEUED, RunTransition.CANCEL): RunState.CANCELLED,
        (RunState.QUEUED, RunTransition.EXPIRE): RunState.EXPIRED,
        (RunState.RUNNING, RunTransition.SUCCEED): RunState.SUCCEEDED,
        (RunState.RUNNING, RunTransition.FAIL): RunState.FAILED,
        (RunState.RUNNING, RunTransition.CANCEL): RunState.CANCELLED,
        (RunState.RUNNING, RunTransition.EXPIRE): RunState.EXPIRED,
        (RunState.RUNNING, RunTransition.RETRY): RunState.QUEUED,
        (RunState.RUNNING, RunTransition.LOSE): RunState.QUEUED,
        (RunState.RUNNING, RunTransition.ASK): RunState.WAITING,
        (RunState.WAITING, RunTransition.ANSWER): RunState.QUEUED,
        (RunState.WAITING, RunTransition.FAIL): RunState.FAILED,
        (RunState.WAITING, RunTransition.CANCEL): RunState.CANCELLED,
        (RunState.WAITING, RunTransition.EXPIRE): RunState.EXPIRED,
    }
)


def after(state: RunState, move: RunTransition) -> RunState:
    """Return the state after a transition; raise IllegalMove if it is not allowed."""
    try:
        return MOVES[state, move]
    except KeyError:
        raise IllegalMove(state, move) from None
