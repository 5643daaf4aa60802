"""The queue, workers, their availability, and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from rota.flow.observe.passed_over_slots import PassedOver, passed_over
from rota.flow.observe.time_text import count_text, duration_text, whole_line
from rota.model.clock_jumps import Leap
from rota.model.instants import from_micros, maybe_instant
from rota.model.schedules import paused_since
from rota.model.views import DeadDeliveriesView, QueueView, SlotView, WorkerView
from rota.rules.clock_jumps import planned_too_early, recent_jump
from rota.store import plans as store_plans
from rota.store import views as store_views
from rota.store.budgets import count_over_budget
from rota.store.clock_jumps import get_clock_jumps
from rota.store.plans import get_pauses
from rota.store.store import Store
from rota.store.views import dead_deliveries, list_busy_slots, view_queue

AGAIN = "run `rota start`"


class IdleReason(NamedTuple):
    """Why no worker claims runs, and the correction."""

    what: str
    step: str

    def sentence(self) -> str:
        """Return both as one sentence."""
        return f"{self.what}: {self.step}"


NOBODY = IdleReason("no worker is running", "start `rota up`")
RESTING = IdleReason("the daemon is running without a worker", AGAIN)
STOPPED = "stopped"
IDLE = {
    STOPPED: IdleReason("the daemon is stopped", AGAIN),
    "stopping": IdleReason("the daemon is stopping and claims nothing new", AGAIN),
    "ending": IdleReason(
        "the daemon is shutting down and claims nothing new", "then start `rota up` again"
    ),
    "starting": IdleReason("the daemon is starting", "wait a moment"),
}
"""By the state that a daemon reports."""


class DaemonState(NamedTuple):
    """The reported state of the daemon, and its current or last worker."""

    state: str
    worker: str | None


class WorkerAvailability(NamedTuple):
    """The workers, and the reason if none of them claims runs."""

    workers: list[WorkerView]
    idle: IdleReason


async def list_workers(store: Store) -> list[WorkerView]:
    """Return every worker; those of this host are gone where nobody has the roles."""
    is_gone = store.database.is_gone
    found = await store.read(store_views.list_workers)
    return [replace(each, gone=each.gone or is_gone(each.host)) for each in found]


async def worker_availability(store: Store, own: DaemonState | None) -> WorkerAvailability:
    """Return the availability of workers; `own` is the answering daemon, if any."""
    workers = await list_workers(store)
    if own is not None and own.state in IDLE:
        return WorkerAvailability([_leaving(worker, own) for worker in workers], IDLE[own.state])
    return WorkerAvailability(
        workers, RESTING if own is None and store.database.roles_taken() else NOBODY
    )


def _leaving(worker: WorkerView, own: DaemonState) -> WorkerView:
    """Return a worker; that of a stopped daemon keeps its lease while its programs run."""
    if worker.id != own.worker:
        return worker
    return replace(worker, leaving=True, gone=worker.gone or own.state == STOPPED)


MAX_SLOTS = 100
"""Number of slots for which their runs are listed."""
LATELY = timedelta(days=1)
"""How long a message that could not be sent is reported."""
OVERDUE = timedelta(seconds=60)
"""A schedule that is due for this long has no planner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarningThresholds:
    """Thresholds of warnings."""

    queue: int = 25
    running: timedelta = timedelta(minutes=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWarning:
    """A warning; the code is stable."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status summary; ages are in seconds."""

    now: datetime
    queue: QueueView
    workers: list[WorkerView]
    next_due: datetime | None
    ages: dict[str, float] = field(default_factory=dict)
    paused_since: datetime | None = None
    warnings: list[StatusWarning] = field(default_factory=list)
    slots: list[SlotView] = field(default_factory=list)
    idle: IdleReason | None = None
    """Why no worker claims runs, if so."""


async def view_status(
    store: Store,
    bounds: WarningThresholds,
    space_id: int | None = None,
    own: DaemonState | None = None,
) -> Status:
    """Return the status of the database, or of one space with all numbers limited to it."""
    hands = await worker_availability(store, own)
    queue = await store.read(view_queue, space_id)
    slots = await store.read(list_busy_slots, space_id, MAX_SLOTS) if queue.running else []
    leaps = await store.read(get_clock_jumps)
    early = planned_too_early(leaps, store.now())
    seen = judge(
        from_micros(store.now()),
        queue,
        hands.workers,
        queue.next_due
        if space_id is not None
        else maybe_instant(await store.read(store_plans.next_due)),
        bounds,
        maybe_instant(paused_since(await store.read(get_pauses))),
        await store.read(count_over_budget, space_id),
        hands.idle,
        await store.read(
            dead_deliveries, space_id, store.now() - LATELY // timedelta(microseconds=1)
        ),
    )
    passed = [] if early is None else await passed_over(store, early, space_id)
    leapt = _leap_warnings(seen.now, recent_jump(leaps, store.now()), early, passed)
    return replace(seen, slots=slots, warnings=[*seen.warnings, *leapt])


def judge(
    now: datetime,
    queue: QueueView,
    workers: list[WorkerView],
    next_due: datetime | None,
    bounds: WarningThresholds,
    paused: datetime | None = None,
    held_back: tuple[int, str | None] = (0, None),
    idle: IdleReason = NOBODY,
    dead: DeadDeliveriesView | None = None,
) -> Status:
    """Return the status for the given data."""
    oldest = {
        "ready": queue.oldest_ready,
        "running": queue.oldest_running,
        "waiting": queue.oldest_waiting,
    }
    ages = {
        name: max(0.0, (now - at).total_seconds()) for name, at in oldest.items() if at is not None
    }
    taken = any(worker.takes(now) for worker in workers)
    warnings = [
        *_pause_warnings(paused),
        *_budget_warnings(*held_back),
        *_queue_warnings(now, queue, bounds),
        *_worker_warnings(now, queue, None if taken else idle, next_due),
        *_delivery_warnings(dead),
    ]
    return Status(
        now=now,
        queue=queue,
        workers=workers,
        next_due=next_due,
        ages=ages,
        paused_since=paused,
        warnings=warnings,
        idle=None if taken else idle,
    )


def _pause_warnings(paused: datetime | None) -> list[StatusWarning]:
    if paused is None:
        return []
    sentence = f"everything is paused since {paused:%Y-%m-%d %H:%M} UTC: nothing new starts"
    return [StatusWarning(code="paused", sentence=sentence)]


def _budget_warnings(runs: int, why: str | None) -> list[StatusWarning]:
    if not runs:
        return []
    sentence = f"{count_text(runs, 'run')} waiting for budgets: {why}"
    return [StatusWarning(code="budget_spent", sentence=sentence)]


def _queue_warnings(
    now: datetime, queue: QueueView, bounds: WarningThresholds
) -> list[StatusWarning]:
    found = []
    if queue.ready >= bounds.queue:
        sentence = (
            f"{count_text(queue.ready, 'run')} ready and not started (warning from {bounds.queue})"
        )
        found.append(StatusWarning(code="queue_depth_high", sentence=sentence))
    since = queue.oldest_running
    if since is not None and now - since >= bounds.running:
        sentence = (
            f"a run has been running for {duration_text(now - since)}: rota runs --state running"
        )
        found.append(StatusWarning(code="running_task_stale", sentence=sentence))
    if queue.stuck:
        sentence = f"{count_text(queue.stuck, 'run')} past the timeout and cannot be stopped"
        found.append(StatusWarning(code="run_stuck", sentence=sentence))
    if queue.quarantined:
        sentence = (
            f"{count_text(queue.quarantined, 'schedule')} quarantined: the rule cannot be evaluated"
        )
        found.append(StatusWarning(code="schedule_quarantined", sentence=sentence))
    return found


def _worker_warnings(
    now: datetime, queue: QueueView, idle: IdleReason | None, next_due: datetime | None
) -> list[StatusWarning]:
    found = []
    work = queue.ready or queue.delayed or queue.held or queue.running or queue.schedules
    if idle is not None and work:
        sentence = f"runs are queued and {idle.sentence()}"
        found.append(StatusWarning(code="no_worker", sentence=sentence))
    elif queue.unserved_routes:
        routes = ", ".join(queue.unserved_routes)
        sentence = f"no worker serves the route {routes}: its runs wait"
        found.append(StatusWarning(code="route_unserved", sentence=sentence))
    if next_due is not None and now - next_due > OVERDUE:
        why = "the planner is too slow" if idle is None else idle.what
        sentence = f"planning is due since {duration_text(now - next_due)}: {why}"
        found.append(StatusWarning(code="planner_late", sentence=sentence))
    return found


def _leap_warnings(
    now: datetime, leap: Leap | None, early: Leap | None, passed: Sequence[PassedOver]
) -> list[StatusWarning]:
    found = []
    if leap is not None:
        start, end = _utc(leap.start), _utc(leap.end)
        length = duration_text(from_micros(leap.end) - from_micros(leap.start))
        sentence = f"the clock jumped forward by {length}: slots from {start} to {end} were missed"
        found.append(StatusWarning(code="clock_jumped", sentence=sentence))
    if early is not None and from_micros(early.end) > now:
        sentence = (
            f"the clock was ahead and went back: slots up to {_utc(early.end)} "
            "are planned already and do not fire again"
        )
        found.append(StatusWarning(code="clock_returned", sentence=sentence))
    for one in passed:
        sentence = (
            f"{one.slots_told()} of {one.task} skipped while the clock was ahead; "
            f"to run them: {one.command()}"
        )
        found.append(StatusWarning(code="slots_passed_over", sentence=sentence))
    return found


def _utc(micros: int) -> str:
    return f"{from_micros(micros):%Y-%m-%d %H:%M:%S} UTC"


def _delivery_warnings(dead: DeadDeliveriesView | None) -> list[StatusWarning]:
    if dead is None:
        return []
    of, see = "", ""
    if dead.run_id is not None:
        of, see = f" of run {dead.run_id}", f"; see `rota run {dead.run_id}`"
    were = "was" if dead.messages == 1 else "were"
    sentence = (
        f"{count_text(dead.messages, 'message')} of the last day {were} not sent, "
        f"the last{of} to {dead.to}: {whole_line(dead.error)}{see}"
    )
    return [StatusWarning(code="deliveries_dead", sentence=sentence)]
