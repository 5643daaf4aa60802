"""Consistency checks of the records of runs, deliveries, limits and requests.

Each function takes rows as stored and yields violations. If a row depends on a definition that may
have changed, it is only checked if the definition had been in force for a minute: the transaction
that wrote the row may have committed later than its timestamp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeAlias

from rota.errors import IllegalMove
from rota.model.attempts import MAX_RESULT_BYTES
from rota.model.events import EventName
from rota.model.notifications import DeliveryState
from rota.model.runs import MAX_PAYLOAD_BYTES, RunSource, RunState, RunTransition, after
from rota.model.spaces import LimitScope
from rota.model.tasks import AfterOn, Policy
from rota.model.verification import (
    DeliveryRecord,
    Invariant,
    LimitRecord,
    QuestionRecord,
    ReadyRecord,
    RunHistory,
    RunningRecord,
    RunRecord,
    VerificationOverview,
    Violation,
)
from rota.rules.approvals import APPROVAL, APPROVE, DECISIONS, action_digest, is_control
from rota.rules.queue import MAX_CHAIN_DEPTH, PLANNED, STARTS
from rota.rules.settlement import MAX_ERROR, MAX_LOSSES

Finding: TypeAlias = tuple[Invariant, str]

IN_FORCE = 60_000_000
"""For how many microseconds a definition must have been in force to be checked against."""

ROUNDING = 0.001
"""Tolerance for buckets, which are counted in floating point."""

_DELIVERED = {
    DeliveryState.SENT: EventName.DELIVERY_SENT,
    DeliveryState.UNKNOWN: EventName.DELIVERY_UNKNOWN,
    DeliveryState.DEAD: EventName.DELIVERY_DEAD,
    DeliveryState.WITHDRAWN: EventName.DELIVERY_WITHDRAWN,
}
_NOT_TRIED = frozenset({DeliveryState.PENDING, DeliveryState.WITHDRAWN})
_NOTIFIED = frozenset({RunState.FAILED.value, RunState.EXPIRED.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDefinition:
    """The current definition of a run's task."""

    space_id: int
    policy: Policy
    updated_at: int

    def in_force(self, at: int) -> bool:
        """Whether it was certainly in force at an instant."""
        return self.updated_at + IN_FORCE < at


def check_run(
    run: RunRecord, history: RunHistory, task: TaskDefinition | None, *, whole: bool
) -> Iterator[Violation]:
    """Yield the violations of a run; `whole` means that none of its events was pruned."""
    for invariant, what in (
        *_space(run, history, task),
        *_slot(run),
        *_follow_up(run, history, task),
        *_quota(run),
        *_reach(run, history),
        *_record(run, history, task, whole=whole),
        *check_attempt_requests(run, history),
    ):
        yield Violation(invariant=invariant, where=f"run {run.id}", what=what)


def _space(run: RunRecord, history: RunHistory, task: TaskDefinition | None) -> Iterator[Finding]:
    if task is None:
        yield Invariant.SPACES, f"its task {run.task_id} does not exist"
    elif task.space_id != run.space_id:
        yield Invariant.SPACES, f"is in space {run.space_id}, its task in {task.space_id}"
    elif any(event.space_id not in {None, run.space_id} for event in history.events):
        yield Invariant.SPACES, "one of its events is in another space"


def _quota(run: RunRecord) -> Iterator[Finding]:
    for noun, size, limit in (
        ("payload", run.payload_bytes, MAX_PAYLOAD_BYTES),
        ("result", run.result_bytes or 0, MAX_RESULT_BYTES),
        ("error", run.error_length or 0, MAX_ERROR),
    ):
        if size > limit:
            yield Invariant.QUOTA, f"its {noun} has {size} bytes, at most {limit} are taken"


def _reach(run: RunRecord, history: RunHistory) -> Iterator[Finding]:
    if run.astray:
        yield Invariant.IN_REACH, "is held behind a lane, but has no lane"
    if run.state != RunState.WAITING:
        return
    is_open = any(q.answered_at is None and q.epoch == run.epoch for q in history.questions)
    if not is_open or run.expires_at is None:
        yield Invariant.IN_REACH, "waits, but has no open question that can expire"


