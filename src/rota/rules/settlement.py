"""How a run continues after an attempt: settled, retried, asked or lost.

Every end of an attempt is decided here, whatever stage reports it. The result is a Settlement,
which the store applies completely or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import assert_never

from rota.model.attempts import (
    AttemptReport,
    Cancelled,
    Expired,
    Failed,
    Lost,
    Outcome,
    OutgoingMessage,
    Released,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.checks import SuppressionReason
from rota.model.ids import QuestionId
from rota.model.notifications import DeliveryKind
from rota.model.runs import (
    FINISHED,
    AttemptCause,
    OpenRun,
    Question,
    RunBatch,
    RunState,
    RunTransition,
    after,
)
from rota.model.settlement import (
    NOTHING,
    PLAIN_SUCCESS,
    AttemptNotes,
    NewDelivery,
    NewQuestion,
    Settlement,
    SettlementExtras,
)
from rota.model.tasks import OnLost, Policy, Retry, Task
from rota.rules.approvals import APPROVAL, action_digest
from rota.rules.budgets import OVER
from rota.rules.notifications import address_result, end_notification, question_notification
from rota.rules.queue import successor_runs

MAX_LOSSES = 3
AGENT_LOSS_DELAY = timedelta(seconds=60)
"""Delay after the second loss of an agent, so that a crash loop does not use up its budget."""
LOST_QUESTION_LIFE = timedelta(hours=24)
LOST_OPTIONS = ("retry", "fail")
MAX_ERROR = 16 * 1024
RESULT = "result"
NOT_REPEATED = "its worker was lost, and a person chose not to run it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementContext:
    """What a settlement depends on besides the run."""

    policy: Policy
    task: str = ""
    """The name of the task."""
    followers: tuple[Task, ...] = ()
    now: int
    chance: float = 0.0
    asked: WaitingForAnswer | None = None
    """Question asked by the attempt: the run waits for it, however its program ended."""
    agent: bool = False
    outward: bool = False
    """Whether the attempt may have had effects that cannot be undone."""


def settle(run: OpenRun, report: AttemptReport, context: SettlementContext) -> Settlement:
    """Return the transition of a run whose attempt has ended.

    A run that was asked to stop is not queued again, whatever its attempt reports.
    """
    settlement = _settle(run, report, suppress_notifications(context, report))
    if report.exit is None and report.notes is None and not report.unbegun:
        return settlement
    aside = attempt_notes(settlement.state, report)
    extras = replace(
        settlement.extras,
        exit=report.exit,
        notes=aside,
        away=report.away,
        unbegun=report.unbegun,
    )
    return settlement._replace(extras=extras)


def suppress_notifications(context: SettlementContext, report: AttemptReport) -> SettlementContext:
    """Return a context in which a silent success is delivered to nobody.

    If its gate found nothing to do, no successors start either.
    """
    if not isinstance(report.outcome, Succeeded) or not suppresses_notifications(report):
        return context
    followers = () if is_suppressed_by_gate(report) else context.followers
    policy = replace(context.policy, deliver_to=None)
    return replace(context, policy=policy, followers=followers)


def _settle(run: OpenRun, report: AttemptReport, context: SettlementContext) -> Settlement:
    outcome = _asked_first(run, report.outcome, context)
    if run.cancel_requested and isinstance(outcome, (WaitingForAnswer, Released, Failed, Lost)):
        outcome = Cancelled(reason="it was cancelled while it ran")
    match outcome:
        case Succeeded():
            return _end(
                run,
                report,
                RunTransition.SUCCEED,
                context,
                result=outcome.result,
                rest=outcome.rest,
            )
        case Failed():
            return _failed(run, report, outcome, context)
        case WaitingForAnswer():
            return _ask(run, outcome, "ask" if outcome.action is None else APPROVAL, context)
        case Cancelled():
            return _end(
                run, report, RunTransition.CANCEL, context, code="cancelled", error=outcome.reason
            )
        case Expired():
            return _end(
                run, report, RunTransition.EXPIRE, context, code=outcome.code, error=outcome.reason
            )
        case Lost():
            return _lost(run, report, outcome, context)
        case Released():
            at = context.now if outcome.until is None else outcome.until
            return _requeue(run, RunTransition.LOSE, AttemptCause.RELEASED, at, outcome)
        case _:
            assert_never(outcome)


def _asked_first(run: OpenRun, outcome: Outcome, context: SettlementContext) -> Outcome:
    """Return the question of an attempt that asked one, else its outcome.

    Its program was told to end its turn and was stopped if it did not, so its exit says nothing
    about the work.
    """
    if context.asked is None or run.state is not RunState.RUNNING or isinstance(outcome, Expired):
        return outcome
    return context.asked


def _failed(
    run: OpenRun, report: AttemptReport, outcome: Failed, context: SettlementContext
) -> Settlement:
    age = timedelta(microseconds=context.now - run.created_micros)
    retry = context.policy.retry
    if run.state is RunState.RUNNING and outcome.retryable and may_retry(retry, run.retries, age):
        wait = delay(retry, run.retries + 1, context.chance)
        at = context.now + int(wait.total_seconds() * 1_000_000)
        return _requeue(run, RunTransition.RETRY, AttemptCause.RETRY, at, outcome)
    return _end(
        run,
        report,
        RunTransition.FAIL,
        context,
        code=outcome.code,
        error=outcome.message,
        sentence=outcome.sentence,
    )


def _lost(
    run: OpenRun, report: AttemptReport, outcome: Lost, context: SettlementContext
) -> Settlement:
    if run.losses >= MAX_LOSSES:
        sentence = f"its worker was lost {run.losses + 1} times: {outcome.reason}"
        return _end(run, report, RunTransition.FAIL, context, code="lost", error=sentence)
    chosen = context.policy.on_lost
    if chosen is OnLost.FAIL:
        return _end(run, report, RunTransition.FAIL, context, code="lost", error=outcome.reason)
    if chosen is OnLost.ASK or (chosen is OnLost.AUTO and context.outward):
        question = WaitingForAnswer(
            question="This run was lost while it was running. Run it again?",
            context=outcome.reason,
            options=LOST_OPTIONS,
            expires_in=LOST_QUESTION_LIFE,
        )
        return _ask(run, question, "lost", context)
    rest = AGENT_LOSS_DELAY if context.agent and run.losses > 0 else timedelta()
    at = context.now + int(rest.total_seconds() * 1_000_000)
    return _requeue(run, RunTransition.LOSE, AttemptCause.LOST, at, outcome)


def settle_answer(
    run: OpenRun, question_id: QuestionId, kind: str, text: str, by: str, context: SettlementContext
) -> Settlement:
    """Return the transition of a waiting run whose question was answered."""
    if kind == "lost" and text == "fail":
        report = AttemptReport(outcome=Failed(code="lost", message=NOT_REPEATED))
        ended = _end(run, report, RunTransition.FAIL, context, code="lost", error=NOT_REPEATED)
        extras = replace(ended.extras, answered=question_id, answer=text, answered_by=by)
        return ended._replace(extras=extras)
    extras = SettlementExtras(
        available_at=context.now,
        cause=AttemptCause.LOST if kind == "lost" else AttemptCause.RESUME,
        answered=question_id,
        answer=text,
        answered_by=by,
    )
    state = after(run.state, RunTransition.ANSWER)
    return Settlement(run.run_id, run.epoch, run.task_id, run.state, state, "answered", extras)


def answer_by_default(run: OpenRun, question: Question, by: str, now: int) -> Settlement:
    """Return the transition of a waiting run whose question takes its default answer."""
    context = SettlementContext(policy=Policy(), now=now)
    return settle_answer(run, question.id, question.kind, question.default or "", by, context)


def _requeue(
    run: OpenRun, move: RunTransition, cause: AttemptCause, at: int, outcome: Outcome
) -> Settlement:
    code, error = _error_of(outcome)
    extras = SettlementExtras(available_at=at, cause=cause, error_code=code, error=error)
    state = after(run.state, move)
    name = type(outcome).__name__.lower()
    return Settlement(run.run_id, run.epoch, run.task_id, run.state, state, name, extras)


def _ask(
    run: OpenRun, asked: WaitingForAnswer, kind: str, context: SettlementContext
) -> Settlement:
    expires_at = context.now + int(asked.expires_in.total_seconds() * 1_000_000)
    question = NewQuestion(
        kind=kind,
        question=asked.question,
        context=asked.context,
        options=asked.options,
        expires_at=expires_at,
        default=asked.default,
        action=asked.action,
        digest=None if asked.action is None else action_digest(asked.action),
    )
    state = after(run.state, RunTransition.ASK)
    name = "lost" if kind == "lost" else "asked"
    notice = question_notification(run, question, context.policy.deliver_to)
    extras = SettlementExtras(question=question, notification=notice)
    return Settlement(run.run_id, run.epoch, run.task_id, run.state, state, name, extras)


def _end(
    run: OpenRun,
    report: AttemptReport,
    move: RunTransition,
    context: SettlementContext,
    *,
    result: str | None = None,
    rest: str | None = None,
    code: str | None = None,
    error: str | None = None,
    sentence: str | None = None,
) -> Settlement:
    state = after(run.state, move)
    name = state.value
    text = (result if rest is None else rest) or state.value
    notification_text = _notification_text(run, state, sentence, error)
    if state is not RunState.SUCCEEDED:
        text = f"{context.task}: run {run.run_id} {notification_text}".removeprefix(": ")
    deliveries = _deliveries(run, report.messages, state, text, context.policy)
    followers = _followers(run, state, result, context)
    success = state is RunState.SUCCEEDED
    finishes = success and context.policy.until_success and not is_suppressed_by_gate(report)
    if success and result is None and not deliveries and not followers and not finishes:
        extras = PLAIN_SUCCESS
    else:
        extras = SettlementExtras(
            result=result,
            error_code=code,
            error=None if error is None else error[:MAX_ERROR],
            deliveries=deliveries,
            successors=followers,
            counts=_counts(state),
            disable_after=context.policy.disable_after,
            notification=end_notification(run, state, notification_text),
            finishes=finishes,
        )
    return Settlement(run.run_id, run.epoch, run.task_id, run.state, state, name, extras)


def _counts(state: RunState) -> int:
    if state is RunState.SUCCEEDED:
        return -1
    return 1 if state is RunState.FAILED else 0


def _followers(
    run: OpenRun, state: RunState, result: str | None, context: SettlementContext
) -> tuple[RunBatch, ...]:
    if not context.followers or state not in FINISHED:
        return ()
    return successor_runs(context.followers, run.run_id, state, result, run.depth, context.now)


def _deliveries(
    run: OpenRun,
    messages: Iterable[OutgoingMessage],
    state: RunState,
    text: str,
    policy: Policy,
) -> tuple[NewDelivery, ...]:
    outgoing = list(messages) if state is RunState.SUCCEEDED else []
    if policy.deliver_to is not None and state is not RunState.CANCELLED:
        channel, target, body, mail = address_result(policy.deliver_to, text)
        body = body or state.value
        outgoing.append(
            OutgoingMessage(client_id=RESULT, channel=channel, target=target, body=body, mail=mail)
        )
    return tuple(
        NewDelivery(
            space_id=run.space_id,
            channel=m.channel,
            target=m.target,
            body=m.body,
            dedupe_key=_dedupe_key(run, m.client_id),
            mail=m.mail,
            kind=DeliveryKind.RESULT if m.client_id == RESULT else DeliveryKind.MESSAGE,
        )
        for m in outgoing
    )


def _notification_text(
    run: OpenRun, state: RunState, sentence: str | None, error: str | None
) -> str:
    """Return the one sentence about an unsuccessful run that is sent to people.

    If the error starts with text of the program, `sentence` is sent instead.
    """
    first, _, _ = (error or "").partition("\n")
    if sentence is not None:
        first = f"{sentence.removesuffix('.')} (rota run {run.run_id})."
    return f"{state.value}: {first}"


def _dedupe_key(run: OpenRun, client_id: str) -> str:
    """Return the same key for the same message of every attempt."""
    return hashlib.sha256(f"{run.space_id}\n{run.run_id}\n{client_id}".encode()).hexdigest()


def _error_of(outcome: Outcome) -> tuple[str | None, str | None]:
    if isinstance(outcome, Failed):
        return outcome.code, outcome.message[:MAX_ERROR]
    if isinstance(outcome, Lost):
        return "lost", outcome.reason[:MAX_ERROR]
    if isinstance(outcome, Released) and outcome.reason is not None:
        return OVER, outcome.reason
    return None, None


MAX_EXPONENT = 64


def may_retry(retry: Retry, retries: int, age: timedelta) -> bool:
    """Whether one more attempt is allowed after this many retries, at this age of the run."""
    if 1 + retries >= retry.attempts:
        return False
    return retry.max_age is None or age < retry.max_age


def delay(retry: Retry, nth: int, chance: float) -> timedelta:
    """Return the delay of the n-th retry; `chance` is a random number below 1."""
    growth = retry.factor ** min(nth - 1, MAX_EXPONENT)
    seconds = min(retry.base.total_seconds() * growth, retry.cap.total_seconds())
    return timedelta(seconds=seconds * (1 + retry.jitter * chance))


def suppresses_notifications(report: AttemptReport) -> bool:
    """Whether a success is delivered to nobody."""
    silent = isinstance(report.outcome, Succeeded) and report.outcome.silent
    return silent or (report.notes is not None and report.notes.suppressed is not None)


def is_suppressed_by_gate(report: AttemptReport) -> bool:
    """Whether the gate of an attempt found nothing to do."""
    return report.notes is not None and report.notes.suppressed is SuppressionReason.BY_GATE


def attempt_notes(state: RunState, report: AttemptReport) -> AttemptNotes | None:
    """Return the notes to record with a run's transition to a state.

    Only a success has a suppression reason, remembered state and a next check; only ended runs have
    check results.
    """
    notes = report.notes or NOTHING
    if state is RunState.SUCCEEDED:
        mark = notes.suppressed or (
            SuppressionReason.BY_RESULT if suppresses_notifications(report) else None
        )
        kept = replace(notes, suppressed=mark)
    else:
        ended = state is RunState.FAILED
        checked = notes.check_state if ended else None
        kept = AttemptNotes(
            check_results=notes.check_results, check_state=checked, stop_reason=notes.stop_reason
        )
    return None if kept == NOTHING else kept


DELIVERY_RETRY = Retry(attempts=8, base=timedelta(seconds=2), factor=3.0, cap=timedelta(hours=1))
