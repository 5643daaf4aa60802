"""Planning of due slots: catch-up, overlap, runs to create and ledger entries."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

from rota.errors import RotaError
from rota.model.attempts import AttemptReport, Cancelled
from rota.model.ids import Epoch, RunId
from rota.model.instants import from_micros, to_micros
from rota.model.runs import OpenRun, RunBatch, RunSource, RunState
from rota.model.schedules import (
    PAST_ASKED_FOR,
    ActiveRun,
    DueSchedule,
    LedgerEntry,
    LedgerReason,
    Rule,
    SchedulePlan,
    ScheduleState,
    Slot,
    was_paused,
)
from rota.model.settlement import Settlement
from rota.model.tasks import CatchUp, CatchUpMode, Overlap
from rota.rules.queue import new_run
from rota.rules.settlement import SettlementContext, settle
from rota.timing.rule_builders import from_record
from rota.timing.timetable import Timetable, timetable

log = logging.getLogger(__name__)


GRACE = timedelta(seconds=60)
"""A slot that is late by at most this still counts as on time."""

_GRACE_MICROS = int(GRACE.total_seconds() * 1_000_000)

MAX_SLOTS = 10_000
"""Slots of one schedule that are decided in one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedSlot:
    """A slot that does not run; `index` is its position among the examined slots."""

    index: int
    slot: Slot
    reason: LedgerReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDecision:
    """What was decided about the slots of one schedule.

    `on_time` and `missed` run, oldest first. `decided` counts the decided slots, from the oldest;
    the others are left to the next step.
    """

    on_time: tuple[tuple[int, Slot], ...] = ()
    missed: tuple[Slot, ...] = ()
    dropped: tuple[SkippedSlot, ...] = ()
    decided: int = 0


def choose(schedule: DueSchedule, slots: Sequence[Slot], *, more: bool, now: int) -> SlotDecision:
    """Decide about due slots, oldest first; `more` means that there are later ones not in `slots`.

    Slots while the task was disabled or everything was paused go to the ledger. Of the missed slots
    inside the window, the newest `cap` run (one for `latest`). If there are `more`, only the slots
    that cannot be among the newest are decided.
    """
    catch_up = schedule.policy.catch_up
    cap = _catch_up_cap(catch_up)
    grace = now - _GRACE_MICROS
    # No missed slot follows one on time: all missed slots are among these.
    more = more and to_micros(slots[-1].due) < grace
    decided = max(1, len(slots) - cap) if more else len(slots)
    dropped: list[SkippedSlot] = []
    missed: list[tuple[int, Slot]] = []
    on_time: list[tuple[int, Slot]] = []
    for index, slot in enumerate(slots[:decided]):
        reason = _ledger_reason(schedule, slot)
        if reason is not None:
            dropped.append(SkippedSlot(index=index, slot=slot, reason=reason))
        elif to_micros(slot.due) >= grace or schedule.cursor == PAST_ASKED_FOR:
            on_time.append((index, slot))
        else:
            missed.append((index, slot))
    chosen, passed = _catch_up(catch_up, missed, cap, more=more, now=now)
    return SlotDecision(
        on_time=tuple(on_time),
        missed=tuple(slot for _, slot in chosen),
        dropped=(*dropped, *passed),
        decided=decided,
    )


def skip_all(schedule: DueSchedule, slots: Sequence[Slot]) -> list[SkippedSlot]:
    """Return the slots between a backup and its restore, each with why it does not run."""
    return [
        SkippedSlot(
            index=index, slot=slot, reason=_ledger_reason(schedule, slot) or LedgerReason.RESTORED
        )
        for index, slot in enumerate(slots)
    ]


