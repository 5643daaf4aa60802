"""The facts for `rota why`.

The number of slots is limited: of a rule that fires every second, the newest ones are explained.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from rota.errors import RotaError
from rota.flow.observe.passed_over_slots import PassedOver, passed_over
from rota.flow.observe.status import NOBODY, DaemonState, IdleReason, worker_availability
from rota.model.clock_jumps import Leap
from rota.model.events import Event, EventName
from rota.model.heartbeats import Heartbeat
from rota.model.ids import RunId
from rota.model.instants import from_micros, to_micros
from rota.model.runs import Question, Run, RunState
from rota.model.schedules import LedgerRow, Pauses, QuietMode, Slot, StoredSchedule
from rota.model.spaces import Limit
from rota.model.tasks import Policy, Task
from rota.model.views import RunFilter, WorkerView
from rota.rules.clock_jumps import planned_too_early
from rota.rules.plans import timetable_for
from rota.store.clock_jumps import get_clock_jumps
from rota.store.heartbeats import get_heartbeats
from rota.store.plans import get_pauses
from rota.store.store import Store
from rota.store.tasks import get_tasks, list_schedules
from rota.store.views import (
    list_ledger_rows,
    list_limits,
    list_questions,
    list_run_events,
    list_runs,
    list_slot_runs,
)
from rota.timing.rule_builders import from_record
from rota.timing.timetable import Timetable, timetable

MAX_SLOTS = 40
MOST_RUNS = 200
FAR = timedelta(days=400)
NARROWEST = timedelta(minutes=1)
A_DAY = timedelta(hours=24)
A_MOMENT = timedelta(microseconds=1)


class SlotKind(StrEnum):
    """What a rule says about an instant."""

    SLOT = "slot"
    QUIET = "quiet"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInstant:
    """An instant at which a schedule had a slot, or would have had one without an exception."""

    schedule: StoredSchedule
    slot: Slot
    kind: SlotKind = SlotKind.SLOT


@dataclass(frozen=True, slots=True, kw_only=True)
class WhySpan:
    """The requested span, and the instant if a single one was requested."""

    start: datetime
    end: datetime
    instant: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyFacts:
    """Everything that an explanation may mention."""

    task: Task
    now: datetime
    span: WhySpan
    schedules: list[StoredSchedule]
    planned: list[PlannedInstant]
    before: list[PlannedInstant] = field(default_factory=list)
    after: list[PlannedInstant] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    unfinished: list[Run] = field(default_factory=list)
    policies: dict[int, Policy] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    faults: dict[int, Event] = field(default_factory=dict)
    """The newest agent error of each running run."""
    stops: dict[int, Event] = field(default_factory=dict)
    """Who requested each running run to stop."""
    noticed: list[Event] = field(default_factory=list)
    """Notifications about the single run."""
    heartbeats: dict[RunId, Heartbeat] = field(default_factory=dict)
    workers: list[WorkerView] = field(default_factory=list)
    idle: IdleReason = NOBODY
    """Why no worker claims runs, if so."""
    limits: list[Limit] = field(default_factory=list)
    pauses: Pauses = ()
    early: Leap | None = None
    """The span that a clock that was ahead has planned."""
    passed: PassedOver | None = None
    """The slots of the task that this clock has skipped."""
    narrowed: bool = False
    """Whether the span starts later than requested."""
    shortened: bool = False
    """Whether the span ends earlier than requested."""
    filled: dict[tuple[int, datetime], int] = field(default_factory=dict)
    """Number of slots of ledger rows with a run since, by schedule and first slot."""


async def load_facts(
    store: Store,
    task: Task,
    span: WhySpan | None,
    only: str | None = None,
    own: DaemonState | None = None,
) -> WhyFacts:
    """Load what is known about a task in a span, by default the last day.

    With `only`, runs of other spaces are left out.
    """
    hands = await worker_availability(store, own)
    now = from_micros(store.now())
    schedules = await store.read(list_schedules, [task.id])
    asked = span or WhySpan(start=now - A_DAY, end=now)
    readable = [schedule for schedule in schedules if _reads(schedule)]
    planned, told = planned_around(readable, asked, now)
    before, after = neighbours(readable, asked)
    first = min((p.slot.at for p in before), default=told.start) if asked.instant else told.start
    last = max((p.slot.at for p in after), default=told.end) if asked.instant else told.end
    runs = await store.read(list_slot_runs, task.id, to_micros(first), to_micros(last))
    ledger = await store.read(list_ledger_rows, task.id, to_micros(first), to_micros(last))
    recent = await store.read(list_runs, RunFilter(task_id=task.id, limit=MOST_RUNS))
    asked_for = [r for r in recent if r.slot_at is None and told.start <= r.created_at <= told.end]
    unfinished = [
        run
        for state in (RunState.RUNNING, RunState.WAITING, RunState.QUEUED)
        for run in await store.read(list_runs, RunFilter(state=state, limit=MOST_RUNS))
        if only in {None, run.space}
    ]
    mine = sorted({*runs, *asked_for}, key=lambda r: (r.slot_at or r.created_at, r.id))
    others = await store.read(get_tasks, sorted({run.task_id for run in unfinished}))
    newest = await _newest(store, mine)
    early = planned_too_early(await store.read(get_clock_jumps), store.now())
    passed = [] if early is None else await passed_over(store, early, task_id=task.id)
    return WhyFacts(
        task=task,
        now=now,
        span=told,
        schedules=schedules,
        planned=planned,
        before=before,
        after=after,
        runs=mine,
        ledger=ledger,
        filled={(row.schedule_id, row.first_at): await _filled(store, task, row) for row in ledger},
        unfinished=unfinished,
        policies={other.id: other.policy for other in others},
        questions=await store.read(
            list_questions, [r.id for r in mine if r.state is RunState.WAITING]
        ),
        faults=newest[EventName.AGENT_ERROR],
        stops=newest[EventName.CANCEL_REQUESTED],
        heartbeats=await store.read(
            get_heartbeats, [r.id for r in mine if r.state is RunState.RUNNING]
        ),
        workers=hands.workers,
        idle=hands.idle,
        limits=await store.read(list_limits),
        pauses=await store.read(get_pauses),
        early=early,
        passed=passed[0] if passed else None,
        narrowed=told.start > asked.start,
        shortened=told.end < asked.end,
    )


async def _filled(store: Store, task: Task, row: LedgerRow) -> int:
    """Return how many slots of a ledger row were backfilled."""
    runs = await store.read(
        list_slot_runs, task.id, to_micros(row.first_at), to_micros(row.last_at)
    )
    return sum(run.schedule_id == row.schedule_id for run in runs)


async def _newest(store: Store, runs: list[Run]) -> dict[EventName, dict[int, Event]]:
    """Return the newest event of each name for each running run."""
    found: dict[EventName, dict[int, Event]] = {name: {} for name in EventName}
    for run in runs:
        if run.state is RunState.RUNNING:
            for event in await store.read(list_run_events, run.id):
                found[event.name][run.id] = event
    return found


async def load_run_facts(
    store: Store, task: Task, run: Run, only: str | None = None, own: DaemonState | None = None
) -> WhyFacts:
    """Load what is known about one run."""
    at = run.slot_at or run.created_at
    facts = await load_facts(store, task, WhySpan(start=at, end=at), only, own)
    running = [run.id] if run.state is RunState.RUNNING else []
    newest = await _newest(store, [run])
    return replace(
        facts,
        runs=[run],
        planned=[],
        ledger=[],
        after=[],
        questions=await store.read(list_questions, [run.id]),
        faults=newest[EventName.AGENT_ERROR],
        stops=newest[EventName.CANCEL_REQUESTED],
        noticed=[
            e for e in await store.read(list_run_events, run.id) if e.name is EventName.NOTIFIED
        ],
        heartbeats=await store.read(get_heartbeats, running),
    )


def planned_around(
    schedules: list[StoredSchedule], span: WhySpan, now: datetime
) -> tuple[list[PlannedInstant], WhySpan]:
    """Return the slots of a span nearest to now, and the part that they cover."""
    if span.instant is not None or span.end <= now:
        past, start = planned_in(schedules, span)
        return past, replace(span, start=start)
    past, start, begin = [], span.start, span.start
    if span.start <= now:
        past, start = planned_in(schedules, replace(span, end=now))
        begin = now + A_MOMENT
    ahead = (planned for schedule in schedules for planned in _slots(schedule, begin, span.end))
    coming = sorted(ahead, key=lambda planned: planned.slot.at)
    room = max(1, MAX_SLOTS - len(past))
    end = span.end if len(coming) <= room else coming[room - 1].slot.at
    told = replace(span, start=start, end=end)
    return [*past, *(planned for planned in coming if planned.slot.at <= end)], told


def planned_in(
    schedules: list[StoredSchedule], span: WhySpan
) -> tuple[list[PlannedInstant], datetime]:
    """Return the newest slots of a span, and where their part starts."""
    start = span.start
    found: list[PlannedInstant] = []
    for schedule in schedules:
        begin = newest_from(_table(schedule), span.start, span.end, MAX_SLOTS)
        start = max(start, begin)
        found += _slots(schedule, begin, span.end)
    kept = sorted((p for p in found if p.slot.at >= start), key=lambda p: p.slot.at)
    return kept, start


def newest_from(table: Timetable, start: datetime, end: datetime, most: int) -> datetime:
    """Return the start of the newest part of a span with at most so many slots."""
    if len(table.between(start, end, limit=most + 1)) <= most:
        return start
    width = NARROWEST
    while len(table.between(end - width, end, limit=most + 1)) > most:
        width /= 2
    begin = max(start, end - width)
    while begin > start:
        wider = max(start, end - width * 2)
        if len(table.between(wider, end, limit=most + 1)) > most:
            break
        width, begin = width * 2, wider
    return begin


def _slots(schedule: StoredSchedule, start: datetime, end: datetime) -> Iterable[PlannedInstant]:
    """Yield slots and exceptions from start to end, inclusive."""
    begin = start - timedelta(microseconds=1)
    seen = set()
    for slot in _table(schedule).between(begin, end, limit=2 * MAX_SLOTS):
        seen.add(slot.key)
        yield PlannedInstant(schedule=schedule, slot=slot)
    rule = from_record(json.loads(schedule.rule))
    relaxed = []
    if rule.quiet and rule.quiet_mode is QuietMode.SKIP:
        relaxed.append((SlotKind.QUIET, replace(rule, quiet=())))
    if rule.excluded:
        relaxed.append((SlotKind.EXCLUDED, replace(rule, excluded=(), quiet=())))
    for kind, laxer in relaxed:
        table = timetable(laxer, generation=schedule.generation)
        for slot in table.between(begin, end, limit=2 * MAX_SLOTS):
            if slot.key not in seen:
                seen.add(slot.key)
                yield PlannedInstant(schedule=schedule, slot=slot, kind=kind)


def neighbours(
    schedules: list[StoredSchedule], span: WhySpan
) -> tuple[list[PlannedInstant], list[PlannedInstant]]:
    """Return each schedule's last slot before a span and its first one after it."""
    before, after = [], []
    for schedule in schedules:
        table = _table(schedule)
        earlier = table.latest(span.start - FAR, span.start - timedelta(microseconds=1))
        later = table.next(span.end)
        before += [] if earlier is None else [PlannedInstant(schedule=schedule, slot=earlier)]
        after += [] if later is None else [PlannedInstant(schedule=schedule, slot=later)]
    return before, after


def _reads(schedule: StoredSchedule) -> bool:
    """Return whether a stored rule can be evaluated."""
    try:
        _table(schedule).next(schedule.cursor)
    except (RotaError, ArithmeticError, LookupError, TypeError, ValueError):
        return False
    return True


def _table(schedule: StoredSchedule) -> Timetable:
    stagger = f"{schedule.space}/{schedule.task}/{schedule.name}"
    return timetable_for(schedule.rule, schedule.generation, stagger)
