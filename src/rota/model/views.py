"""Answers of the store that are no values of their own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from rota.model.events import Event
from rota.model.heartbeats import Heartbeat
from rota.model.ids import RunId, TaskId, WorkerId
from rota.model.notifications import Delivery
from rota.model.runs import EndedAttempt, Lease, Question, Run, RunState
from rota.model.tasks import Task, TaskKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """The leases a claim gave, with their tasks and the answers people have given to their runs.

    `retry_at` is when a spent rate will let the next run start; `more` says that the claim stopped
    looking before it had seen everything.
    """

    leases: list[Lease]
    tasks: dict[int, Task]
    answers: dict[int, tuple[str, ...]]
    retry_at: int | None = None
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRenewal:
    """Whether a worker is still trusted, which runs it holds, and which of them are to stop."""

    alive: bool
    held: tuple[RunId, ...] = ()
    cancels: tuple[RunId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run with everything that belongs to it, as it stands at one instant.

    `output` is the newest of what its programs wrote, and of its `deliveries` the newest.
    """

    run: Run
    attempts: list[EndedAttempt]
    events: list[Event]
    output: list[Event]
    deliveries: list[Delivery]
    questions: list[Question]
    heartbeat: Heartbeat | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to list, newest first; `before` continues a list after its last id."""

    task_id: TaskId | None = None
    space_id: int | None = None
    state: RunState | None = None
    before: RunId | None = None
    limit: int = 50
    suppressed: bool = True
    """With those whose gate woke nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Which tasks to list, newest first; `before` continues a list after its last id."""

    space_id: int | None = None
    name: str | None = None
    thread: str | None = None
    kind: TaskKind | None = None
    enabled: bool | None = None
    words: str | None = None
    before: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker as status shows it."""

    id: WorkerId
    host: str
    pid: int
    roles: str
    routes: tuple[str, ...]
    slots: int
    running: int
    started_at: datetime
    seen_at: datetime
    lease_until: datetime
    fenced: bool
    gone: bool = False
    """Whether its process is known to be gone, though its lease lasts."""
    leaving: bool = False
    """Whether it takes nothing new."""

    def alive(self, now: datetime) -> bool:
        """Whether it is there, as far as is known."""
        return not self.fenced and not self.gone and self.lease_until >= now

    def takes(self, now: datetime) -> bool:
        """Whether it takes work."""
        return self.alive(now) and not self.leaving


class SlotView(NamedTuple):
    """A slot of a worker that is in use: the run in it, and since when."""

    run_id: RunId
    task: str
    space: str
    worker: str | None
    since: datetime


class DeadDeliveriesView(NamedTuple):
    """How many messages could not be sent, and the last of them: of which run, to where, and why.

    `run_id` is None where a message is of no run, or has outlived it.
    """

    messages: int
    run_id: RunId | None
    to: str
    error: str | None


class PoolView(NamedTuple):
    """What is ready in a pool."""

    pool: str
    ready: int
    oldest_ready: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """How full the queue is, as a whole or for one space.

    `unsent` counts deliveries by their state; `next_due` is known for one space alone.
    """

    ready: int
    delayed: int
    held: int
    running: int
    waiting: int
    stuck: int
    oldest_ready: datetime | None
    oldest_running: datetime | None
    oldest_waiting: datetime | None
    unserved_routes: tuple[str, ...]
    schedules: int
    quarantined: int
    pools: tuple[PoolView, ...] = ()
    unsent: tuple[tuple[str, int], ...] = ()
    next_due: datetime | None = None
