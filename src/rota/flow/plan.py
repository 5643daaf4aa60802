"""Plan: due schedules become runs and ledger rows.

One step takes a batch of due schedules, decides about their slots, and applies what was decided, in
one transaction. Any number of planners may do this at once: a plan applies only while its schedule
stands where it stood, and a slot exists once whatever happens.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import lru_cache

from rota.errors import RotaError
from rota.model.ids import Epoch, RunId, ScheduleId
from rota.model.instants import from_micros, to_micros
from rota.model.outcomes import Cancelled, Report
from rota.model.plans import ActiveRun, DueSchedule, LedgerReason, Plan, ScheduleState
from rota.model.runs import OpenRun, RunBatch, Source
from rota.model.schedules import Rule, Slot
from rota.model.settlements import Settlement
from rota.model.states import RunState
from rota.ports.store import Store
from rota.rules import catch_up, overlap
from rota.rules.catch_up import MOST_SLOTS, Dropped
from rota.rules.queueing import new_run
from rota.rules.settlement import Context, settle
from rota.timing.rules import from_record
from rota.timing.timetable import Timetable, timetable

log = logging.getLogger(__name__)

MOST_SCHEDULES = 1_000
MOST_PROMOTED = 2_000
FEW_SLOTS = 20
BREATH = 10_000
"""Microseconds between long steps, in which other processes find the database free."""
NO_PAYLOAD = ("null",)
REPLACED = "a newer slot took its place in the queue"
RULE_FAULTS = (
    RotaError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a stored rule that is damaged, or beyond what the calendar can do, may raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What one step did, and when the next one is needed."""

    schedules: int
    promoted: int
    rest_micros: int | None


async def plan(store: Store) -> Planned:
    """Let delayed runs whose time has come stand in the queue, and plan what is due.

    They go first: whether a slot runs depends on who stands in its lane.
    """
    step = await store.plan_due(plan_schedule, MOST_SCHEDULES, waits=True)
    promoted = 0
    if step.later_at is not None and step.later_at <= store.now():
        promoted = await store.promote(MOST_PROMOTED)
        step = await store.plan_due(plan_schedule, MOST_SCHEDULES)
    instants = [at for at in (step.slot_at, step.later_at) if at is not None]
    rest = max(0, min(instants) - store.now()) if instants else None
    if step.cut:
        rest = BREATH
    return Planned(schedules=step.schedules, promoted=promoted, rest_micros=rest)


async def plan_one(store: Store, schedule_id: ScheduleId) -> None:
    """Plan what is due of one schedule now, because it is about to be changed or dropped."""
    for due in await store.due_schedules(1, schedule_id):
        await store.apply_plans([plan_schedule(due, store.now())])


def plan_schedule(schedule: DueSchedule, now: int) -> Plan:
    """Return the plan for one schedule; a rule that cannot be evaluated is set aside alone."""
    try:
        table = table_of(schedule.rule, schedule.generation, schedule.stagger)
        return _plan(schedule, table, now)
    except RULE_FAULTS as fault:
        return _set_aside(schedule, fault)


def _set_aside(schedule: DueSchedule, fault: Exception) -> Plan:
    log.error("schedule.quarantined", extra={"schedule_id": schedule.id}, exc_info=fault)
    return Plan(
        schedule_id=schedule.id,
        version=schedule.version,
        was=schedule.cursor,
        pauses=schedule.pauses,
        cursor=schedule.cursor,
        next_at=None,
        state=ScheduleState.QUARANTINED,
        note=f"its rule could not be evaluated: {fault}",
    )


def pass_over(schedule: DueSchedule, now: int) -> Plan:
    """Return the plan that runs none of the due slots: nobody knows whether they have run already.

    They lie between a backup and its restore; those of a task that was off stay what they are.
    """
    try:
        table = table_of(schedule.rule, schedule.generation, schedule.stagger)
        slots, _ = _due_slots(table, schedule, now)
        cursor = to_micros(slots[-1].at) if slots else schedule.cursor
        following = _next_after(table, cursor)
    except RULE_FAULTS as fault:
        return _set_aside(schedule, fault)
    return Plan(
        schedule_id=schedule.id,
        version=schedule.version,
        was=schedule.cursor,
        pauses=schedule.pauses,
        cursor=cursor,
        next_at=None if following is None else to_micros(following.due),
        state=ScheduleState.ENDED if following is None else ScheduleState.ACTIVE,
        note="its rule has no further slots" if following is None else None,
        ledger=catch_up.ledger(catch_up.passed_over(schedule, slots)),
    )


def table_of(rule: str, generation: int, stagger: str) -> Timetable:
    """Return the timetable of a stored rule; equal rules share one, unless they are staggered."""
    read = _read_rule(rule)
    return timetable(read, generation=generation, stagger=stagger if read.jitter else "")


@lru_cache(maxsize=20_000)
def _read_rule(text: str) -> Rule:
    return from_record(json.loads(text))


def _slots_between(table: Timetable, after: int, until: int) -> tuple[Slot, ...]:
    """Return the slots of a span; ten thousand equal schedules due at once cost one evaluation."""
    few = _few_between(table, after, until)
    return few if len(few) < FEW_SLOTS else _many_between(table, after, until)


@lru_cache(maxsize=2_000)
def _few_between(table: Timetable, after: int, until: int) -> tuple[Slot, ...]:
    return tuple(table.between(from_micros(after), from_micros(until), limit=FEW_SLOTS))


