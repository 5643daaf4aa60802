"""`rota why`: the outcome of a slot or a run, and the reason.

`explain` is a pure function from facts to sentences. Every slot in the span gets exactly one entry,
from its run, from the ledger, or from the rule if neither mentions it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from rota.flow.observe.time_text import (
    CHECK_WORDS,
    SUPPRESSION_WORDS,
    clock_text,
    count_text,
    duration_text,
    last_heartbeat_text,
    wall_time_text,
    whole_line,
)
from rota.flow.observe.views import check_state_of
from rota.flow.observe.why_facts import PlannedInstant, SlotKind, WhyFacts
from rota.model.clock_jumps import Leap
from rota.model.events import Event
from rota.model.instants import maybe_instant, to_micros
from rota.model.runs import AttemptCause, EndedAttempt, QueueState, Run, RunSource, RunState
from rota.model.schedules import LedgerReason, LedgerRow, ScheduleState, paused_since, was_paused
from rota.model.spaces import Limit, LimitScope
from rota.model.tasks import Policy
from rota.rules.budgets import OVER
from rota.rules.checks import KEY as NEXT_CHECK
from rota.rules.plans import GRACE, REPLACED


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyEntry:
    """The outcome of one slot, of several slots with the same outcome, or of a requested run."""

    at: datetime
    outcome: str
    sentence: str
    schedule: str | None = None
    run_id: int | None = None
    until: datetime | None = None
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyReport:
    """The complete answer: notes on the task, then entries."""

    task: str
    notes: list[str] = field(default_factory=list)
    stories: list[WhyEntry] = field(default_factory=list)


def explain(facts: WhyFacts, zone: ZoneInfo) -> WhyReport:
    """Return the report for the facts, with times in a zone."""
    teller = _Teller(facts, zone)
    stories = teller.stories(facts.planned)
    notes = teller.notes()
    if facts.span.instant is not None and not _holds(stories, facts.span.instant):
        notes.append(teller.not_a_slot(facts.span.instant))
        stories = teller.stories([*facts.before, *facts.after], around=True)
    elif facts.span.end <= facts.now and facts.after and facts.span.instant is None:
        upcoming = [p for p in facts.after if p.slot.at > facts.now]
        stories += [teller.unrecorded(p) for p in sorted(upcoming, key=lambda p: p.slot.at)]
    return WhyReport(task=facts.task.name, notes=notes, stories=stories)


def explain_run(facts: WhyFacts, attempts: list[EndedAttempt], zone: ZoneInfo) -> WhyReport:
    """Return the report of one run, with its earlier attempts."""
    notes = [
        f"Attempt {attempt.epoch} ended as {attempt.outcome}: {_reason(attempt.error)}."
        for attempt in attempts
        if attempt.error is not None
    ]
    notes += [sentence for event in facts.noticed for sentence in told_of(event)]
    return WhyReport(task=facts.task.name, notes=notes, stories=_Teller(facts, zone).stories([]))


def _reason(error: str | None) -> str:
    """Return the reason of a failure as a part of a sentence."""
    return whole_line(error).removesuffix(".")


def told_of(event: Event) -> list[str]:
    """Return which targets were notified about a run, and which were below their level."""
    to, below = (
        ", ".join(map(str, _list(event.data.get(name)))) for name in ("targets", "below_level")
    )
    said = [f"Notifications sent to {to}."] if to else []
    return said + ([f"Below the level of {below}: nothing is sent there."] if below else [])


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _holds(stories: list[WhyEntry], instant: datetime) -> bool:
    return any(
        story.at <= instant + timedelta(minutes=1) and (story.until or story.at) >= instant
        for story in stories
    )


class _Teller:
    """Explains one set of facts."""

    def __init__(self, facts: WhyFacts, zone: ZoneInfo) -> None:
        self._facts = facts
        self._zone = zone
        self._names = {schedule.id: schedule.name for schedule in facts.schedules}

    def notes(self) -> list[str]:
        """Return notes on the task as a whole."""
        task, facts = self._facts.task, self._facts
        notes = []
        paused = maybe_instant(paused_since(facts.pauses))
        if paused is not None:
            notes.append(f"Everything is paused since {wall_time_text(paused, self._zone)}.")
        if not task.enabled:
            at = task.disabled_at
            since = "" if at is None else f" since {wall_time_text(at, self._zone)}"
            reason = f": {task.disabled_reason}" if task.disabled_reason else ""
            notes.append(f"The task is disabled{since}{reason}.")
        elif task.paused_until is not None and task.paused_until > facts.now:
            reason = f": {task.disabled_reason}" if task.disabled_reason else ""
            notes.append(
                f"The task is paused until {wall_time_text(task.paused_until, self._zone)}{reason}."
            )
        if task.after is not None:
            notes.append(f"It runs after {task.after.task}, on {task.after.on}.")
        elif not facts.schedules:
            notes.append("It has no schedule: it runs on request.")
        notes += self._schedule_notes()
        if facts.narrowed:
            hint = f"`rota why {task.name} TIME` explains one slot, `rota runs --task {task.name}`"
            start = wall_time_text(facts.span.start, self._zone)
            notes.append(f"What ended before {start} is not shown: {hint} lists all runs.")
        if facts.shortened:
            notes.append(
                f"What comes after {wall_time_text(facts.span.end, self._zone)} is not shown."
            )
        return notes

    def _schedule_notes(self) -> list[str]:
        notes = []
        for schedule in self._facts.schedules:
            if schedule.state is not ScheduleState.ACTIVE:
                said = "has ended" if schedule.state is ScheduleState.ENDED else "was quarantined"
                notes.append(f"Schedule {schedule.name} {said}: {schedule.note}.")
        passed = self._facts.passed
        if passed is not None:
            notes.append(
                f"The clock was ahead and went back: {passed.slots_told()} that it skipped "
                f"do not run by themselves. To run them: `{passed.command()}`."
            )
        return notes

    def not_a_slot(self, instant: datetime) -> str:
        """Return the sentence for an instant without a slot."""
        before = max((p.slot.at for p in self._facts.before), default=None)
        after = min((p.slot.at for p in self._facts.after), default=None)
        sides = []
        if before is not None:
            sides.append(f"the one before it was {wall_time_text(before, self._zone)}")
        if after is not None:
            sides.append(f"the next one is {wall_time_text(after, self._zone)}")
        rest = f": {', '.join(sides)}" if sides else ""
        return (
            f"{wall_time_text(instant, self._zone)} is not a slot of {self._facts.task.name}{rest}."
        )

    def stories(self, planned: list[PlannedInstant], *, around: bool = False) -> list[WhyEntry]:
        """Return one entry for each slot and each run, ordered by time."""
        span_ = self._facts.span
        keys = {(p.schedule.id, p.slot.key) for p in planned}
        runs = [
            run
            for run in self._facts.runs
            if (run.schedule_id, run.slot_key) in keys
            or (not around and span_.start <= (run.slot_at or run.created_at) <= span_.end)
        ]
        rows = [
            row
            for row in self._facts.ledger
            if any(_covers(row, p) for p in planned)
            or (not around and row.first_at <= span_.end and row.last_at >= span_.start)
        ]
        told = {(run.schedule_id, run.slot_key) for run in runs}
        dues = {(int(p.schedule.id), p.slot.key): p.slot.due for p in planned}
        found = [self._of_run(run, dues.get((_number(run), run.slot_key or ""))) for run in runs]
        found += [self._of_row(row) for row in rows if self._left(row)]
        found += [
            self.unrecorded(p)
            for p in planned
            if (p.schedule.id, p.slot.key) not in told and not any(_covers(r, p) for r in rows)
        ]
        return _joined(sorted(found, key=lambda story: (story.at, story.run_id or 0)))

    def _of_run(self, run: Run, due: datetime | None) -> WhyEntry:
        verdict, sentence = self._fate(run, due or run.slot_at)
        if run.slot_at is None:
            sentence = f"{_asked(run)}; {sentence}"
        elif run.state not in {RunState.SUCCEEDED, RunState.FAILED}:
            sentence += self._backfilled(run)
        return WhyEntry(
            at=run.slot_at or run.created_at,
            outcome=verdict,
            sentence=f"{sentence}; run {run.id}",
            schedule=self._names.get(run.schedule_id) if run.schedule_id is not None else None,
            run_id=run.id,
        )

    def _fate(self, run: Run, due: datetime | None) -> tuple[str, str]:
        match run.state:
            case RunState.SUCCEEDED:
                return self._ran(run, due)
            case RunState.FAILED:
                _, begun = self._ran(run, due)
                return "failed", f"{begun}; failed: {_reason(run.error)}"
            case RunState.CANCELLED:
                return self._cancelled(run)
            case RunState.EXPIRED:
                return "expired", f"expired: {_reason(run.error)}"
            case RunState.RUNNING:
                return "running", self._running(run)
            case RunState.WAITING:
                return "waiting", self._asking(run)
            case RunState.QUEUED:
                return "queued", why_waiting(run, self._facts, self._zone)

    def _ran(self, run: Run, due: datetime | None) -> tuple[str, str]:
        if run.started_at is None or run.took is None:
            return "ran", "it never started"
        tries = f" at attempt {run.epoch}" if run.epoch > 1 else ""
        took = f"took {duration_text(run.took)}{tries}{_known(run)}"
        if due is None:
            return "ran", f"ran at {clock_text(run.started_at, self._zone)}, {took}"
        late = run.started_at - due
        began = f"ran at {clock_text(run.started_at, self._zone)}"
        if late <= GRACE:
            said = f" ({duration_text(late)} late)" if late >= timedelta(milliseconds=500) else ""
            return "ran", f"{began}{said}{self._backfilled(run)}, {took}"
        if run.source is RunSource.BACKFILL:
            cause = f"it was backfilled at {wall_time_text(run.created_at, self._zone)}"
        elif run.created_at - due > GRACE:
            cause = "it was found late and caught up"
        elif run.retries or run.losses:
            cause = "an earlier attempt failed"
        else:
            cause = "it waited in the queue"
        return "late", f"{began}, {duration_text(late)} late because {cause}, {took}"

    def _backfilled(self, run: Run) -> str:
        if run.source is not RunSource.BACKFILL:
            return ""
        return f", backfilled at {wall_time_text(run.created_at, self._zone)}"

    def _cancelled(self, run: Run) -> tuple[str, str]:
        if run.error != REPLACED:
            why = _reason(run.error)
            return "cancelled", why if why.startswith("cancelled") else f"cancelled: {why}"
        return "coalesced", f"coalesced into {self._next_run(run.slot_at)}: {REPLACED}"

    def _next_run(self, at: datetime | None) -> str:
        for other in self._facts.runs:
            later = at is not None and other.slot_at is not None and other.slot_at > at
            if later and other.slot_at is not None and other.error != REPLACED:
                return f"the slot of {clock_text(other.slot_at, self._zone)} (run {other.id})"
        return "a later slot"

    def _running(self, run: Run) -> str:
        since = run.started_at or run.available_at
        said = f"running for {duration_text(self._facts.now - since)}, attempt {run.epoch}"
        if run.stuck:
            said += ", past its timeout and cannot be stopped"
        if run.cancel_requested_at is not None:
            stop = self._facts.stops.get(run.id)
            why = stop and stop.data.get("why")
            said += f", asked to stop ({why})" if why else ", asked to stop"
        heard = self._facts.heartbeats.get(run.id)
        if heard is not None:
            said += f", {last_heartbeat_text(heard, self._facts.now)}"
        return said + self._trying_again(run) + unsupervised_text(self._facts)

    def _trying_again(self, run: Run) -> str:
        """Return what an agent waits for after a transient provider error."""
        fault = self._facts.faults.get(run.id)
        if fault is None or "retry" not in fault.data:
            return ""
        at = datetime.fromisoformat(str(fault.data["at"]))
        waits = at > self._facts.now
        when = (
            f"is launched again at {clock_text(at, self._zone)}" if waits else "was launched again"
        )
        return f"; {when} ({fault.data['retry']} of {fault.data['of']}): {fault.data['message']}"

    def _asking(self, run: Run) -> str:
        for question in self._facts.questions:
            if question.run_id == run.id and question.answered_at is None:
                until = wall_time_text(question.expires_at, self._zone)
                asked = whole_line(question.question)
                return f'waits for an answer to question {question.id} until {until}: "{asked}"'
        return "waits for an answer"

    def _left(self, row: LedgerRow) -> bool:
        """Return whether a slot of a ledger row still has no run."""
        return self._facts.filled.get((row.schedule_id, row.first_at), 0) < row.count

    def _of_row(self, row: LedgerRow) -> WhyEntry:
        several = f"{count_text(row.count, 'slot')} " if row.count > 1 else ""
        verdict, sentence = ledger_text(row, self._facts, self._zone, self._next_run)
        filled = self._facts.filled.get((row.schedule_id, row.first_at), 0)
        if is_passed_over(row, self._facts.early):
            sentence += "; the clock was ahead then"
        if filled:
            sentence += f"; {filled} of them backfilled since"
        return WhyEntry(
            at=row.first_at,
            until=row.last_at if row.count > 1 else None,
            count=row.count,
            outcome=verdict,
            sentence=f"{several}{sentence}",
            schedule=row.schedule,
        )

    def unrecorded(self, planned: PlannedInstant) -> WhyEntry:
        """Return the entry of a slot without a record."""
        verdict, sentence = self._without_row(planned)
        return WhyEntry(
            at=planned.slot.at,
            outcome=verdict,
            sentence=sentence,
            schedule=planned.schedule.name,
        )

    def _without_row(self, planned: PlannedInstant) -> tuple[str, str]:
        schedule, slot = planned.schedule, planned.slot
        if planned.kind is SlotKind.QUIET:
            return "skipped", "skipped: it falls into quiet hours"
        if planned.kind is SlotKind.EXCLUDED:
            return "skipped", "skipped: the day is excluded"
        if slot.at > schedule.cursor:
            return self._to_come(planned)
        if slot.at > self._facts.now:
            until = wall_time_text(schedule.cursor, self._zone)
            return "missed", f"does not fire: the clock was ahead, the schedule stands at {until}"
        if slot.at <= schedule.created_at:
            made = wall_time_text(schedule.created_at, self._zone)
            return "no_slot", f"the schedule did not exist yet: it was created {made}"
        if slot.at <= schedule.updated_at:
            changed = wall_time_text(schedule.updated_at, self._zone)
            return "no_slot", f"its rule or zone data were different until {changed}"
        return "unknown", "no record is left: it is older than the retention period"

    def _to_come(self, planned: PlannedInstant) -> tuple[str, str]:
        task, now, slot = self._facts.task, self._facts.now, planned.slot
        if planned.schedule.state is ScheduleState.QUARANTINED:
            return "missed", f"not planned: the schedule is quarantined ({planned.schedule.note})"
        if not task.enabled:
            return "planned", "will be skipped: the task is disabled"
        if task.paused_until is not None and slot.at < task.paused_until:
            return "planned", "will be skipped: the task is paused"
        if was_paused(self._facts.pauses, to_micros(slot.due)):
            ended = paused_since(self._facts.pauses) is None
            return "planned", f"will be skipped: everything {'was' if ended else 'is'} paused"
        if slot.due > now:
            moved = ""
            if slot.due > slot.at:
                moved = (
                    f", moved to {wall_time_text(slot.due, self._zone)} by quiet hours or jitter"
                )
            return "planned", f"due in {duration_text(slot.due - now)}{moved}"
        taken = any(worker.takes(now) for worker in self._facts.workers)
        advice = "the planner is about to plan it" if taken else self._facts.idle.sentence()
        return "overdue", f"due for {duration_text(now - slot.due)} and not planned yet: {advice}"


def _joined(stories: list[WhyEntry]) -> list[WhyEntry]:
    """Merge neighbouring entries without a record into one."""
    joined: list[WhyEntry] = []
    for story in stories:
        last = joined[-1] if joined else None
        if last is not None and _is_more_of(last, story):
            joined[-1] = replace(last, until=story.at, count=last.count + 1)
        else:
            joined.append(story)
    return joined


def _is_more_of(last: WhyEntry, story: WhyEntry) -> bool:
    same = (last.outcome, last.schedule) == (story.outcome, story.schedule)
    never = story.outcome == "no_slot" and last.sentence == story.sentence
    return same and (story.outcome == "overdue" or never)


def _covers(row: LedgerRow, planned: PlannedInstant) -> bool:
    same = row.schedule_id == planned.schedule.id
    return same and row.first_at <= planned.slot.at <= row.last_at


def _number(run: Run) -> int:
    return -1 if run.schedule_id is None else run.schedule_id


def _known(run: Run) -> str:
    """Return what is known about a successful run."""
    checked = check_state_of(run)
    told = [
        SUPPRESSION_WORDS.get(run.suppressed) if run.suppressed else None,
        CHECK_WORDS.get(checked) if checked else None,
    ]
    return "".join(f", {words}" for words in told if words)


def _asked(run: Run) -> str:
    if run.key is not None and run.key.startswith(NEXT_CHECK):
        return f"run {run.upstream_id} requested this next check"
    if run.upstream_id is not None:
        return f"follows run {run.upstream_id}"
    return f"requested ({run.source})"


FOUND_LATE = frozenset(
    {
        LedgerReason.MISSED,
        LedgerReason.TOO_LATE,
        LedgerReason.COALESCED,
        LedgerReason.CATCH_UP_CAP,
    }
)


def is_passed_over(row: LedgerRow, early: Leap | None) -> bool:
    """Return whether slots of a row were found late by a clock that was ahead."""
    if early is None or row.reason not in FOUND_LATE:
        return False
    return to_micros(row.last_at) >= early.start and to_micros(row.first_at) <= early.end


def ledger_text(
    row: LedgerRow, facts: WhyFacts, zone: ZoneInfo, next_run: Callable[[datetime], str]
) -> tuple[str, str]:
    """Return the outcome of the slots of a ledger row, as a word and a sentence."""
    catch_up = facts.task.policy.catch_up
    noted = wall_time_text(row.noted_at, zone)
    match row.reason:
        case LedgerReason.DISABLED:
            return "skipped", "skipped: the task was disabled"
        case LedgerReason.PAUSED:
            all_of_it = was_paused(facts.pauses, to_micros(row.first_at))
            whom = "everything" if all_of_it else "the task"
            return "skipped", f"skipped: {whom} was paused"
        case LedgerReason.OVERLAP:
            return "skipped", "skipped: an earlier run was still active (overlap skip)"
        case LedgerReason.COALESCED:
            return "coalesced", f"coalesced into {next_run(row.last_at)}"
        case LedgerReason.RESTORED:
            why = "it is unknown what ran between a backup and its restore"
            return "unknown", f"not caught up: {why} ({noted})"
        case LedgerReason.MISSED:
            return "missed", f"missed: found at {noted}, and the task does not catch up"
        case LedgerReason.TOO_LATE:
            window = duration_text(catch_up.window)
            return "missed", f"missed: found at {noted}, past the catch-up window of {window}"
        case LedgerReason.CATCH_UP_CAP:
            cap = count_text(catch_up.cap, "slot")
            return "missed", f"missed: found at {noted}; only the newest {cap} are caught up"


def why_waiting(run: Run, facts: WhyFacts, zone: ZoneInfo) -> str:
    """Return the first reason for which a queued run waits."""
    if run.queue_state is QueueState.DELAYED:
        return _later(run, facts, zone)
    waited = f"in the queue for {duration_text(facts.now - run.available_at)}"
    paused = maybe_instant(paused_since(facts.pauses))
    if paused is not None:
        return f"{waited}: everything is paused since {wall_time_text(paused, zone)}"
    before = _before(run, facts) if run.queue_state is QueueState.HELD else None
    if before is not None:
        return f"{waited}: {before}"
    taking = [worker for worker in facts.workers if worker.takes(facts.now)]
    if not taking:
        return f"{waited}: {facts.idle.what}, {facts.idle.step}"
    if not any(run.route in worker.routes for worker in taking):
        return f"{waited}: no worker serves its route {run.route}"
    reached = _reached(run, facts)
    if reached is not None:
        return f"{waited}: {reached}"
    free = sum(worker.slots - worker.running for worker in taking)
    if free <= 0:
        return f"{waited}: all worker slots are in use"
    return f"{waited}: ready, a worker is about to claim it"


def unsupervised_text(facts: WhyFacts) -> str:
    """Return a note if no worker supervises running work."""
    if any(worker.alive(facts.now) for worker in facts.workers):
        return ""
    return f"; {facts.idle.what}, {facts.idle.step}"


def _later(run: Run, facts: WhyFacts, zone: ZoneInfo) -> str:
    wait = duration_text(run.available_at - facts.now)
    when = f"{wall_time_text(run.available_at, zone)}, in {wait}"
    if run.cause is AttemptCause.RETRY:
        return f"attempt {run.epoch} failed; it is retried at {when}"
    if run.error_code == OVER:
        return f"waits for a budget until {when}: {run.error}"
    return f"not due before {when}"


def _before(run: Run, facts: WhyFacts) -> str | None:
    """Return which run blocks it in its lane; None for the first of a free lane."""
    lane = [r for r in facts.unfinished if r.lane == run.lane and r.space == run.space]
    for other in lane:
        if other.state is RunState.RUNNING:
            return f"its lane is busy with run {other.id} of {other.task}"
    ready = [
        other for other in lane if other.queue_state is QueueState.READY and other.id != run.id
    ]
    held = [
        other
        for other in lane
        if other.queue_state is QueueState.HELD and _turn(other) < _turn(run)
    ]
    for other in (*ready, *sorted(held, key=_turn)):
        return f"run {other.id} of {other.task} is ahead of it in its lane"
    return None


def _turn(run: Run) -> tuple[int, datetime, int]:
    return -run.priority, run.available_at, run.id


def _reached(run: Run, facts: WhyFacts) -> str | None:
    policy = facts.policies.get(run.task_id, facts.task.policy)
    running = [r for r in facts.unfinished if r.state is RunState.RUNNING]
    for limit in facts.limits:
        counts = _counts(limit, run, policy)
        if not counts:
            continue
        if limit.rate is not None and limit.period is not None and limit.scope is LimitScope.GROUP:
            spent = f"{limit.rate} starts in {duration_text(limit.period)}"
        else:
            spent = ""
        if limit.cap is not None:
            used = sum(
                _counts(limit, other, facts.policies.get(other.task_id, Policy()))
                for other in running
            )
            if used >= limit.cap:
                said = f"the limit of {count_text(limit.cap, 'run')} {_where(limit)} is reached"
                scope = " ".join(filter(None, (limit.scope.value, limit.key)))
                return f"{said}; to change it: `rota limit set {scope} --cap N`"
        if spent:
            return f"the rate of {spent} {_where(limit)} may be used up"
    return None


def _counts(limit: Limit, run: Run, policy: Policy) -> bool:
    if limit.scope is LimitScope.GROUP:
        return policy.group == limit.key
    if not policy.metered:
        return False
    if limit.scope is LimitScope.TOTAL:
        return True
    return limit.key.partition("/")[0] == run.pool


def _where(limit: Limit) -> str:
    match limit.scope:
        case LimitScope.TOTAL:
            return "in all"
        case LimitScope.POOL:
            return f"in the {limit.key} pool"
        case LimitScope.SPACE:
            return f"for one space in the {limit.key.partition('/')[0]} pool"
        case LimitScope.GROUP:
            return f"in the group {limit.key}"
