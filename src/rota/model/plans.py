"""What planning reads and writes: due schedules, ledger rows, and the plan for one schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from rota.model.ids import Epoch, RunId, ScheduleId, SpaceId, TaskId
from rota.model.pauses import Pauses
from rota.model.runs import RunBatch
from rota.model.settlements import Settlement
from rota.model.tasks import Policy

PAST_ASKED_FOR = 0
"""The cursor of a schedule whose one past instant somebody asked for: it is due at once."""


class ScheduleState(StrEnum):
    """Whether a schedule still yields slots."""

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
    """A schedule as it stands in the store; `rule` is the JSON record of its rule.

    `generation` changes with the slots the rule yields, `version` with everything a plan rests on.
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
    """An unfinished run in a task's lane, as far as the overlap policy cares."""

    run_id: RunId
    epoch: Epoch
    state: str
    planned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSchedule:
    """A schedule whose next slot has come, with what is needed to decide about it."""

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
class StandingSchedule:
    """Where a schedule that waits for its next slot stands.

    `slot_key` names the slot at its cursor, if there is one and the store still has it.
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
    """Consecutive slots of one schedule that did not run, for one reason."""

    reason: LedgerReason
    first_key: str
    last_key: str
    first_at: int
    last_at: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What becomes of the slots of one schedule, applied whole or not at all.

    It applies only while the schedule still has the cursor and version it was made for, and while
    the same pauses stand. A version changes with the schedule and with its task.
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


Decide: TypeAlias = Callable[[DueSchedule, int], Plan]
"""Says what becomes of the due slots of one schedule at an instant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """How many schedules were planned, and when the next slot and the next delayed run are.

    It was `cut` if deciding took so long that some of what was due was left to the next one.
    """

    schedules: int
    slot_at: int | None
    later_at: int | None
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """A ledger entry as it stands in the store."""

    schedule_id: ScheduleId
    schedule: str
    reason: LedgerReason
    first_key: str
    last_key: str
    first_at: datetime
    last_at: datetime
    count: int
    noted_at: datetime = field()
