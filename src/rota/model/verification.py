"""Invariants, violations, and the rows that verification reads.

The numbers are those of the design: an invariant that has no object in the store (processes,
inbound messages) or that is no state of it (a backlog that drains) is not in the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class Invariant(StrEnum):
    """One thing that always holds."""

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
    """What an invariant says, and what to do where it does not hold."""

    sentence: str
    advice: str


_RECORD = "stop Rota, keep a copy of the database, and report it with that copy"

MEANINGS: Mapping[Invariant, InvariantMeaning] = MappingProxyType(
    {
        Invariant.ONE_FATE: InvariantMeaning(
            "a slot or key has one run, and no ledger row beside it unless it was backfilled",
            "check what the second one did, then cancel or delete it",
        ),
        Invariant.EVERY_SLOT: InvariantMeaning(
            "every planned slot has a run or a ledger row",
            "`rota why TASK` shows the gap, `rota backfill TASK` queues its slots; "
            "what is deleted needs nothing",
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
            "results, messages and successors are there exactly when the run's end says so",
            "see what it ended with by `rota run RUN`, and run by hand what is missing",
        ),
        Invariant.FENCED: InvariantMeaning(
            "nothing was recorded under an epoch that never was", _RECORD
        ),
        Invariant.IN_REACH: InvariantMeaning(
            "everything unfinished is in somebody's reach",
            "`rota up` rebuilds what claiming looks at within a minute; "
            "what stays, cancel and run again",
        ),
        Invariant.SENT_ONCE: InvariantMeaning(
            "a message is sent at most once, and tried no more often than allowed",
            "ask its receiver what arrived",
        ),
        Invariant.DECISIONS: InvariantMeaning(
            "an approval is about exactly the bytes that were shown, and decided once",
            "ask again; do not act on that decision",
        ),
        Invariant.LIMITS: InvariantMeaning(
            "limits, rates and lanes hold", "cancel what is too much, and report it"
        ),
        Invariant.SPACES: InvariantMeaning(
            "whatever belongs to a run or task is in its space", _RECORD
        ),
        Invariant.TRIES: InvariantMeaning(
            "retries and losses are what the record says, and no more than allowed", _RECORD
        ),
        Invariant.QUOTA: InvariantMeaning(
            "a run stores no more than its quota", "prune it, and store large data elsewhere"
        ),
        Invariant.REPLAY: InvariantMeaning("a run's events, replayed, give its state", _RECORD),
        Invariant.BUDGETS: InvariantMeaning(
            "what budgets count as used and set aside is what the runs say", _RECORD
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """An invariant that does not hold, for one thing."""

    invariant: Invariant
    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantCheck:
    """How much was looked at for an invariant, and how often it did not hold."""

    invariant: Invariant
    looked_at: int = 0
    violated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a look at one consistent view of a database found.

    `violations` holds the first of each invariant, `checks` count them all; `unseen` says what was
    not looked at, and why.
    """

    at: datetime
    checks: tuple[InvariantCheck, ...]
    violations: tuple[Violation, ...] = ()
    unseen: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether everything holds."""
        return not any(check.violated for check in self.checks)


class TaskRecord(NamedTuple):
    """A task, deleted ones included."""

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
    """A run, with the state of the run it follows and the task of its schedule."""

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
    """Those that its end brought, and none that it sent while it ran."""
    astray: int
    deferred: int
    strays: int
    """Deferred by an epoch that never was, or asked by an attempt that has ended."""
    applied: int
    """What it had deferred, and was done."""
    notices: int
    """What people were told of it because it needs them."""


class NotificationRecord(NamedTuple):
    """A run, a place, since when that is told of such, and an instant before it had to be."""

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
    """An event that moved a run; `state` is what a settled one says."""

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
    """What is on record about one run."""

    attempts: Sequence[AttemptRecord] = ()
    events: Sequence[EventRecord] = ()
    questions: Sequence[QuestionRecord] = ()


class DeliveryRecord(NamedTuple):
    """A delivery, with its run's state and space if that is still there, and how it ended."""

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
    """A schedule, deleted ones included."""

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
    """A slot that the rule of a schedule says there was."""

    schedule_id: int
    key: str
    at: int


class SlotFate(NamedTuple):
    """What is on record about a slot; without a ledger row its last four are None."""

    schedule_id: int
    key: str
    at: int
    has_run: int
    ledger_id: int | None
    first_at: int | None
    last_at: int | None
    told: int | None


class RunningRecord(NamedTuple):
    """How many runs are going on in one combination that limits count, and since when."""

    pool: str
    space_id: int
    group: str
    metered: int
    runs: int
    newest: int


class ReadyRecord(NamedTuple):
    """Ready runs of one combination whose head is missing, shut or behind a gate."""

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
    """Held runs of a lane of which none is running or ready."""

    space_id: int
    lane: str | None
    runs: int
    first: int


class ClaimHintRecord(NamedTuple):
    """Where the next claim looks again: a head, a lane, or all heads of a space."""

    pool: str
    space_id: int
    route: str | None
    group: str | None
    metered: int | None
    lane: str | None


class LimitRecord(NamedTuple):
    """A limit, and since when it holds; a rate's bucket moves that instant."""

    scope: str
    key: str
    cap: int | None
    rate: int | None
    period: int | None
    tokens: float | None
    refilled_at: int


class VerificationOverview(NamedTuple):
    """What is looked at as a whole: few rows, or only those that break a rule."""

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