def _slot(run: RunRecord) -> Iterator[Finding]:
    named = [run.schedule_id is not None, run.slot_key is not None, run.slot_at is not None]
    if any(named) != all(named) or (run.source in PLANNED) != all(named):
        yield Invariant.OF_A_SLOT, f"came from {run.source}, but its slot is {run.slot_key}"
    elif run.schedule_id is not None and run.schedule_task_id != run.task_id:
        yield Invariant.OF_A_SLOT, f"its schedule {run.schedule_id} is not its task's"
    if run.in_ledger and run.source != RunSource.BACKFILL:
        yield Invariant.ONE_FATE, f"its slot {run.slot_key} is in the ledger too"


def _follow_up(
    run: RunRecord, history: RunHistory, task: TaskDefinition | None
) -> Iterator[Finding]:
    for sentence in (*_result(run), *_outbox(run, history, task), *_upstream(run)):
        yield Invariant.FOLLOW_UP, sentence


def _result(run: RunRecord) -> Iterator[str]:
    succeeded = run.state == RunState.SUCCEEDED
    if run.result_bytes is not None and not succeeded:
        yield f"has a result, but is {run.state}"
    if run.finished_at is not None and (run.error_code is None) != succeeded:
        yield f"is {run.state}, with the error {run.error_code}"


def _outbox(run: RunRecord, history: RunHistory, task: TaskDefinition | None) -> Iterator[str]:
    delivers = run.finished_at is not None and run.state != RunState.CANCELLED
    if run.deliveries and not delivers:
        yield f"has {run.deliveries} messages in the outbox, but is {run.state}"
    if run.notices and not history.questions and run.state not in _NOTIFIED:
        yield f"has {run.notices} notifications, but is {run.state} and never asked"
    must_deliver = (
        task is not None and task.policy.deliver_to is not None and task.in_force(started_by(run))
    )
    if must_deliver and delivers and not run.deliveries:
        yield f"is {run.state}, but its result is not in the outbox"


def _upstream(run: RunRecord) -> Iterator[str]:
    if (run.source == RunSource.AFTER) != (run.upstream_id is not None):
        yield f"came from {run.source}, but follows run {run.upstream_id}"
    elif run.upstream_state is not None and run.upstream_state not in STARTS[AfterOn.ANY]:
        yield f"follows run {run.upstream_id}, which is {run.upstream_state}"


def should_follow(run: RunRecord, on: AfterOn, *, enabled: bool, follower: TaskDefinition) -> bool:
    """Whether a follower must certainly have a run after this one."""
    return (
        enabled
        and run.state in STARTS[on]
        and run.depth < MAX_CHAIN_DEPTH
        and follower.in_force(started_by(run))
    )


def started_by(run: RunRecord) -> int:
    """Return an instant that is before the decision about the run's end."""
    return run.created_at if run.started_at is None else run.started_at


def _record(
    run: RunRecord, history: RunHistory, task: TaskDefinition | None, *, whole: bool
) -> Iterator[Finding]:
    """Yield the first violation in a run's attempts, questions and events."""
    yield from islice(
        chain(
            _epochs(run, history),
            _end(run, history),
            _retries_and_losses(run, task),
            _replay_events(run, history) if whole else (),
        ),
        1,
    )


def _epochs(run: RunRecord, history: RunHistory) -> Iterator[Finding]:
    ended = run.epoch - (run.state == RunState.RUNNING)
    numbers = [attempt.number for attempt in history.attempts]
    asked = [question.epoch for question in history.questions]
    beyond = [n for n in (*numbers, *asked) if not 0 < n <= ended]
    if beyond:
        yield Invariant.FENCED, f"has a record of epoch {beyond[0]}, but {ended} have ended"
    if numbers != list(range(1, ended + 1)) or (run.epoch > 0) != (run.started_at is not None):
        yield Invariant.EPOCHS, f"is at epoch {run.epoch}, its ended attempts are {numbers}"


