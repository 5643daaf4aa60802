"""`rota verify`: every invariant on one consistent view, without writing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from rota.flow.observe.time_text import count_text
from rota.flow.observe.why_facts import newest_from
from rota.model.instants import from_micros, maybe_instant, to_micros
from rota.model.json import from_json
from rota.model.schedules import ScheduleState
from rota.model.tasks import AfterOn, Policy
from rota.model.verification import (
    DeliveryRecord,
    Invariant,
    InvariantCheck,
    NotificationRecord,
    RunHistory,
    RunRecord,
    ScheduleRecord,
    SlotFate,
    SlotRecord,
    TaskRecord,
    Verification,
    VerificationOverview,
    Violation,
)
from rota.rules.plans import RULE_ERRORS, timetable_for
from rota.rules.settlement import DELIVERY_RETRY
from rota.rules.verification import (
    IN_FORCE,
    TaskDefinition,
    check_claimable,
    check_delivery,
    check_limits,
    check_run,
    should_follow,
)
from rota.store.store import Store
from rota.store.verification import examine
from rota.timing.timetable import Timetable

MAX_SLOTS = 10_000
"""Maximum number of checked slots of a schedule, the newest ones."""

MOST_TOLD = 100
"""Maximum number of listed violations of an invariant; all are counted."""

OF_EVERY_RUN = (
    Invariant.EPOCHS,
    Invariant.ONE_END,
    Invariant.FOLLOW_UP,
    Invariant.FENCED,
    Invariant.SPACES,
    Invariant.TRIES,
    Invariant.QUOTA,
)
NOTHING = RunHistory()


async def verify(store: Store) -> Verification:
    """Check all rows of a store and return the violations."""
    return (await store.read(examine, Verifier)).report()


@dataclass(slots=True)
class _LedgerRow:
    """A ledger row, and how many of its slots the rule knows."""

    schedule_id: int
    first_at: int
    told: int
    known: int = 0


class Verifier:
    """One verification of a store."""

    def __init__(self) -> None:
        self._looked: Counter[Invariant] = Counter()
        self._violated: Counter[Invariant] = Counter()
        self._told: list[Violation] = []
        self._counts: Counter[str] = Counter()
        self._unseen: list[str] = []
        self._tasks: dict[int, TaskRecord] = {}
        self._definitions: dict[int, TaskDefinition] = {}
        self._ledger: dict[int, _LedgerRow] = {}
        self._begins: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._now = self._pruned_before = 0
        self._old = self._unreadable = self._cut = 0

    def tasks(self, page: Sequence[TaskRecord]) -> None:
        """Check tasks."""
        for task in page:
            self._counts["tasks"] += 1
            self._tasks[task.id] = task
            self._definitions[task.id] = TaskDefinition(
                space_id=task.space_id,
                policy=_policy(task.policy),
                updated_at=task.updated_at,
            )
            if task.after_space_id not in {None, task.space_id}:
                what = f"follows task {task.after_task_id} of another space"
                self._tell(Invariant.SPACES, f"task {task.id}", what)

    def overview(self, seen: VerificationOverview) -> None:
        """Check aggregated facts."""
        self._now, self._pruned_before = seen.now, seen.pruned_before
        self._looked[Invariant.LIMITS] += len(seen.limits) + sum(r.runs for r in seen.running)
        for schedule_id, key, count in seen.slots_twice:
            what = f"the slot {key} has {count} runs"
            self._tell(Invariant.ONE_FATE, f"schedule {schedule_id}", what)
        for task_id, key, count in seen.keys_twice:
            self._tell(Invariant.ONE_FATE, f"task {task_id}", f"the key {key} has {count} runs")
        for key, count in seen.messages_twice:
            what = f"stands {count} times in the outbox"
            self._tell(Invariant.SENT_ONCE, f"message {key}", what)
        for space_id, lane, running, ready in seen.lanes_twice:
            what = f"{running} of its runs are running and {ready} ready, one of each may"
            self._tell(Invariant.LIMITS, f"lane {lane} of space {space_id}", what)
        for noun, run_id in seen.orphans:
            what = f"is gone, but not its {noun}"
            self._tell(Invariant.FOLLOW_UP, f"run {run_id}", what)
        self._looked[Invariant.BUDGETS] += seen.spending
        for run_id, what in seen.spending_wrong:
            self._tell(Invariant.BUDGETS, f"run {run_id}", what)
        self._add(check_limits(seen.limits, seen.running))
        self._add(check_claimable(seen))

    def runs(
        self,
        page: Sequence[RunRecord],
        histories: Mapping[int, RunHistory],
        unfollowed: Sequence[tuple[int, int]],
    ) -> None:
        """Check runs with their records, and missing runs of successors."""
        for run in page:
            whole = run.created_at >= self._pruned_before
            history = histories.get(run.id, NOTHING)
            self._add(check_run(run, history, self._definitions.get(run.task_id), whole=whole))
            self._old += not whole
        self._counts["runs"] += len(page)
        unfinished = sum(run.finished_at is None for run in page)
        self._counts["unfinished"] += unfinished
        self._looked[Invariant.IN_REACH] += unfinished
        self._looked.update(dict.fromkeys(OF_EVERY_RUN, len(page)))
        slots = sum(run.schedule_id is not None for run in page)
        self._looked[Invariant.OF_A_SLOT] += slots
        self._looked[Invariant.DECISIONS] += sum(len(h.questions) for h in histories.values())
        self._looked[Invariant.ONE_FATE] += slots + sum(run.key is not None for run in page)
        self._looked[Invariant.REPLAY] += sum(r.created_at >= self._pruned_before for r in page)
        by_id = {run.id: run for run in page}
        for run_id, task_id in unfollowed:
            self._judge_following(by_id[run_id], self._tasks[task_id])

    def notices(
        self, missing: Sequence[NotificationRecord], needless: Sequence[NotificationRecord]
    ) -> None:
        """Check the notifications of runs: missing ones, and those below a level."""
        for found, what in (
            (missing, "was not notified"),
            (needless, "was notified below its level"),
        ):
            for run_id, place, since, at in found:
                if since + IN_FORCE < at:
                    self._tell(Invariant.FOLLOW_UP, f"run {run_id}", f"{place} {what}")

    def _judge_following(self, run: RunRecord, task: TaskRecord) -> None:
        definition = self._definitions[task.id]
        on = AfterOn(task.after_on or "")
        if should_follow(run, on, enabled=bool(task.enabled), follower=definition):
            what = f"is {run.state}, but task {task.id} has no run after it"
            self._tell(Invariant.FOLLOW_UP, f"run {run.id}", what)

    def deliveries(self, page: Sequence[DeliveryRecord]) -> None:
        """Check deliveries."""
        self._counts["deliveries"] += len(page)
        self._looked[Invariant.SENT_ONCE] += len(page)
        for delivery in page:
            whole = delivery.created_at >= self._pruned_before
            self._add(check_delivery(delivery, DELIVERY_RETRY.attempts, whole=whole))

    def schedules(self, page: Sequence[ScheduleRecord]) -> Iterator[SlotRecord]:
        """Check schedules; yield the slots that each must have had up to its cursor."""
        self._close_ledger()
        for schedule in page:
            self._counts["schedules"] += 1
            self._names[schedule.id] = _called(schedule)
            try:
                slots = self._slots_of(schedule)
            except RULE_ERRORS:
                self._unreadable += 1
                continue
            self._looked[Invariant.EVERY_SLOT] += len(slots)
            yield from slots

    def _slots_of(self, schedule: ScheduleRecord) -> list[SlotRecord]:
        table = timetable_for(schedule.rule, schedule.generation, schedule.stagger)
        self._judge_next(schedule, table)
        # A rule is valid since its last edit, and records exist since the last pruning.
        start = from_micros(max(schedule.updated_at, self._pruned_before - 1))
        end = from_micros(schedule.cursor)
        begin = newest_from(table, start, end, MAX_SLOTS)
        self._cut += begin > start
        self._begins[schedule.id] = to_micros(begin)
        return [
            SlotRecord(schedule_id=schedule.id, key=slot.key, at=to_micros(slot.at))
            for slot in table.between(begin, end, limit=MAX_SLOTS)
        ]

    def _judge_next(self, schedule: ScheduleRecord, table: Timetable) -> None:
        """Check that `next_at`, at which a schedule is planned, is not later than its slot."""
        if schedule.deleted_at is not None or schedule.state != ScheduleState.ACTIVE:
            return
        self._looked[Invariant.IN_REACH] += 1
        slot = table.next(from_micros(schedule.cursor))
        if slot is not None and (schedule.next_at or _NEVER) > to_micros(slot.due):
            planned = _said(maybe_instant(schedule.next_at))
            what = f"its next slot is due {_said(slot.due)}, and will be planned {planned}"
            self._tell(Invariant.IN_REACH, self._names[schedule.id], what)

    def slots(self, fates: Sequence[SlotFate]) -> None:
        """Check the outcomes of slots."""
        for fate in fates:
            if fate.ledger_id is None or fate.first_at is None or fate.told is None:
                what = f"the slot {fate.key} has neither a run nor a ledger row"
                self._tell(Invariant.EVERY_SLOT, self._names[fate.schedule_id], what)
                continue
            row = _LedgerRow(fate.schedule_id, fate.first_at, fate.told)
            self._ledger.setdefault(fate.ledger_id, row).known += 1

    def _close_ledger(self) -> None:
        """Check the ledger rows of schedules."""
        for row_id, row in self._ledger.items():
            if row.first_at > self._begins[row.schedule_id] and row.known != row.told:
                what = f"stands for {count_text(row.told, 'slot')}, its rule has {row.known} there"
                where = f"ledger row {row_id} of {self._names[row.schedule_id]}"
                self._tell(Invariant.EVERY_SLOT, where, what)
        self._ledger.clear()
        self._begins.clear()
        self._names.clear()

    def _tell(self, invariant: Invariant, where: str, what: str) -> None:
        self._add([Violation(invariant=invariant, where=where, what=what)])

    def _add(self, found: Iterable[Violation]) -> None:
        for violation in found:
            self._violated[violation.invariant] += 1
            if self._violated[violation.invariant] <= MOST_TOLD:
                self._told.append(violation)

    def report(self) -> Verification:
        """Return the result."""
        self._close_ledger()
        return Verification(
            at=from_micros(self._now),
            checks=tuple(
                InvariantCheck(invariant=i, looked_at=self._looked[i], violated=self._violated[i])
                for i in Invariant
            ),
            violations=tuple(sorted(self._told, key=lambda v: list(Invariant).index(v.invariant))),
            unseen=tuple(self._not_seen()),
            counts=dict(self._counts),
        )

    def _not_seen(self) -> Iterator[str]:
        if self._pruned_before:
            yield f"pruned records: slots before {_wall(from_micros(self._pruned_before))}"
        if self._old:
            runs = count_text(self._old, "run")
            yield f"the first events of {runs} from before that: they have been pruned"
        if self._cut:
            schedules = count_text(self._cut, "schedule")
            yield f"the older slots of {schedules}: only the newest {MAX_SLOTS:,} are checked"
        if self._unreadable:
            unreadable = count_text(self._unreadable, "schedule")
            yield f"the slots of {unreadable} whose rule cannot be read"


_NEVER = 1 << 62


@lru_cache(maxsize=1_000)
def _policy(text: str) -> Policy:
    return from_json(Policy, json.loads(text))


def _called(schedule: ScheduleRecord) -> str:
    """Return a schedule by the names of space, task and schedule."""
    gone = "" if schedule.deleted_at is None else ", deleted since"
    return f"schedule {schedule.stagger} ({schedule.id}{gone})"


def _said(instant: datetime | None) -> str:
    return "never" if instant is None else f"at {_wall(instant)}"


def _wall(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"
