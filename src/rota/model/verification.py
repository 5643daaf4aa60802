"""Invariants, violations, and the rows that verification reads.

The numbers are those of the design. Its other invariants have no rows in a store to check, such as
those about processes, or describe behaviour over time, such as a backlog that drains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class Invariant(StrEnum):
    """A condition that always holds."""

    ONE_FATE = "I1"
    EVERY_SLOT = "I2"
    OF_A_SLOT = "I3"
    EPOCHS = "I4"
    ONE_END = "I5"
    FOLLOW_UP = "I6"
    FENCED = "I7"
    IN_REACH = "I8"
    SENT_ONCE = "I9"
    DECISIONS = "I11"
    LIMITS = "I12"
    SPACES = "I13"
    TRIES = "I14"
    QUOTA = "I17"
    REPLAY = "I18"
    BUDGETS = "I19"


class InvariantMeaning(NamedTuple):
    """The sentence of an invariant, and what to do if it is violated."""

    sentence: str
    advice: str


_RECORD = "stop Rota, keep a copy of the database, and report it with that copy"

MEANINGS: Mapping[Invariant, InvariantMeaning] = MappingProxyType(
    {
        Invariant.ONE_FATE: InvariantMeaning(
            "a slot or key has one run, and no ledger row as well unless it was backfilled",
            "check what the second run did, then cancel or delete it",
        ),
        Invariant.EVERY_SLOT: InvariantMeaning(
            "every planned slot has a run or a ledger row",
            "`rota why TASK` shows the gap, `rota backfill TASK` queues its slots; "
            "deleted schedules need nothing",
        ),
        Invariant.OF_A_SLOT: InvariantMeaning(
            "a run of a slot names that slot, and its schedule is its task's", _RECORD
        ),
        Invariant.EPOCHS: InvariantMeaning(
            "every attempt has its own epoch, without a gap", _RECORD
        ),
        Invariant.ONE_END: InvariantMeaning(
            "a finished run has ended once, any other never", _RECORD
        ),
        Invariant.FOLLOW_UP: InvariantMeaning(
            "results, messages and successors exist exactly if the end of the run calls for them",
            "see how it ended with `rota run RUN`, and run by hand what is missing",
        ),
        Invariant.FENCED: InvariantMeaning(
            "nothing was recorded under an epoch that never existed", _RECORD
        ),
        Invariant.IN_REACH: InvariantMeaning(
            "every unfinished run can be claimed, resumed or ended",
            "`rota up` rebuilds the queue heads within a minute; "
            "cancel the runs that remain and run them again",
        ),
        Invariant.SENT_ONCE: InvariantMeaning(
            "a message is sent at most once, and tried no more often than allowed",
            "ask its receiver what arrived",
        ),
        Invariant.DECISIONS: InvariantMeaning(
            "an approval is bound to exactly the bytes that were shown, and decided once",
            "ask again; do not act on that decision",
        ),
        Invariant.LIMITS: InvariantMeaning(
            "limits, rates and lanes are respected", "cancel the excess runs, and report it"
        ),
        Invariant.SPACES: InvariantMeaning(
            "everything that belongs to a run or task is in its space", _RECORD
        ),
        Invariant.TRIES: InvariantMeaning(
            "the numbers of retries and losses match the attempts and the policy", _RECORD
        ),
        Invariant.QUOTA: InvariantMeaning(
            "a run stores no more than its quota", "prune it, and store large data elsewhere"
        ),
        Invariant.REPLAY: InvariantMeaning("replaying a run's events gives its state", _RECORD),
        Invariant.BUDGETS: InvariantMeaning("used and reserved budgets match the runs", _RECORD),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A violated invariant, with the object that violates it."""

    invariant: Invariant
    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantCheck:
    """How many objects were checked for an invariant, and how many violate it."""

    invariant: Invariant
    looked_at: int = 0
    violated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Result of checking one consistent snapshot of a database.

    `violations` holds the first of each invariant, `checks` counts all of them; `unseen` says what
    was not checked, and why.
    """

    at: datetime
    checks: tuple[InvariantCheck, ...]
    violations: tuple[Violation, ...] = ()
    unseen: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether no invariant is violated."""
        return not any(check.violated for check in self.checks)


class TaskRecord(NamedTuple):
    """A task; deleted ones are included."""

    id: int
    space_id: int
    policy: str
    after_task_id: int | None
    after_space_id: int | None
    after_on: str | None
    enabled: int
    updated_at: int
    deleted_at: int | None