def _end(run: RunRecord, history: RunHistory) -> Iterator[Finding]:
    ends = [event for event in history.events if event.name == EventName.SETTLED]
    if len(ends) != (run.finished_at is not None):
        yield Invariant.ONE_END, f"is {run.state}, and its end was recorded {len(ends)} times"
    elif ends and ends[0].at != run.finished_at:
        yield Invariant.ONE_END, "its end was recorded with another time than its own"


def _retries_and_losses(run: RunRecord, task: TaskDefinition | None) -> Iterator[Finding]:
    if run.losses > MAX_LOSSES:
        yield Invariant.TRIES, f"was lost {run.losses} times, at most {MAX_LOSSES} are allowed"
    if task is not None and task.in_force(run.created_at):
        limit = task.policy.retry.attempts - 1
        if run.retries > limit:
            yield Invariant.TRIES, f"was retried {run.retries} times, at most {limit} are allowed"


def _replay_events(run: RunRecord, history: RunHistory) -> Iterator[Finding]:
    replay = EventReplay(history)
    try:
        for event in history.events:
            replay.take(EventName(event.name), event.state)
        if run.state == RunState.RUNNING:
            replay.claim()
    except (IllegalMove, ReplayMismatch) as error:
        yield Invariant.REPLAY, str(error)
        return
    if (replay.state, replay.claims) != (run.state, run.epoch):
        replayed = f"{replay.state} at epoch {replay.claims}"
        yield (
            Invariant.REPLAY,
            f"is {run.state} at epoch {run.epoch}, its events lead to {replayed}",
        )
    elif (replay.retries, replay.losses) != (run.retries, run.losses):
        replayed = f"{replay.retries} retries and {replay.losses} losses"
        yield (
            Invariant.TRIES,
            f"counts {run.retries} and {run.losses}, its events tell of {replayed}",
        )


def check_delivery(delivery: DeliveryRecord, max_tries: int, *, whole: bool) -> Iterator[Violation]:
    """Yield the violations of a delivery; `whole` means that none of its events was pruned."""

    def wrong(invariant: Invariant, what: str) -> Violation:
        return Violation(invariant=invariant, where=f"delivery {delivery.id}", what=what)

    if delivery.run_space_id not in {None, delivery.space_id}:
        yield wrong(Invariant.SPACES, f"is in another space than its run {delivery.run_id}")
    state = DeliveryState(delivery.state)
    if (state is DeliveryState.SENDING) != (delivery.holder is not None):
        yield wrong(Invariant.IN_REACH, f"is {state}, and its sender is {delivery.holder}")
    ends = Counter((delivery.ends or "").split(",")) - Counter([""])
    expected = Counter([_DELIVERED[state].value] if state in _DELIVERED else [])
    missing = whole and delivery.run_state is not None and expected - ends
    if missing or ends - expected:
        recorded = ", ".join(sorted(ends.elements())) or "nothing"
        yield wrong(Invariant.SENT_ONCE, f"is {state}, its events say {recorded}")
    elif (state is DeliveryState.SENT) != (delivery.sent_at is not None):
        yield wrong(Invariant.SENT_ONCE, f"is {state}, but its time of sending contradicts that")
    elif delivery.tries == 0 and state not in _NOT_TRIED:
        yield wrong(Invariant.SENT_ONCE, f"is {state}, but was never tried")
    elif state is DeliveryState.PENDING and delivery.refused and delivery.tries >= max_tries:
        yield wrong(Invariant.SENT_ONCE, f"waits for try {delivery.tries + 1} of {max_tries}")


