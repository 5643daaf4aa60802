"""Schedules: rules, slots, plans, ledger entries and pauses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from rota.model.ids import Epoch, RunId, ScheduleId, SpaceId, TaskId
from rota.model.runs import RunBatch
from rota.model.settlement import Settlement
from rota.model.tasks import Policy


class RuleKind(StrEnum):
    """Kind of a schedule's rule."""

    ONCE = "once"
    CRON = "cron"
    INTERVAL = "interval"
    RRULE = "rrule"
    CALENDAR = "calendar"


class Gap(StrEnum):
    """What happens to a slot at a local time that the spring change skips."""

    SHIFT = "shift"
    SKIP = "skip"


class Fold(StrEnum):
    """In which of two repeated local hours a slot runs."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class QuietMode(StrEnum):
    """What happens to a slot inside a quiet window."""

    POSTPONE = "postpone"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule in canonical form; equal rules yield the same slots.

    `expression` is the canonical text of its kind: a local or absolute ISO time (once), a cron
    line, an ISO 8601 duration (interval), RFC 5545 lines (rrule), or times and weekdays such as
    `07:00,17:30 mon-fri` (calendar). `anchor` is the instant from which intervals are counted and
    at which rules without a DTSTART start.
    """

    kind: RuleKind
    expression: str
    timezone: str = "UTC"
    anchor: datetime | None = None
    gap: Gap = Gap.SHIFT
    fold: Fold = Fold.FIRST
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    excluded: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    quiet_mode: QuietMode = QuietMode.POSTPONE
    jitter: timedelta = field(default=timedelta())


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One planned instant of a schedule.

    `key` identifies it permanently (nominal local time, zone and fold, or generation and index);
    `at` is the planned instant in UTC; `due` is when its run may start, after stagger and quiet
    windows.
    """

    key: str
    at: datetime
    due: datetime


PAST_ASKED_FOR = 0
"""The cursor of a one-time schedule in the past that was explicitly requested: due at once."""


class ScheduleState(StrEnum):
    """Whether a schedule still plans slots."""

    ACTIVE = "active"
    ENDED = "ended"
    QUARANTINED = "quarantined"


class LedgerReason(StrEnum):
    """Why a slot has no run."""

    DISABLED = "disabled"
    PAUSED = "paused"
    MISSED = "missed"
    TOO_LATE = "too_late"
    COALESCED = "coalesced"
    CATCH_UP_CAP = "catch_up_cap"
    OVERLAP = "overlap"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """A schedule as stored; `rule` is the JSON record of its rule.

    `generation` changes when the slots of the rule change, `version` with everything that a plan
    depends on.
    """

    id: ScheduleId
    task_id: TaskId
    task: str
    space: str
    name: str
    rule: str
    generation: int
    version: int
    state: ScheduleState
    note: str | None
    cursor: datetime
    next_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRun:
    """An unfinished run in a task's lane, as the overlap policy sees it."""

    run_id: RunId
    epoch: Epoch
    state: str
    planned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSchedule:
    """A schedule whose next slot is due, with everything needed to plan it."""

    id: ScheduleId
    version: int
    generation: int
    rule: str
    stagger: str
    cursor: int
    next_at: int
    task_id: TaskId
    space_id: SpaceId
    route: str
    policy: Policy
    enabled: bool
    enabled_since: int
    paused_until: int | None
    pauses: Pauses = ()
    active: tuple[ActiveRun, ...] = ()
    thread: str | None = None
    in_conversation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleCursor:
    """Position of a schedule that waits for its next slot.

    `slot_key` is the key of the slot at the cursor, if the store still has one.
    """

    id: ScheduleId
    version: int
    generation: int
    rule: str
    stagger: str
    cursor: int
    next_at: int
    slot_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """Consecutive slots of one schedule that did not run for the same reason."""

    reason: LedgerReason
    first_key: str
    last_key: str
    first_at: int
    last_at: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePlan:
    """What happens to the due slots of one schedule; applied completely or not at all.

    It is applied only if the schedule still has the cursor `was` and the version it was made for,
    and the same pauses are in force. The version changes with the schedule and with its task.
    """

    schedule_id: ScheduleId
    version: int
    was: int
    cursor: int
    next_at: int | None
    state: ScheduleState = ScheduleState.ACTIVE
    note: str | None = None
    runs: tuple[RunBatch, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    cancels: tuple[Settlement, ...] = ()
    cancel_running: tuple[RunId, ...] = ()
    pauses: Pauses = ()


Decide: TypeAlias = Callable[[DueSchedule, int], SchedulePlan]
"""Plans the due slots of one schedule at an instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """How many schedules were planned, and when the next slot and the next delayed run are due.

    `cut` means that planning took so long that some due schedules were left for the next step.
    """

    schedules: int
    slot_at: int | None
    later_at: int | None
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """A ledger entry as stored."""

    schedule_id: ScheduleId
    schedule: str
    reason: LedgerReason
    first_key: str
    last_key: str
    first_at: datetime
    last_at: datetime
    count: int
    noted_at: datetime = field()


MAX_PAUSES = 500


class Pause(NamedTuple):
    """A span in which everything was paused; open if `until` is None."""

    since: int
    until: int | None

    def holds(self, instant: int) -> bool:
        """Whether an instant is within the pause."""
        return self.since <= instant and (self.until is None or instant < self.until)


Pauses = tuple[Pause, ...]
"""Pauses that still matter, oldest first; only the last can be open."""


def paused_since(pauses: Pauses) -> int | None:
    """Return when the current pause began, if everything is paused."""
    return pauses[-1].since if pauses and pauses[-1].until is None else None


def was_paused(pauses: Pauses, instant: int) -> bool:
    """Whether everything was paused at an instant."""
    return any(pause.holds(instant) for pause in pauses)


@lru_cache(maxsize=16)
def read_pauses(ended: str | None, going_on: str | None) -> Pauses:
    """Parse pauses from the text that a store keeps."""
    pauses = [Pause(since, until) for since, until in json.loads(ended or "[]")]
    if going_on is not None:
        pauses.append(Pause(int(going_on), None))
    return tuple(pauses)


def write_pauses(pauses: Iterable[Pause]) -> str:
    """Return ended pauses as the text that a store keeps.

    If there are too many, the oldest are merged: nothing was planned between them either.
    """
    kept = list(pauses)
    while len(kept) > MAX_PAUSES:
        kept[:2] = [Pause(kept[0].since, kept[1].until)]
    return json.dumps(kept)