class RunRecord(NamedTuple):
    """A run, with the state of its upstream run and the task of its schedule."""

    id: int
    space_id: int
    task_id: int
    state: str
    source: str
    epoch: int
    retries: int
    losses: int
    created_at: int
    started_at: int | None
    finished_at: int | None
    expires_at: int | None
    schedule_id: int | None
    slot_key: str | None
    slot_at: int | None
    upstream_id: int | None
    key: str | None
    depth: int
    error_code: str | None
    error_length: int | None
    result_bytes: int | None
    payload_bytes: int
    upstream_state: str | None
    schedule_task_id: int | None
    in_ledger: int
    deliveries: int
    """Deliveries written by its end, without those sent while it ran."""
    astray: int
    deferred: int
    strays: int
    """Operations deferred by an epoch that never existed, or questions of an ended attempt."""
    applied: int
    """Deferred operations that were applied."""
    notices: int
    """Notifications that it needs a person."""


class NotificationRecord(NamedTuple):
    """A run, a notification target, and whether the target existed in time."""

    run_id: int
    place: str
    since: int
    at: int


class AttemptRecord(NamedTuple):
    """An ended attempt."""

    run_id: int
    number: int
    outcome: str


class EventRecord(NamedTuple):
    """An event that changed the state of a run; `state` is set for settled ones."""

    run_id: int
    name: str
    at: int
    space_id: int | None
    task_id: int | None
    state: str | None


class QuestionRecord(NamedTuple):
    """A question, open while `answered_at` is None."""

    run_id: int
    epoch: int
    kind: str
    answered_at: int | None
    answer: str | None
    action: str | None
    digest: str | None
    outcome: str | None = None


class RunHistory(NamedTuple):
    """The recorded history of one run."""

    attempts: Sequence[AttemptRecord] = ()
    events: Sequence[EventRecord] = ()
    questions: Sequence[QuestionRecord] = ()


class DeliveryRecord(NamedTuple):
    """A delivery, with its end and, if its run still exists, the run's state and space."""

    id: int
    run_id: int | None
    space_id: int
    state: str
    tries: int
    holder: str | None
    created_at: int
    sent_at: int | None
    refused: int
    run_state: str | None
    run_space_id: int | None
    ends: str | None


class ScheduleRecord(NamedTuple):
    """A schedule; deleted ones are included."""

    id: int
    rule: str
    generation: int
    stagger: str
    state: str
    cursor: int
    next_at: int | None
    updated_at: int
    deleted_at: int | None


class SlotRecord(NamedTuple):
    """A past slot, computed from the rule of its schedule."""

    schedule_id: int
    key: str
    at: int


class SlotFate(NamedTuple):
    """The recorded fate of a slot; without a ledger row the last four are None."""

    schedule_id: int
    key: str
    at: int
    has_run: int
    ledger_id: int | None
    first_at: int | None
    last_at: int | None
    told: int | None


class RunningRecord(NamedTuple):
    """Number of running runs for one combination of limits, and when the newest started."""

    pool: str
    space_id: int
    group: str
    metered: int
    runs: int
    newest: int


class ReadyRecord(NamedTuple):
    """Ready runs of one combination whose queue head is missing, closed or behind a gate."""

    pool: str
    space_id: int
    route: str
    group: str
    metered: int
    runs: int
    first: int
    open: int | None
    gate: str | None


class BlockedLaneRecord(NamedTuple):
    """Held runs of a lane that has no running or ready run."""

    space_id: int
    lane: str | None
    runs: int
    first: int


class ClaimHintRecord(NamedTuple):
    """What the next claim looks at again: a queue head, a lane, or all heads of a space."""

    pool: str
    space_id: int
    route: str | None
    group: str | None
    metered: int | None
    lane: str | None


class LimitRecord(NamedTuple):
    """A limit and since when it applies; for a rate, that instant moves with its bucket."""

    scope: str
    key: str
    cap: int | None
    rate: int | None
    period: int | None
    tokens: float | None
    refilled_at: int


class VerificationOverview(NamedTuple):
    """What is checked as a whole: few rows, or only those that break a rule."""

    now: int
    pruned_before: int
    limits: Sequence[LimitRecord]
    running: Sequence[RunningRecord]
    ready: Sequence[ReadyRecord]
    held: Sequence[BlockedLaneRecord]
    pings: Sequence[ClaimHintRecord]
    slots_twice: Sequence[tuple[int, str, int]]
    keys_twice: Sequence[tuple[int, str, int]]
    messages_twice: Sequence[tuple[str, int]]
    lanes_twice: Sequence[tuple[int, str, int, int]]
    orphans: Sequence[tuple[str, int]]
    spending: int = 0
    spending_wrong: Sequence[tuple[int, str]] = ()