def check_limits(
    limits: Sequence[LimitRecord], running: Sequence[RunningRecord]
) -> Iterator[Violation]:
    """Yield the violated limits.

    Only the start of a run can violate a cap. So a cap is checked if a running run has started
    since it was set; runs above a lowered cap may continue.
    """
    for limit in limits:
        where = f"limit {limit.scope} {limit.key}".rstrip()
        if limit.tokens is not None and not -ROUNDING < limit.tokens <= (limit.rate or 0):
            what = f"its bucket holds {limit.tokens:g} of {limit.rate} starts"
            yield Violation(invariant=Invariant.LIMITS, where=where, what=what)
        for counted in _counted(limit, limits, running):
            used, newest = sum(r.runs for r in counted), max(r.newest for r in counted)
            in_force = limit.refilled_at + IN_FORCE < newest
            if limit.cap is not None and used > limit.cap and in_force:
                what = f"{used} are running, {limit.cap} may"
                yield Violation(invariant=Invariant.LIMITS, where=where, what=what)


def _counted(
    limit: LimitRecord, limits: Sequence[LimitRecord], running: Sequence[RunningRecord]
) -> list[list[RunningRecord]]:
    """Return the rows that a limit counts, grouped by space where it applies to each space."""
    metered = [r for r in running if r.metered]
    match LimitScope(limit.scope):
        case LimitScope.TOTAL:
            found = [metered]
        case LimitScope.POOL:
            found = [[r for r in metered if r.pool == limit.key]]
        case LimitScope.GROUP:
            found = [[r for r in running if r.group == limit.key]]
        case LimitScope.SPACE:
            caps = {other.key for other in limits if other.scope == LimitScope.SPACE}
            spaces: dict[int, list[RunningRecord]] = {}
            for r in metered:
                own = f"{r.pool}/{r.space_id}"
                if limit.key == (own if own in caps else r.pool):
                    spaces.setdefault(r.space_id, []).append(r)
            found = list(spaces.values())
    return [rows for rows in found if rows]


def check_claimable(seen: VerificationOverview) -> Iterator[Violation]:
    """Yield ready runs that no claim would find, and lanes without a running or ready run."""
    lanes = {(ping.space_id, ping.lane) for ping in seen.pings if ping.lane is not None}
    reach = _ClaimReach(seen)
    for ready in seen.ready:
        if not reach.covers(ready):
            what = f"and {ready.runs - 1} similar ones are ready, but no claim will find them"
            where = f"run {ready.first}"
            yield Violation(invariant=Invariant.IN_REACH, where=where, what=what)
    for held in seen.held:
        if (held.space_id, held.lane) not in lanes:
            what = f"and {held.runs - 1} others wait in lane {held.lane}, which has no ready run"
            where = f"run {held.first}"
            yield Violation(invariant=Invariant.IN_REACH, where=where, what=what)


class _ClaimReach:
    """Which queue heads the next claims examine."""

    def __init__(self, seen: VerificationOverview) -> None:
        self._gates = {limit.key for limit in seen.limits if limit.scope == LimitScope.GROUP}
        self._caps = {
            limit.key: limit.cap for limit in seen.limits if limit.scope == LimitScope.SPACE
        }
        self._used: Counter[tuple[str, int]] = Counter()
        for running in seen.running:
            self._used[running.pool, running.space_id] += running.runs if running.metered else 0
        self._pinged = {ping[:5] for ping in seen.pings if ping.lane is None}

    def covers(self, ready: ReadyRecord) -> bool:
        """Whether a claim will find ready runs whose head is missing, closed or behind a gate.

        A claim hint creates a missing head and opens a closed one, but opens no gate. A head is
        closed correctly while its space is at its cap.
        """
        pinged = tuple(ready[:5]) in self._pinged
        if ready.open is None:
            return pinged
        if ready.gate and ready.gate not in self._gates:
            return False
        reopened = (ready.pool, ready.space_id, None, None, None) in self._pinged
        return bool(ready.open or pinged or reopened or (ready.metered and self._full(ready)))

    def _full(self, ready: ReadyRecord) -> bool:
        own = f"{ready.pool}/{ready.space_id}"
        cap = self._caps.get(own, self._caps.get(ready.pool))
        return cap is not None and self._used[ready.pool, ready.space_id] >= cap


