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

A retry or a delay is QUEUED with a later `available_at`. Where a queued run stands in the queue is
its queue state: READY (it may be claimed), DELAYED (not yet available) or HELD (behind its lane).

Invariants, held by every store and checked by its contract suite:

1. A run has a holder exactly while it is RUNNING.
2. Only the newest epoch moves a run out of RUNNING; every other writer changes nothing.
3. A finished run never changes again, except to be pruned.
4. A run has a place exactly while it is QUEUED.
5. At most one run of a lane is RUNNING, and at most one is READY.
6. Every end of a run appends one event in the same transaction.
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

LONGEST_PAYLOAD = 256 * 1024
"""How many bytes a payload may have."""


class RunSource(StrEnum):
    """What made a run."""

    SLOT = "slot"
    CATCH_UP = "catch_up"
    ENQUEUE = "enqueue"
    MANUAL = "manual"
    BACKFILL = "backfill"
    AFTER = "after"


class AttemptCause(StrEnum):
    """Why an attempt was made; only `retry` counts against the retry policy."""

    FIRST = "first"
    RETRY = "retry"
    LOST = "lost"
    RESUME = "resume"
    RELEASED = "released"


class NewRun(NamedTuple):
    """A run to be queued, but for its payload and key; the store gives it its id and place.

    A tuple, because a planner makes thousands at one instant.
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
        """Return the key of one of its runs."""
        return self.keys[index] if self.keys else None


class Enqueued(NamedTuple):
    """What became of one run that was to be queued.

    `created` is false when a run with the same key and payload stood there already; `conflict`
    is true when its payload differs, and then nothing was changed.
    """

    run_id: RunId
    created: bool = True
    conflict: bool = False


class Lease(NamedTuple):
    """The right to work on a run, given by a claim; `epoch` fences everything it records.

    A tuple, because a busy worker makes tens of thousands of them a second.
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
        """The planned instant of the run's slot, if it has one."""
        return maybe_instant(self.slot_micros)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as it stands in the store."""

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
    """When the work of its newest attempt ended, which may be long before anybody heard of it."""

    @property
    def took(self) -> timedelta | None:
        """How long its newest attempt has worked, once that is over."""
        ended = self.ended_at or self.finished_at
        if self.started_at is None or ended is None:
            return None
        return max(ended - self.started_at, timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedAttempt:
    """One try at a run, ended; `exit` tells how its processes ended, where it had any.

    `check_results` is what its task's checks found.
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
    """What a decision about a run that has not finished needs to know."""

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
    """Who held it when it was found lost."""
    restored: bool = False
    """It was running when the backup was taken that a restore has put here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question a run waits on; answered once.

    `kind` is `ask` or `approval` (by the run) or `lost` (by Rota).
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
    """What counts as the answer when nobody gave one in time."""
    action: str | None = None
    digest: str | None = None
    """What an approval shows, and the SHA-256 of exactly that."""
    outcome: str | None = None
    """What came of an action that was approved and that Rota did itself, as JSON."""


class RunState(StrEnum):
    """Where a run is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class QueueState(StrEnum):
    """Where a queued run stands in the queue."""

    READY = "ready"
    DELAYED = "delayed"
    HELD = "held"


class RunTransition(StrEnum):
    """What can happen to a run."""

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
    """Return the state a move leads to, or raise IllegalMove."""
    try:
        return MOVES[state, move]
    except KeyError:
        raise IllegalMove(state, move) from None
