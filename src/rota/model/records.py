"""Rows as an examiner sees them: instants in microseconds, long texts by their length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


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


class NoticeRecord(NamedTuple):
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


class History(NamedTuple):
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


class HeldRecord(NamedTuple):
    """Held runs of a lane of which none is running or ready."""

    space_id: int
    lane: str | None
    runs: int
    first: int


class PingRecord(NamedTuple):
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


class Overview(NamedTuple):
    """What is looked at as a whole: few rows, or only those that break a rule."""

    now: int
    pruned_before: int
    limits: Sequence[LimitRecord]
    running: Sequence[RunningRecord]
    ready: Sequence[ReadyRecord]
    held: Sequence[HeldRecord]
    pings: Sequence[PingRecord]
    slots_twice: Sequence[tuple[int, str, int]]
    keys_twice: Sequence[tuple[int, str, int]]
    messages_twice: Sequence[tuple[str, int]]
    lanes_twice: Sequence[tuple[int, str, int, int]]
    orphans: Sequence[tuple[str, int]]
    spending: int = 0
    spending_wrong: Sequence[tuple[int, str]] = ()
