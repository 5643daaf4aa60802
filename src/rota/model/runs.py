"""The work: a run to be queued, a lease on one, a run as people see it, and its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from rota.model.checks import Checked, Mark
from rota.model.ids import Epoch, QuestionId, RunId, ScheduleId, SpaceId, TaskId, WorkerId
from rota.model.instants import maybe_instant
from rota.model.states import Place, RunState
from rota.model.tasks import Pool

LONGEST_PAYLOAD = 256 * 1024
"""How many bytes a payload may have."""


class Source(StrEnum):
    """What made a run."""

    SLOT = "slot"
    CATCH_UP = "catch_up"
    ENQUEUE = "enqueue"
    MANUAL = "manual"
    BACKFILL = "backfill"
    AFTER = "after"


class Cause(StrEnum):
    """Why an attempt was made; only `retry` counts against the retry policy."""

    FIRST = "first"
    RETRY = "retry"
    LOST = "lost"
    RESUME = "resume"
    DRAINED = "drained"


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
    source: Source = Source.ENQUEUE
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
    asked: int
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
    place: Place | None
    source: Source
    pool: Pool
    priority: int
    lane: str | None
    route: str
    epoch: Epoch
    cause: Cause
    retries: int
    losses: int
    created_at: datetime
    available_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    cancel_requested_at: datetime | None
    stuck: bool
    holder: WorkerId | None
    schedule_id: ScheduleId | None
    slot_key: str | None
    slot_at: datetime | None
    upstream_id: RunId | None
    key: str | None
    payload: str
    result: str | None
    error_code: str | None
    error: str | None
    checked: Checked | None = None
    mark: Mark | None = None
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
class Attempt:
    """One try at a run, ended; `ending` tells how its processes ended, where it had any.

    `checks` is what its task's checks found.
    """

    run_id: RunId
    number: Epoch
    cause: Cause
    worker: WorkerId | None
    started_at: datetime
    ended_at: datetime
    outcome: str
    error: str | None
    ending: dict[str, object] | None = None
    checks: list[dict[str, object]] | None = None


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
    holder: str | None = None
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