@lru_cache(maxsize=4)  # after a long absence they are megabytes, and equal schedules come in a row
def _many_between(table: Timetable, after: int, until: int) -> tuple[Slot, ...]:
    return tuple(table.between(from_micros(after), from_micros(until), limit=MOST_SLOTS))


@lru_cache(maxsize=2_000)
def _next_after(table: Timetable, after: int) -> Slot | None:
    return table.next(from_micros(after))


def _plan(schedule: DueSchedule, table: Timetable, now: int) -> Plan:
    slots, more = _due_slots(table, schedule, now)
    choice = catch_up.choose(schedule, slots, more=more, now=now)
    line = _Line(schedule, now)
    dropped = list(choice.dropped)
    pace = int(schedule.policy.catch_up.pace.total_seconds() * 1_000_000)
    for nth, slot in enumerate(choice.missed):
        line.add(slot, now + nth * pace)
    for index, slot in choice.on_time:
        line.add_on_time(index, slot, dropped)
    decided = slots[: choice.decided]
    cursor = to_micros(decided[-1].at) if decided else schedule.cursor
    following = _following(table, slots, choice.decided, cursor)
    return Plan(
        schedule_id=schedule.id,
        version=schedule.version,
        was=schedule.cursor,
        pauses=schedule.pauses,
        cursor=cursor,
        next_at=None if following is None else to_micros(following.due),
        state=ScheduleState.ENDED if following is None else ScheduleState.ACTIVE,
        note="its rule has no further slots" if following is None else None,
        runs=tuple(line.runs.values()),
        ledger=catch_up.ledger(dropped),
        cancels=tuple(line.cancels),
        cancel_running=tuple(line.stops),
    )


def _due_slots(table: Timetable, schedule: DueSchedule, now: int) -> tuple[list[Slot], bool]:
    """Return the due slots after the cursor, oldest first, and whether more are waiting behind."""
    until = from_micros(now)
    slots = list(_slots_between(table, schedule.cursor, now))
    more = len(slots) == MOST_SLOTS
    while slots and slots[-1].due > until:
        slots.pop()
        more = False
    return slots, more


def _following(table: Timetable, slots: list[Slot], decided: int, cursor: int) -> Slot | None:
    if decided < len(slots):
        return slots[decided]
    return _next_after(table, cursor)


class _Line:
    """The runs a plan makes, and what they do to those that are in their task's lane already."""

    def __init__(self, schedule: DueSchedule, now: int) -> None:
        self._schedule = schedule
        self._now = now
        self._active = list(schedule.active)
        self._planned: dict[int, tuple[int, Slot]] = {}
        self.runs: dict[str, RunBatch] = {}
        self.cancels: list[Settlement] = []
        self.stops: list[RunId] = []

    def add(self, slot: Slot, available_at: int | None) -> None:
        """Make a run for a slot."""
        source = Source.SLOT if available_at is None else Source.CATCH_UP
        self.runs[slot.key] = slot_run(self._schedule, slot, source, available_at, self._now)

    def add_on_time(self, index: int, slot: Slot, dropped: list[Dropped]) -> None:
        """Make a run for a slot as the overlap policy wants it."""
        verdict = overlap.decide(self._schedule.policy.overlap, tuple(self._active))
        if not verdict.runs:
            dropped.append(Dropped(index=index, slot=slot, reason=LedgerReason.OVERLAP))
            return
        for run in verdict.replaces:
            self._replace(run, dropped)
        for run in verdict.stops:
            self._stop(run)
        self.add(slot, None)
        provisional = RunId(-1 - index)
        self._planned[provisional] = (index, slot)
        self._active.append(
            ActiveRun(run_id=provisional, epoch=Epoch(0), state=RunState.QUEUED.value, planned=True)
        )

    def _replace(self, run: ActiveRun, dropped: list[Dropped]) -> None:
        self._active.remove(run)
        if run.run_id in self._planned:
            index, slot = self._planned.pop(run.run_id)
            del self.runs[slot.key]
            dropped.append(Dropped(index=index, slot=slot, reason=LedgerReason.COALESCED))
            return
        self.cancels.append(self._cancel(run))

    def _stop(self, run: ActiveRun) -> None:
        self._active.remove(run)
        if run.state == RunState.RUNNING:
            self.stops.append(run.run_id)
        else:
            self.cancels.append(self._cancel(run))

    def _cancel(self, run: ActiveRun) -> Settlement:
        facts = OpenRun(
            run_id=run.run_id,
            task_id=self._schedule.task_id,
            space_id=self._schedule.space_id,
            state=RunState(run.state),
            epoch=run.epoch,
            retries=0,
            losses=0,
            created_micros=self._now,
            depth=0,
        )
        context = Context(policy=self._schedule.policy, now=self._now)
        return settle(facts, Report(outcome=Cancelled(reason=REPLACED)), context)


def slot_run(
    schedule: DueSchedule, slot: Slot, source: Source, available_at: int | None, now: int
) -> RunBatch:
    """Return the run of a slot."""
    template = new_run(
        schedule.task_id,
        schedule.space_id,
        schedule.route,
        schedule.policy,
        source,
        now,
        available_at=available_at,
        schedule_id=schedule.id,
        slot=slot,
        thread=schedule.thread,
        in_conversation=schedule.in_conversation,
    )
    return RunBatch(template=template, payloads=NO_PAYLOAD)