def check_attempt_requests(run: RunRecord, history: RunHistory) -> Iterator[Finding]:
    """Yield the violations of a run's deferred operations and decisions."""
    if run.deferred and run.finished_at is not None:
        what = f"is {run.state}, but has {run.deferred} deferred operations left"
        yield Invariant.FOLLOW_UP, what
    if run.applied and run.state != RunState.SUCCEEDED:
        what = f"is {run.state}, but {run.applied} operations deferred until success were applied"
        yield Invariant.FOLLOW_UP, what
    if run.strays:
        what = f"has {run.strays} deferred operations of an attempt that cannot have requested them"
        yield Invariant.FENCED, what
    for question in history.questions:
        if question.kind == APPROVAL and not _is_bound(question):
            what = f"the approval of attempt {question.epoch} does not match its hash"
            yield Invariant.DECISIONS, what
        elif _is_undone(question):
            what = f"the approved action of attempt {question.epoch} has no recorded result"
            yield Invariant.DECISIONS, what


def _is_bound(question: QuestionRecord) -> bool:
    """Whether an approval matches its hash, and its answer is a valid decision."""
    if question.action is None or question.digest != action_digest(question.action):
        return False
    return question.answered_at is None or question.answer in DECISIONS


def _is_undone(question: QuestionRecord) -> bool:
    """Whether an approved action of Rota's has no recorded result."""
    approved = question.answered_at is not None and question.answer == APPROVE
    return approved and question.outcome is None and is_control(question.action)


_ENDS = {
    RunState.SUCCEEDED: RunTransition.SUCCEED,
    RunState.FAILED: RunTransition.FAIL,
    RunState.CANCELLED: RunTransition.CANCEL,
    RunState.EXPIRED: RunTransition.EXPIRE,
}
_MOVES = {
    EventName.RETRIED: (RunTransition.RETRY, {"failed"}),
    EventName.LOST: (RunTransition.LOSE, {"lost"}),
    EventName.RELEASED: (RunTransition.LOSE, {"released"}),
    EventName.BUDGET_EXHAUSTED: (RunTransition.LOSE, {"released"}),
    EventName.QUESTION_ASKED: (RunTransition.ASK, {"asked", "lost"}),
}
"""Transitions by attempts that did not end their run, with the outcomes they require."""


class ReplayMismatch(Exception):
    """An event contradicts the other records of its run."""


class EventReplay:
    """Replays the events of a run; claims are inferred from its attempts."""

    def __init__(self, history: RunHistory) -> None:
        self.state = RunState.QUEUED
        self.claims = self.retries = self.losses = 0
        self._outcomes = [attempt.outcome for attempt in history.attempts]
        self._kinds = {question.epoch: question.kind for question in history.questions}

    def claim(self) -> None:
        """Start the next attempt."""
        self.state = after(self.state, RunTransition.CLAIM)
        self.claims += 1

    def take(self, name: EventName, settled: str | None) -> None:
        """Apply an event; raise IllegalMove or ReplayMismatch if it is impossible."""
        if name is EventName.QUESTION_ANSWERED:
            self.state = after(self.state, RunTransition.ANSWER)
            self.losses += self._kinds.get(self.claims) == "lost"
            return
        if name is EventName.SETTLED:
            state = RunState(settled or "")
            move, outcomes = _ENDS[state], {state.value}
            begun = self.state is RunState.QUEUED and self.claims < len(self._outcomes)
        else:
            move, outcomes = _MOVES[name]
            begun = True
        if begun:
            self.claim()
            self._match(name, outcomes)
        self.state = after(self.state, move)
        self.retries += name is EventName.RETRIED
        self.losses += name is EventName.LOST

    def _match(self, name: EventName, outcomes: set[str]) -> None:
        outcome = (
            self._outcomes[self.claims - 1] if self.claims <= len(self._outcomes) else "missing"
        )
        if outcome not in outcomes:
            message = f"its attempt {self.claims} is {outcome}, its event {name}"
            raise ReplayMismatch(message)
