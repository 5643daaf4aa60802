"""Why: what became of a task's slots, in words.

`explain` is pure: facts in, sentences out. Every slot in the span gets exactly one story, from its
run, from the ledger, or from the rule when neither says anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from rota.flow.observe.checked import MARKS, WORDS, checked_of
from rota.flow.observe.facts import Facts, Kind, Planned
from rota.flow.observe.ledgered import is_passed_over, ledgered
from rota.flow.observe.queueing import unminded, why_waiting
from rota.flow.observe.telling import clock, counted, heard_of, span, wall, whole_line
from rota.flow.plan import REPLACED
from rota.model.events import Event
from rota.model.instants import maybe_instant, to_micros
from rota.model.pauses import paused_since, was_paused
from rota.model.plans import LedgerRow, ScheduleState
from rota.model.runs import Attempt, Run, Source
from rota.model.states import RunState
from rota.rules.catch_up import GRACE
from rota.rules.next_checks import KEY as NEXT_CHECK


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What became of one slot, of several that share a fate, or of a run that was asked for."""

    at: datetime
    verdict: str
    sentence: str
    schedule: str | None = None
    run_id: int | None = None
    until: datetime | None = None
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The whole answer: notes on the task, then one story after the other."""

    task: str
    notes: list[str] = field(default_factory=list)
    stories: list[Story] = field(default_factory=list)


def explain(facts: Facts, zone: ZoneInfo) -> Why:
    """Return what the facts amount to, told on the wall of a zone."""
    teller = _Teller(facts, zone)
    stories = teller.stories(facts.planned)
    notes = teller.notes()
    if facts.span.instant is not None and not _holds(stories, facts.span.instant):
        notes.append(teller.not_a_slot(facts.span.instant))
        stories = teller.stories([*facts.before, *facts.after], around=True)
    elif facts.span.end <= facts.now and facts.after and facts.span.instant is None:
        upcoming = [p for p in facts.after if p.slot.at > facts.now]
        stories += [teller.unrecorded(p) for p in sorted(upcoming, key=lambda p: p.slot.at)]
    return Why(task=facts.task.name, notes=notes, stories=stories)


def explain_run(facts: Facts, attempts: list[Attempt], zone: ZoneInfo) -> Why:
    """Return what became of one run, and how its earlier attempts ended."""
    notes = [
        f"Attempt {attempt.number} ended as {attempt.outcome}: {_reason(attempt.error)}."
        for attempt in attempts
        if attempt.error is not None
    ]
    notes += [sentence for event in facts.noticed for sentence in told_of(event)]
    return Why(task=facts.task.name, notes=notes, stories=_Teller(facts, zone).stories([]))


def _reason(error: str | None) -> str:
    """Return why something came to nothing, as a part of a sentence."""
    return whole_line(error).removesuffix(".")


def told_of(event: Event) -> list[str]:
    """Return where people were told of a run, and where it did not matter enough."""
    to, below = (", ".join(map(str, _list(event.data.get(name)))) for name in ("to", "below"))
    said = [f"People are told of it in {to}."] if to else []
    return said + ([f"Below the level of {below}: nothing is sent there."] if below else [])


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _holds(stories: list[Story], instant: datetime) -> bool:
    return any(
        story.at <= instant + timedelta(minutes=1) and (story.until or story.at) >= instant
        for story in stories
    )


class _Teller:
    """Tells about one set of facts."""

    def __init__(self, facts: Facts, zone: ZoneInfo) -> None:
        self._facts = facts
        self._zone = zone
        self._names = {schedule.id: schedule.name for schedule in facts.schedules}

    def notes(self) -> list[str]:
        """Return what is to be known about the task as a whole."""
        task, facts = self._facts.task, self._facts
        notes = []
        paused = maybe_instant(paused_since(facts.pauses))
        if paused is not None:
            notes.append(f"Everything is paused since {wall(paused, self._zone)}.")
        if not task.enabled:
            at = task.disabled_at
            since = "" if at is None else f" since {wall(at, self._zone)}"
            reason = f": {task.disabled_reason}" if task.disabled_reason else ""
            notes.append(f"The task is disabled{since}{reason}.")
        elif task.paused_until is not None and task.paused_until > facts.now:
            reason = f": {task.disabled_reason}" if task.disabled_reason else ""
            notes.append(f"The task is paused until {wall(task.paused_until, self._zone)}{reason}.")
        if task.after is not None:
            notes.append(f"It runs after {task.after.task}, on {task.after.on}.")
        elif not facts.schedules:
            notes.append("It has no schedule: it runs when asked.")
        notes += self._schedule_notes()
        if facts.narrowed:
            hint = f"`rota why {task.name} TIME` tells of one slot, `rota runs --task {task.name}`"
            start = wall(facts.span.start, self._zone)
            notes.append(f"What ended before {start} is not shown: {hint} of every run.")
        if facts.shortened:
            notes.append(f"What comes after {wall(facts.span.end, self._zone)} is not shown.")
        return notes

    def _schedule_notes(self) -> list[str]:
        notes = []
        for schedule in self._facts.schedules:
            if schedule.state is not ScheduleState.ACTIVE:
                said = "has ended" if schedule.state is ScheduleState.ENDED else "was set aside"
                notes.append(f"Schedule {schedule.name} {said}: {schedule.note}.")
        passed = self._facts.passed
        if passed is not None:
            notes.append(
                f"The clock was ahead and went back: {passed.slots_told()} that it passed over "
                f"do not run by themselves. To run them: `{passed.command()}`."
            )
        return notes

    def not_a_slot(self, instant: datetime) -> str:
        """Return the sentence for an instant at which nothing was planned."""
        before = max((p.slot.at for p in self._facts.before), default=None)
        after = min((p.slot.at for p in self._facts.after), default=None)
        sides = []
        if before is not None:
            sides.append(f"the one before it was {wall(before, self._zone)}")
        if after is not None:
            sides.append(f"the next one is {wall(after, self._zone)}")
        rest = f": {', '.join(sides)}" if sides else ""
        return f"{wall(instant, self._zone)} is not a slot of {self._facts.task.name}{rest}."

    def stories(self, planned: list[Planned], *, around: bool = False) -> list[Story]:
        """Return one story for each slot and each run, in the order of time."""
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

    def _of_run(self, run: Run, due: datetime | None) -> Story:
        verdict, sentence = self._fate(run, due or run.slot_at)
        if run.slot_at is None:
            sentence = f"{_asked(run)}; {sentence}"
        elif run.state not in {RunState.SUCCEEDED, RunState.FAILED}:
            sentence += self._backfilled(run)
        return Story(
            at=run.slot_at or run.created_at,
            verdict=verdict,
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
            return "ran", "it never began"
        tries = f" at attempt {run.epoch}" if run.epoch > 1 else ""
        took = f"took {span(run.took)}{tries}{_known(run)}"
        if due is None:
            return "ran", f"ran at {clock(run.started_at, self._zone)}, {took}"
        late = run.started_at - due
        began = f"ran at {clock(run.started_at, self._zone)}"
        if late <= GRACE:
            said = f" ({span(late)} late)" if late >= timedelta(milliseconds=500) else ""
            return "ran", f"{began}{said}{self._backfilled(run)}, {took}"
        if run.source is Source.BACKFILL:
            cause = f"it was backfilled at {wall(run.created_at, self._zone)}"
        elif run.created_at - due > GRACE:
            cause = "it was found late and caught up"
        elif run.retries or run.losses:
            cause = "an earlier attempt came to nothing"
        else:
            cause = "it waited in the queue"
        return "late", f"{began}, {span(late)} late because {cause}, {took}"

    def _backfilled(self, run: Run) -> str:
        if run.source is not Source.BACKFILL:
            return ""
        return f", backfilled at {wall(run.created_at, self._zone)}"

    def _cancelled(self, run: Run) -> tuple[str, str]:
        if run.error != REPLACED:
            why = _reason(run.error)
            return "cancelled", why if why.startswith("cancelled") else f"cancelled: {why}"
        return "coalesced", f"coalesced into {self._next_run(run.slot_at)}: {REPLACED}"

    def _next_run(self, at: datetime | None) -> str:
        for other in self._facts.runs:
            later = at is not None and other.slot_at is not None and other.slot_at > at
            if later and other.slot_at is not None and other.error != REPLACED:
                return f"the slot of {clock(other.slot_at, self._zone)} (run {other.id})"
        return "a later slot"

    def _running(self, run: Run) -> str:
        since = run.started_at or run.available_at
        said = f"running for {span(self._facts.now - since)}, attempt {run.epoch}"
        if run.stuck:
            said += ", past its timeout and not to be stopped"
        if run.cancel_requested_at is not None:
            stop = self._facts.stops.get(run.id)
            why = stop and stop.data.get("why")
            said += f", asked to stop ({why})" if why else ", asked to stop"
        heard = self._facts.heartbeats.get(run.id)
        if heard is not None:
            said += f", {heard_of(heard, self._facts.now)}"
        return said + self._trying_again(run) + unminded(self._facts)

    def _trying_again(self, run: Run) -> str:
        """Return what an agent waits for that its provider has refused for a moment."""
        fault = self._facts.faults.get(run.id)
        if fault is None or "retry" not in fault.data:
            return ""
        at = datetime.fromisoformat(str(fault.data["at"]))
        waits = at > self._facts.now
        when = f"is tried again at {clock(at, self._zone)}" if waits else "was tried again"
        return f"; {when} ({fault.data['retry']} of {fault.data['of']}): {fault.data['message']}"

    def _asking(self, run: Run) -> str:
        for question in self._facts.questions:
            if question.run_id == run.id and question.answered_at is None:
                until = wall(question.expires_at, self._zone)
                asked = whole_line(question.question)
                return f'waits for an answer to question {question.id} until {until}: "{asked}"'
        return "waits for an answer"

    def _left(self, row: LedgerRow) -> bool:
        """Whether any slot of a row has no run since."""
        return self._facts.filled.get((row.schedule_id, row.first_at), 0) < row.count

    def _of_row(self, row: LedgerRow) -> Story:
        several = f"{counted(row.count, 'slot')} " if row.count > 1 else ""
        verdict, sentence = ledgered(row, self._facts, self._zone, self._next_run)
        filled = self._facts.filled.get((row.schedule_id, row.first_at), 0)
        if is_passed_over(row, self._facts.early):
            sentence += "; the clock was ahead then"
        if filled:
            sentence += f"; {filled} of them backfilled since"
        return Story(
            at=row.first_at,
            until=row.last_at if row.count > 1 else None,
            count=row.count,
            verdict=verdict,
            sentence=f"{several}{sentence}",
            schedule=row.schedule,
        )

    def unrecorded(self, planned: Planned) -> Story:
        """Return the story of a slot that no row tells of."""
        verdict, sentence = self._without_row(planned)
        return Story(
            at=planned.slot.at,
            verdict=verdict,
            sentence=sentence,
            schedule=planned.schedule.name,
        )

    def _without_row(self, planned: Planned) -> tuple[str, str]:
        schedule, slot = planned.schedule, planned.slot
        if planned.kind is Kind.QUIET:
            return "skipped", "skipped: it falls into quiet hours"
        if planned.kind is Kind.EXCLUDED:
            return "skipped", "skipped: the day is excluded"
        if slot.at > schedule.cursor:
            return self._to_come(planned)
        if slot.at > self._facts.now:
            until = wall(schedule.cursor, self._zone)
            return "missed", f"does not fire: the clock was ahead, the schedule stands at {until}"
        if slot.at <= schedule.created_at:
            made = wall(schedule.created_at, self._zone)
            return "no_slot", f"the schedule did not exist yet: it was made {made}"
        if slot.at <= schedule.updated_at:
            changed = wall(schedule.updated_at, self._zone)
            return "no_slot", f"its rule or its zone's data were others then, until {changed}"
        return "unknown", "no record is left: it is older than what is kept"

    def _to_come(self, planned: Planned) -> tuple[str, str]:
        task, now, slot = self._facts.task, self._facts.now, planned.slot
        if planned.schedule.state is ScheduleState.QUARANTINED:
            return "missed", f"not planned: the schedule was set aside ({planned.schedule.note})"
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
                moved = f", moved to {wall(slot.due, self._zone)} by quiet hours or jitter"
            return "planned", f"due in {span(slot.due - now)}{moved}"
        taken = any(worker.takes(now) for worker in self._facts.workers)
        advice = "the planner is about to see it" if taken else self._facts.idle.sentence()
        return "overdue", f"due for {span(now - slot.due)} and not planned yet: {advice}"


def _joined(stories: list[Story]) -> list[Story]:
    """Tell slots that nobody has planned yet, or that never were, as one from oldest to newest."""
    joined: list[Story] = []
    for story in stories:
        last = joined[-1] if joined else None
        if last is not None and _is_more_of(last, story):
            joined[-1] = replace(last, until=story.at, count=last.count + 1)
        else:
            joined.append(story)
    return joined


def _is_more_of(last: Story, story: Story) -> bool:
    same = (last.verdict, last.schedule) == (story.verdict, story.schedule)
    never = story.verdict == "no_slot" and last.sentence == story.sentence
    return same and (story.verdict == "overdue" or never)


def _covers(row: LedgerRow, planned: Planned) -> bool:
    same = row.schedule_id == planned.schedule.id
    return same and row.first_at <= planned.slot.at <= row.last_at


def _number(run: Run) -> int:
    return -1 if run.schedule_id is None else run.schedule_id


def _known(run: Run) -> str:
    """Return what is known of a run that calls itself done."""
    checked = checked_of(run)
    told = [MARKS.get(run.mark) if run.mark else None, WORDS.get(checked) if checked else None]
    return "".join(f", {words}" for words in told if words)


def _asked(run: Run) -> str:
    if run.key is not None and run.key.startswith(NEXT_CHECK):
        return f"run {run.upstream_id} asked to look again"
    if run.upstream_id is not None:
        return f"follows run {run.upstream_id}"
    return f"asked for ({run.source})"
