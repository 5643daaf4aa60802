"""Every outcome under every policy: the one decision behind every end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rota.errors import IllegalMove
from rota.model.attempts import (
    AttemptReport,
    Cancelled,
    Expired,
    Failed,
    Lost,
    OutgoingMessage,
    Released,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.runs import AttemptCause, OpenRun, RunState
from rota.model.settlement import PLAIN_SUCCESS
from rota.model.tasks import OnLost, Policy, Retry
from rota.rules.settlement import (
    MAX_ERROR,
    MAX_LOSSES,
    SettlementContext,
    settle,
    settle_answer,
)

NOW = 1_000_000_000
RUN = OpenRun(
    run_id=7,
    task_id=3,
    space_id=1,
    state=RunState.RUNNING,
    epoch=2,
    retries=0,
    losses=0,
    created_micros=NOW - 60_000_000,
    depth=0,
)
FAILED = Failed(code="exception", message="boom")
THRICE = Policy(retry=Retry(attempts=3, base=timedelta(seconds=10), jitter=0))


def decide(outcome, policy=None, run=RUN, messages=(), **context):
    report = AttemptReport(outcome=outcome, messages=messages)
    return settle(run, report, SettlementContext(policy=policy or Policy(), now=NOW, **context))


@pytest.mark.parametrize(
    ("outcome", "policy", "state", "cause"),
    [
        (Succeeded(), Policy(), RunState.SUCCEEDED, None),
        (Succeeded(result="1"), THRICE, RunState.SUCCEEDED, None),
        (FAILED, Policy(), RunState.FAILED, None),
        (FAILED, THRICE, RunState.QUEUED, AttemptCause.RETRY),
        (replace(FAILED, retryable=False), THRICE, RunState.FAILED, None),
        (Cancelled(reason="no"), THRICE, RunState.CANCELLED, None),
        (Expired(reason="late"), THRICE, RunState.EXPIRED, None),
        (WaitingForAnswer(question="?"), Policy(), RunState.WAITING, None),
        (Released(), Policy(), RunState.QUEUED, AttemptCause.RELEASED),
        (Released(), Policy(on_lost=OnLost.FAIL), RunState.QUEUED, AttemptCause.RELEASED),
        (Lost(reason="gone"), Policy(on_lost=OnLost.RETRY), RunState.QUEUED, AttemptCause.LOST),
        (Lost(reason="gone"), Policy(on_lost=OnLost.FAIL), RunState.FAILED, None),
        (Lost(reason="gone"), Policy(on_lost=OnLost.ASK), RunState.WAITING, None),
    ],
)
def test_an_outcome_leads_to_a_state(outcome, policy, state, cause):
    made = decide(outcome, policy)
    assert (made.run_id, made.epoch, made.task_id, made.was) == (7, 2, 3, RunState.RUNNING)
    assert (made.state, made.extras.cause) == (state, cause)


@pytest.mark.parametrize("retries", [0, 1, 2, 3])
def test_retries_are_used_up(retries):
    made = decide(FAILED, THRICE, replace(RUN, retries=retries))
    assert made.state is (RunState.QUEUED if retries < 2 else RunState.FAILED)


def test_a_retry_is_later_and_says_why():
    made = decide(FAILED, THRICE, replace(RUN, retries=1))
    assert made.extras.available_at == NOW + 20_000_000
    assert (made.extras.error_code, made.extras.error) == ("exception", "boom")
    assert made.extras.counts == 0


def test_a_run_past_its_maximum_age_fails():
    policy = Policy(retry=Retry(attempts=9, max_age=timedelta(seconds=60)))
    assert decide(FAILED, policy).state is RunState.FAILED
    younger = replace(RUN, created_micros=NOW - 59_000_000)
    assert decide(FAILED, policy, younger).state is RunState.QUEUED


@pytest.mark.parametrize("on_lost", list(OnLost))
def test_losses_are_capped_whatever_the_policy(on_lost):
    made = decide(Lost(reason="gone"), Policy(on_lost=on_lost), replace(RUN, losses=MAX_LOSSES))
    assert (made.state, made.extras.error_code) == (RunState.FAILED, "lost")
    assert "4 times" in made.extras.error


def test_losing_a_run_does_not_use_up_its_retries():
    made = decide(Lost(reason="gone"), THRICE, replace(RUN, retries=2))
    assert (made.state, made.extras.available_at) == (RunState.QUEUED, NOW)


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        (Succeeded(), -1),
        (Succeeded(result="1"), -1),
        (FAILED, 1),
        (Cancelled(reason="no"), 0),
        (Expired(reason="late"), 0),
        (Released(), 0),
        (WaitingForAnswer(question="?"), 0),
    ],
)
def test_only_a_failure_counts_and_only_a_success_forgets(outcome, counts):
    made = decide(outcome, Policy(disable_after=3))
    assert made.extras.counts == counts
    if counts == 1:
        assert made.extras.disable_after == 3


def test_a_plain_success_is_shared():
    assert decide(Succeeded()).extras is PLAIN_SUCCESS


def test_a_question_expires_after_its_time():
    asked = WaitingForAnswer(
        question="Go?", context="c", options=("y", "n"), expires_in=timedelta(minutes=1)
    )
    question = decide(asked).extras.question
    assert (question.kind, question.question, question.context) == ("ask", "Go?", "c")
    assert (question.options, question.expires_at) == (("y", "n"), NOW + 60_000_000)


def test_a_lost_run_asks_whether_to_go_on():
    question = decide(Lost(reason="gone"), Policy(on_lost=OnLost.ASK)).extras.question
    assert (question.kind, question.options, question.context) == (
        "lost",
        ("retry", "fail"),
        "gone",
    )


@pytest.mark.parametrize(
    ("kind", "text", "state", "cause"),
    [
        ("ask", "anything", RunState.QUEUED, AttemptCause.RESUME),
        ("ask", "fail", RunState.QUEUED, AttemptCause.RESUME),
        ("lost", "retry", RunState.QUEUED, AttemptCause.LOST),
        ("lost", "fail", RunState.FAILED, None),
    ],
)
def test_an_answer_leads_on(kind, text, state, cause):
    waiting = replace(RUN, state=RunState.WAITING)
    made = settle_answer(waiting, 9, kind, text, "ann", SettlementContext(policy=Policy(), now=NOW))
    assert (made.was, made.state, made.extras.cause) == (RunState.WAITING, state, cause)
    assert (made.extras.answered, made.extras.answer) == (9, text)
    assert made.extras.answered_by == "ann"


def test_a_run_that_a_person_gives_up_is_told_of_like_any_failure():
    waiting = replace(RUN, state=RunState.WAITING)
    policy = Policy(deliver_to="chat:ann", disable_after=3)
    made = settle_answer(
        waiting, 9, "lost", "fail", "ann", SettlementContext(policy=policy, now=NOW)
    )
    assert [delivery.target for delivery in made.extras.deliveries] == ["ann"]
    assert (made.extras.counts, made.extras.disable_after) == (1, 3)


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.RUNNING, RunState.WAITING])
def test_cancelling_works_from_every_open_state(state):
    assert decide(Cancelled(reason="no"), run=replace(RUN, state=state)).state is (
        RunState.CANCELLED
    )


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.WAITING])
def test_a_failure_outside_an_attempt_is_never_retried(state):
    assert decide(FAILED, THRICE, replace(RUN, state=state)).state is RunState.FAILED


@pytest.mark.parametrize(
    "state", [RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.EXPIRED]
)
@pytest.mark.parametrize(
    "outcome",
    [
        Succeeded(),
        FAILED,
        Cancelled(reason="no"),
        Released(),
        Lost(reason="x"),
        WaitingForAnswer(question="?"),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_a_finished_run_can_do_nothing(state, outcome):
    with pytest.raises(IllegalMove):
        decide(outcome, run=replace(RUN, state=state))


def test_messages_are_sent_only_on_success():
    message = OutgoingMessage(client_id="m", channel="chat", target="ann", body="hi")
    (delivery,) = decide(Succeeded(), messages=(message,)).extras.deliveries
    assert (delivery.channel, delivery.target, delivery.body) == ("chat", "ann", "hi")
    for outcome in (FAILED, Cancelled(reason="no"), Expired(reason="late")):
        assert decide(outcome, messages=(message,)).extras.deliveries == ()


def test_a_message_keeps_its_key_over_a_retry_and_differs_from_others():
    def key(client_id, run=RUN):
        message = OutgoingMessage(client_id=client_id, channel="chat", target="ann", body="hi")
        return decide(Succeeded(), run=run, messages=(message,)).extras.deliveries[0].dedupe_key

    assert key("m") == key("m", replace(RUN, epoch=5, retries=3))
    assert len({key("m"), key("n"), key("m", replace(RUN, run_id=8))}) == 3


@pytest.mark.parametrize(
    ("outcome", "body"),
    [
        (Succeeded(result='"two\\nlines"'), "two\nlines"),
        (Succeeded(result='{"a": 1}'), '{"a": 1}'),
        (Succeeded(), "succeeded"),
        (FAILED, "job: run 7 failed: boom"),
        (
            Failed(code="overload", message="Wait.\nAPI Error 529 at 10.0.0.1"),
            "job: run 7 failed: Wait.",
        ),
        (
            Failed(code="other", message="/root/.secret broke", sentence="It failed; look."),
            "job: run 7 failed: It failed; look (rota run 7).",
        ),
        (Expired(reason="late"), "job: run 7 expired: late"),
        (Cancelled(reason="no"), None),
    ],
)
def test_a_task_that_delivers_tells_how_it_ended(outcome, body):
    deliveries = decide(outcome, Policy(deliver_to="chat:ann:work"), task="job").extras.deliveries
    assert [(d.channel, d.target, d.body) for d in deliveries] == (
        [] if body is None else [("chat", "ann:work", body)]
    )


def test_a_long_error_is_cut():
    made = decide(Failed(code="x", message="e" * 100_000))
    assert len(made.extras.error) == MAX_ERROR
    retried = decide(Failed(code="x", message="e" * 100_000), THRICE)
    assert len(retried.extras.error) == MAX_ERROR
