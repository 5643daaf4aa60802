"""How the whole is doing: queue, workers, and what somebody should look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from rota.flow.observe.hands import NOBODY, Idle, Own, hands_of
from rota.flow.observe.passed_over import PassedOver, passed_over
from rota.flow.observe.telling import counted, span, whole_line
from rota.model.instants import from_micros, maybe_instant
from rota.model.leaps import Leap
from rota.model.pauses import paused_since
from rota.model.views import DeadView, QueueView, SlotView, WorkerView
from rota.ports.store import Store
from rota.rules.leaps import leapt_forward, planned_too_early

MOST_SLOTS = 100
"""Of how many slots it is told what is in them."""
LATELY = timedelta(days=1)
"""For how long it is told that a message could not be sent."""
OVERDUE = timedelta(seconds=60)
"""A schedule that has been due for this long has no planner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From when on something is worth a warning."""

    queue: int = 25
    running: timedelta = timedelta(minutes=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """Something to look at; the code is stable."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Everything at a glance; ages are in seconds."""

    now: datetime
    queue: QueueView
    workers: list[WorkerView]
    next_due: datetime | None
    ages: dict[str, float] = field(default_factory=dict)
    paused_since: datetime | None = None
    warnings: list[Warned] = field(default_factory=list)
    slots: list[SlotView] = field(default_factory=list)
    idle: Idle | None = None
    """Why nobody takes work, if nobody does."""


async def view_status(
    store: Store, bounds: Thresholds, space_id: int | None = None, own: Own | None = None
) -> Status:
    """Return how the whole is doing, or one space: then every number is its own."""
    hands = await hands_of(store, own)
    queue = await store.view_queue(space_id)
    slots = await store.used_slots(space_id, MOST_SLOTS) if queue.running else []
    leaps = await store.leaps()
    early = planned_too_early(leaps, store.now())
    seen = judge(
        from_micros(store.now()),
        queue,
        hands.workers,
        queue.next_due if space_id is not None else maybe_instant(await store.next_due()),
        bounds,
        maybe_instant(paused_since(await store.pauses())),
        await store.held_back(space_id),
        hands.idle,
        await store.dead_deliveries(space_id, store.now() - LATELY // timedelta(microseconds=1)),
    )
    passed = [] if early is None else await passed_over(store, early, space_id)
    leapt = _leap_warnings(seen.now, leapt_forward(leaps, store.now()), early, passed)
    return replace(seen, slots=slots, warnings=[*seen.warnings, *leapt])


def judge(
    now: datetime,
    queue: QueueView,
    workers: list[WorkerView],
    next_due: datetime | None,
    bounds: Thresholds,
    paused: datetime | None = None,
    held_back: tuple[int, str | None] = (0, None),
    idle: Idle = NOBODY,
    dead: DeadView | None = None,
) -> Status:
    """Return the status that facts amount to."""
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


def _pause_warnings(paused: datetime | None) -> list[Warned]:
    if paused is None:
        return []
    sentence = f"everything is paused since {paused:%Y-%m-%d %H:%M} UTC: nothing new begins"
    return [Warned(code="paused", sentence=sentence)]


def _budget_warnings(runs: int, why: str | None) -> list[Warned]:
    if not runs:
        return []
    sentence = f"{counted(runs, 'run')} held back by budgets: {why}"
    return [Warned(code="budget_spent", sentence=sentence)]


def _queue_warnings(now: datetime, queue: QueueView, bounds: Thresholds) -> list[Warned]:
    found = []
    if queue.ready >= bounds.queue:
        sentence = f"{counted(queue.ready, 'run')} ready and not begun (warned from {bounds.queue})"
        found.append(Warned(code="queue_depth_high", sentence=sentence))
    since = queue.oldest_running
    if since is not None and now - since >= bounds.running:
        sentence = f"a run has been running for {span(now - since)}: rota runs --state running"
        found.append(Warned(code="running_task_stale", sentence=sentence))
    if queue.stuck:
        sentence = f"{counted(queue.stuck, 'run')} past the timeout and cannot be stopped"
        found.append(Warned(code="run_stuck", sentence=sentence))
    if queue.quarantined:
        sentence = (
            f"{counted(queue.quarantined, 'schedule')} set aside: the rule cannot be evaluated"
        )
        found.append(Warned(code="schedule_quarantined", sentence=sentence))
    return found


def _worker_warnings(
    now: datetime, queue: QueueView, idle: Idle | None, next_due: datetime | None
) -> list[Warned]:
    found = []
    work = queue.ready or queue.later or queue.held or queue.running or queue.schedules
    if idle is not None and work:
        sentence = f"there is work and {idle.sentence()}"
        found.append(Warned(code="no_worker", sentence=sentence))
    elif queue.unserved_routes:
        routes = ", ".join(queue.unserved_routes)
        sentence = f"no worker serves the route {routes}: its runs wait"
        found.append(Warned(code="route_unserved", sentence=sentence))
    if next_due is not None and now - next_due > OVERDUE:
        why = "the planner does not keep up" if idle is None else idle.what
        sentence = f"planning is due since {span(now - next_due)}: {why}"
        found.append(Warned(code="planner_late", sentence=sentence))
    return found


def _leap_warnings(
    now: datetime, leap: Leap | None, early: Leap | None, passed: Sequence[PassedOver]
) -> list[Warned]:
    found = []
    if leap is not None:
        start, end = _utc(leap.start), _utc(leap.end)
        length = span(from_micros(leap.end) - from_micros(leap.start))
        sentence = f"the clock leapt forward by {length}: slots from {start} to {end} were missed"
        found.append(Warned(code="clock_leapt", sentence=sentence))
    if early is not None and from_micros(early.end) > now:
        sentence = (
            f"the clock was ahead and went back: slots up to {_utc(early.end)} "
            "that are planned already do not fire again"
        )
        found.append(Warned(code="clock_returned", sentence=sentence))
    for one in passed:
        sentence = (
            f"{one.slots_told()} of {one.task} passed over while the clock was ahead; "
            f"to run them: {one.command()}"
        )
        found.append(Warned(code="slots_passed_over", sentence=sentence))
    return found


def _utc(micros: int) -> str:
    return f"{from_micros(micros):%Y-%m-%d %H:%M:%S} UTC"


def _delivery_warnings(dead: DeadView | None) -> list[Warned]:
    if dead is None:
        return []
    of, see = "", ""
    if dead.run_id is not None:
        of, see = f" of run {dead.run_id}", f"; see `rota run {dead.run_id}`"
    were = "was" if dead.messages == 1 else "were"
    sentence = (
        f"{counted(dead.messages, 'message')} of the last day {were} not sent, "
        f"the last{of} to {dead.to}: {whole_line(dead.error)}{see}"
    )
    return [Warned(code="deliveries_dead", sentence=sentence)]