def _catch_up_cap(catch_up: CatchUp) -> int:
    if catch_up.mode is CatchUpMode.NONE:
        return 0
    return 1 if catch_up.mode is CatchUpMode.LATEST else min(catch_up.cap, MAX_SLOTS // 2)


def _ledger_reason(schedule: DueSchedule, slot: Slot) -> LedgerReason | None:
    at = to_micros(slot.at)
    if not schedule.enabled:
        return LedgerReason.DISABLED
    if schedule.cursor == PAST_ASKED_FOR:
        return None
    if at < schedule.enabled_since:
        return LedgerReason.DISABLED
    if schedule.paused_until is not None and at < schedule.paused_until:
        return LedgerReason.PAUSED
    if was_paused(schedule.pauses, to_micros(slot.due)):
        return LedgerReason.PAUSED
    return None


def _catch_up(
    catch_up: CatchUp, missed: list[tuple[int, Slot]], cap: int, *, more: bool, now: int
) -> tuple[list[tuple[int, Slot]], list[SkippedSlot]]:
    def drop(items: list[tuple[int, Slot]], reason: LedgerReason) -> list[SkippedSlot]:
        return [SkippedSlot(index=index, slot=slot, reason=reason) for index, slot in items]

    if not missed:
        return [], []
    if catch_up.mode is CatchUpMode.NONE:
        return [], drop(missed, LedgerReason.MISSED)
    oldest = now - int(catch_up.window.total_seconds() * 1_000_000)
    late = [item for item in missed if to_micros(item[1].due) < oldest]
    inside = missed[len(late) :]
    split = len(inside) if more else max(0, len(inside) - cap)
    latest = catch_up.mode is CatchUpMode.LATEST
    passed_over = LedgerReason.COALESCED if latest else LedgerReason.CATCH_UP_CAP
    dropped = drop(late, LedgerReason.TOO_LATE) + drop(inside[:split], passed_over)
    return inside[split:], dropped


def ledger_entries(dropped: Iterable[SkippedSlot]) -> tuple[LedgerEntry, ...]:
    """Return ledger entries; consecutive slots with the same reason share one."""
    entries: list[LedgerEntry] = []
    previous = None
    for item in sorted(dropped, key=lambda d: d.index):
        at = to_micros(item.slot.at)
        first_key, first_at, count = item.slot.key, at, 1
        if previous and (previous.index, previous.reason) == (item.index - 1, item.reason):
            merged = entries.pop()
            first_key, first_at, count = merged.first_key, merged.first_at, merged.count + 1
        entries.append(
            LedgerEntry(
                reason=item.reason,
                first_key=first_key,
                last_key=item.slot.key,
                first_at=first_at,
                last_at=at,
                count=count,
            )
        )
        previous = item
    return tuple(entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapDecision:
    """Whether a slot runs, which queued runs it replaces, and which running ones it stops."""

    runs: bool = True
    replaces: tuple[ActiveRun, ...] = ()
    stops: tuple[ActiveRun, ...] = ()


def decide(overlap: Overlap | None, active: tuple[ActiveRun, ...]) -> OverlapDecision:
    """Apply the overlap policy to a slot, given the unfinished runs of its task, oldest first.

    With `queue`, one run is running or about to run, and one waits behind it, which a newer slot
    replaces. Only runs of slots are replaced, not requested ones.
    """
    queued = tuple(r for r in active if r.state == RunState.QUEUED and r.planned)
    running = tuple(r for r in active if r.state != RunState.QUEUED)
    match overlap:
        case Overlap.ALLOW | Overlap.QUEUE_ALL:
            return OverlapDecision()
        case Overlap.SKIP:
            return OverlapDecision(runs=not active)
        case Overlap.CANCEL_OTHER:
            return OverlapDecision(replaces=queued, stops=running)
        case _:
            return OverlapDecision(replaces=queued if running else queued[1:])


MAX_SCHEDULES = 1_000
FEW_SLOTS = 20
NO_PAYLOAD = ("null",)
REPLACED = "a newer slot replaced it in the queue"
RULE_ERRORS = (
    RotaError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


def plan_schedule(schedule: DueSchedule, now: int) -> SchedulePlan:
    """Return the plan of one schedule; a schedule whose rule cannot be evaluated is quarantined."""
    try:
        table = timetable_for(schedule.rule, schedule.generation, schedule.stagger)
        return _plan(schedule, table, now)
    except RULE_ERRORS as error:
        return _quarantine(schedule, error)


def _quarantine(schedule: DueSchedule, error: Exception) -> SchedulePlan:
    log.error("schedule.quarantined", extra={"schedule_id": schedule.id}, exc_info=error)
    return SchedulePlan(
        schedule_id=schedule.id,
        version=schedule.version,
        was=schedule.cursor,
        pauses=schedule.pauses,
        cursor=schedule.cursor,
        next_at=None,
        state=ScheduleState.QUARANTINED,
        note=f"its rule could not be evaluated: {error}",
    )


def plan_skipping_due(schedule: DueSchedule, now: int) -> SchedulePlan:
    """Return a plan that runs none of the due slots.

    They are between a backup and its restore, so that nobody knows whether they ran already. Slots
    of a disabled task keep that reason.
    """
    try:
        table = timetable_for(schedule.rule, schedule.generation, schedule.stagger)
        slots, _ = _due_slots(table, schedule, now)
        cursor = to_micros(slots[-1].at) if slots else schedule.cursor
        following = _next_after(table, cursor)
    except RULE_ERRORS as error:
        return _quarantine(schedule, error)
    return SchedulePlan(
        schedule_id=schedule.id,
        version=schedule.version,
        was=schedule.cursor,
        pauses=schedule.pauses,
        cursor=cursor,
        next_at=None if following is None else to_micros(following.due),
        state=ScheduleState.ENDED if following is None else ScheduleState.ACTIVE,
        note="its rule has no further slots" if following is None else None,
        ledger=ledger_entries(skip_all(schedule, slots)),
    )


def timetable_for(rule: str, generation: int, stagger: str) -> Timetable:
    """Return the timetable of a stored rule; equal rules without jitter share one."""
    read = _read_rule(rule)
    return timetable(read, generation=generation, stagger=stagger if read.jitter else "")


@lru_cache(maxsize=20_000)
def _read_rule(text: str) -> Rule:
    return from_record(json.loads(text))


def _slots_between(table: Timetable, after: int, until: int) -> tuple[Slot, ...]:
    """Return the slots of a span; cached, so that many equal schedules cost one evaluation."""
    few = _first_slots_between(table, after, until)
    return few if len(few) < FEW_SLOTS else _all_slots_between(table, after, until)


@lru_cache(maxsize=2_000)
def _first_slots_between(table: Timetable, after: int, until: int) -> tuple[Slot, ...]:
    return tuple(table.between(from_micros(after), from_micros(until), limit=FEW_SLOTS))


@lru_cache(maxsize=4)  # results may be megabytes; equal schedules come one after the other
def _all_slots_between(table: Timetable, after: int, until: int) -> tuple[Slot, ...]:
    return tuple(table.between(from_micros(after), from_micros(until), limit=MAX_SLOTS))


@lru_cache(maxsize=2_000)
def _next_after(table: Timetable, after: int) -> Slot | None:
    return table.next(from_micros(after))


def _plan(schedule: DueSchedule, table: Timetable, now: int) -> SchedulePlan:
    slots, more = _due_slots(table, schedule, now)
    choice = choose(schedule, slots, more=more, now=now)
    planned = _PlannedRuns(schedule, now)
    dropped = list(choice.dropped)
    pace = int(schedule.policy.catch_up.pace.total_seconds() * 1_000_000)
    for nth, slot in enumerate(choice.missed):
        planned.add(slot, now + nth * pace)
    for index, slot in choice.on_time:
        planned.add_on_time(index, slot, dropped)
    decided = slots[: choice.decided]
    cursor = to_micros(decided[-1].at) if decided else schedule.cursor
    following = _next_slot(table, slots, choice.decided, cursor)
    return SchedulePlan(
        schedule_id=schedule.id,
        version=schedule.version,
        was=schedule.cursor,
        pauses=schedule.pauses,
        cursor=cursor,
        next_at=None if following is None else to_micros(following.due),
        state=ScheduleState.ENDED if following is None else ScheduleState.ACTIVE,
        note="its rule has no further slots" if following is None else None,
        runs=tuple(planned.runs.values()),
        ledger=ledger_entries(dropped),
        cancels=tuple(planned.cancels),
        cancel_running=tuple(planned.stops),
    )


def _due_slots(table: Timetable, schedule: DueSchedule, now: int) -> tuple[list[Slot], bool]:
    """Return the due slots after the cursor, oldest first, and whether there are more."""
    until = from_micros(now)
    slots = list(_slots_between(table, schedule.cursor, now))
    more = len(slots) == MAX_SLOTS
    while slots and slots[-1].due > until:
        slots.pop()
        more = False
    return slots, more


def _next_slot(table: Timetable, slots: list[Slot], decided: int, cursor: int) -> Slot | None:
    if decided < len(slots):
        return slots[decided]
    return _next_after(table, cursor)


class _PlannedRuns:
    """The runs that a plan creates, and its effects on runs already in the task's lane."""

    def __init__(self, schedule: DueSchedule, now: int) -> None:
        self._schedule = schedule
        self._now = now
        self._active = list(schedule.active)
        self._planned: dict[int, tuple[int, Slot]] = {}
        self.runs: dict[str, RunBatch] = {}
        self.cancels: list[Settlement] = []
        self.stops: list[RunId] = []

    def add(self, slot: Slot, available_at: int | None) -> None:
        """Add a run for a slot."""
        source = RunSource.SLOT if available_at is None else RunSource.CATCH_UP
        self.runs[slot.key] = run_for_slot(self._schedule, slot, source, available_at, self._now)

    def add_on_time(self, index: int, slot: Slot, dropped: list[SkippedSlot]) -> None:
        """Add a run for a slot as the overlap policy allows."""
        decision = decide(self._schedule.policy.overlap, tuple(self._active))
        if not decision.runs:
            dropped.append(SkippedSlot(index=index, slot=slot, reason=LedgerReason.OVERLAP))
            return
        for run in decision.replaces:
            self._replace(run, dropped)
        for run in decision.stops:
            self._stop(run)
        self.add(slot, None)
        provisional = RunId(-1 - index)
        self._planned[provisional] = (index, slot)
        self._active.append(
            ActiveRun(run_id=provisional, epoch=Epoch(0), state=RunState.QUEUED.value, planned=True)
        )

    def _replace(self, run: ActiveRun, dropped: list[SkippedSlot]) -> None:
        self._active.remove(run)
        if run.run_id in self._planned:
            index, slot = self._planned.pop(run.run_id)
            del self.runs[slot.key]
            dropped.append(SkippedSlot(index=index, slot=slot, reason=LedgerReason.COALESCED))
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
        context = SettlementContext(policy=self._schedule.policy, now=self._now)
        return settle(facts, AttemptReport(outcome=Cancelled(reason=REPLACED)), context)


def run_for_slot(
    schedule: DueSchedule, slot: Slot, source: RunSource, available_at: int | None, now: int
) -> RunBatch:
    """Return the run for a slot."""
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
