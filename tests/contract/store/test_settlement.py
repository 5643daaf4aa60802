"""Settlement: compare-and-set on state and epoch, and everything an end brings with it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rota.flow.define.runs import end_of
from rota.flow.observe.verification import verify
from rota.flow.observe.why import explain
from rota.flow.observe.why_facts import load_facts
from rota.flow.settle import running
from rota.model.attempts import (
    AttemptReport,
    Cancelled,
    Drained,
    Expired,
    Failed,
    Lost,
    Outcome,
    OutgoingMessage,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.checks import CheckState, SuppressionReason
from rota.model.events import EventName
from rota.model.ids import Epoch, QuestionId, RunId
from rota.model.notifications import DeliveryState
from rota.model.runs import FINISHED, AttemptCause, Lease, QueueState, RunBatch, RunState
from rota.model.settlement import ApprovedAction, AttemptNotes, Settlement
from rota.model.tasks import After, AfterOn, OnLost, Policy, Retry, Task
from rota.model.views import RunFilter
from rota.rules.approvals import APPROVE, DECISIONS, ROTA, action_text
from rota.rules.checks import next_run
from rota.rules.settlement import SettlementContext, settle, settle_answer
from rota.store import settlement as store_settlement
from rota.store.plans import promote_delayed
from rota.store.settlement import approve, request_cancel
from rota.store.settlement import settle as write_settlements
from rota.store.tasks import enable_task, get_state, get_tasks
from rota.store.views import (
    count_runs,
    list_attempts,
    list_busy_slots,
    list_deliveries,
    list_events,
    list_questions,
    list_run_events,
    list_runs,
    list_successors,
    list_tasks,
)
from rota.store.workers import get_open_runs, mark_stuck
from rota.testing.fakes import FixedChance
from tests.tools.store_bench import Bench, failed

# ends

RETRY = Retry(attempts=3, base=timedelta(minutes=1), jitter=0)


class TestSettle:
    """What a settlement writes, and when it writes nothing."""

    async def test_a_success_ends_the_run(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        bench.clock.advance(seconds=3)
        assert await bench.end(lease, Succeeded(result='{"n": 1}'))
        run = await bench.run(lease.run_id)
        assert (run.state, run.result) == (RunState.SUCCEEDED, '{"n": 1}')
        assert (run.holder, run.place) == (None, None)
        assert run.finished_at == bench.clock.now()

    async def test_every_end_leaves_one_attempt_and_one_event(self, bench: Bench) -> None:
        ends: list[tuple[Outcome, RunState]] = [
            (Succeeded(), RunState.SUCCEEDED),
            (Succeeded(result="1"), RunState.SUCCEEDED),
            (failed(message="why"), RunState.FAILED),
            (Cancelled(reason="no"), RunState.CANCELLED),
            (Expired(reason="late"), RunState.EXPIRED),
        ]
        await bench.queue(await bench.task(), len(ends))
        for outcome, state in ends:
            lease = await bench.claim_one()
            bench.clock.advance(seconds=1)
            assert await bench.end(lease, outcome)
            (attempt,) = await bench.store.read(list_attempts, lease.run_id)
            assert (attempt.number, attempt.cause, attempt.worker) == (1, AttemptCause.FIRST, "w1")
            assert attempt.ended_at - attempt.started_at == timedelta(seconds=1)
            assert attempt.outcome == state.value
            (event,) = await bench.store.read(list_run_events, lease.run_id)
            assert (event.name, event.data["state"]) == ("run.settled", state.value)

    async def test_an_error_stays_with_the_run_and_its_attempt(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        await bench.end(lease, failed("timeout", "too slow"))
        run = await bench.run(lease.run_id)
        (attempt,) = await bench.store.read(list_attempts, lease.run_id)
        assert (run.error_code, run.error, attempt.error) == ("timeout", "too slow", "too slow")

    async def test_a_settlement_applies_once(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        assert await bench.end(lease)
        assert not await bench.end(lease, failed())
        assert await bench.state(lease.run_id) is RunState.SUCCEEDED
        assert len(await bench.store.read(list_attempts, lease.run_id)) == 1

    async def test_the_same_settlement_again_stands_and_has_no_effect(self, bench: Bench) -> None:
        task = await bench.task(retry=RETRY)
        await bench.task("next", after=After(task="job"))
        await bench.queue(task, 2)
        message = OutgoingMessage(client_id="m", channel="log", target="", body="hello")
        done = AttemptReport(outcome=Succeeded(result="1"), messages=(message,))
        for report in (done, AttemptReport(outcome=failed())):
            lease = await bench.claim_one()
            assert await _end_with(bench, lease, report)
            before = await _everything(bench, lease)
            bench.clock.advance(seconds=1)
            assert await _end_with(bench, lease, report)
            assert await _everything(bench, lease) == before

    async def test_twice_in_one_batch_applies_once(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        pair = [await bench.decide(running(lease), o) for o in (Succeeded(), failed())]
        assert await bench.store.write(store_settlement.settle, pair) == [True, False]
        assert await bench.state(lease.run_id) is RunState.SUCCEEDED

    async def test_an_old_epoch_records_nothing_but_a_late_result(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        old = await bench.claim_one()
        await bench.end(old, Lost(reason="gone"))
        new = await bench.claim_one(worker="w2")
        assert new.epoch == old.epoch + 1
        assert not await bench.end(old, Succeeded(result='"stale"'))
        run = await bench.run(old.run_id)
        assert (run.state, run.holder, run.result) == (RunState.RUNNING, "w2", None)
        late = (await bench.store.read(list_run_events, old.run_id))[-1]
        assert late.name == "run.late_result"
        assert (late.data["epoch"], late.data["result"]) == (old.epoch, '"stale"')
        assert await bench.end(new)

    async def test_a_settlement_for_another_state_changes_nothing(self, bench: Bench) -> None:
        (run_id,) = await bench.queue(await bench.task())
        (facts,) = await bench.store.read(get_open_runs, [run_id])
        cancel = await bench.decide(facts, Cancelled(reason="no"))
        lease = await bench.claim_one()
        assert await bench.store.write(store_settlement.settle, [cancel]) == [False]
        assert await bench.state(run_id) is RunState.RUNNING
        assert await bench.end(lease)

    async def test_a_run_that_does_not_exist_is_refused(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = (await bench.claim_one())._replace(run_id=RunId(999_999))
        assert not await bench.end(lease)

    async def test_a_batch_settles_what_fits_and_refuses_the_rest(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 3)
        leases = await bench.claim()
        await bench.end(leases[1], failed())
        batch = [await bench.decide(running(lease), Succeeded()) for lease in leases]
        assert await bench.store.write(store_settlement.settle, batch) == [True, False, True]

    async def test_a_finished_run_never_changes_again(self, bench: Bench) -> None:
        task = await bench.task()
        (run_id,) = await bench.queue(task)
        await bench.end(await bench.claim_one())
        before = await bench.run(run_id)
        for state in (RunState.QUEUED, RunState.RUNNING, RunState.WAITING):
            for epoch in (0, 1, 2):
                settlement = Settlement(
                    run_id, Epoch(epoch), task.id, state, RunState.FAILED, "failed"
                )
                assert await bench.store.write(store_settlement.settle, [settlement]) == [False]
        await bench.store.write(request_cancel, [run_id], "cancelled by ann")
        await bench.store.write(mark_stuck, run_id, 1)
        assert await bench.store.write(promote_delayed, 10) == 0
        assert await bench.claim() == []
        assert await bench.run(run_id) == before

    async def test_a_retry_comes_back_at_its_time(self, bench: Bench) -> None:
        await bench.queue(await bench.task(retry=RETRY))
        lease = await bench.claim_one()
        await bench.end(lease, failed("x", "first"))
        run = await bench.run(lease.run_id)
        assert (run.state, run.place, run.cause) == (
            RunState.QUEUED,
            QueueState.LATER,
            AttemptCause.RETRY,
        )
        assert run.available_at == bench.clock.now() + timedelta(minutes=1)
        assert (run.retries, run.error, run.holder) == (1, "first", None)
        assert await bench.events(lease.run_id) == ["run.retried"]
        bench.clock.advance(minutes=1)
        await bench.store.write(promote_delayed, 10)
        again = await bench.claim_one()
        assert (again.run_id, again.epoch, again.retries) == (lease.run_id, 2, 1)

    async def test_a_success_after_a_retry_has_no_error(self, bench: Bench) -> None:
        for outcome in (Succeeded(result="1"), Succeeded()):
            await bench.queue(await bench.task(retry=RETRY))
            await bench.end(await bench.claim_one(), failed())
            bench.clock.advance(minutes=1)
            await bench.store.write(promote_delayed, 10)
            lease = await bench.claim_one()
            await bench.end(lease, outcome)
            run = await bench.run(lease.run_id)
            assert (run.state, run.error, run.error_code) == (RunState.SUCCEEDED, None, None)

    async def test_lost_and_drained_runs_come_back_at_once(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        await bench.end(await bench.claim_one(), Lost(reason="gone"))
        lease = await bench.claim_one()
        assert (lease.cause, lease.retries, lease.losses) == ("lost", 0, 1)
        await bench.end(lease, Drained())
        lease = await bench.claim_one()
        assert (lease.cause, lease.retries, lease.losses) == ("drained", 0, 1)
        assert await bench.events(lease.run_id) == ["run.lost", "run.drained"]

    async def test_settling_back_into_the_queue_wakes_claiming(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        heard: list[str] = []
        bench.store.subscribe(heard.append)
        await bench.end(lease, Drained())
        assert "runs" in heard


class TestFollowUp:
    """What happens in the same transaction as an end."""

    async def test_failures_are_counted_and_a_success_forgets_them(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.queue(task, 4)
        for outcome, failures in ((failed(), 1), (failed(), 2), (None, 0), (failed(), 1)):
            await bench.end(await bench.claim_one(), outcome)
            assert (await bench.task_of(task)).failures == failures

    async def test_cancelled_expired_and_retried_runs_are_no_failures(self, bench: Bench) -> None:
        task = await bench.task(retry=RETRY)
        await bench.queue(task, 3)
        outcomes: list[Outcome] = [Cancelled(reason="no"), Expired(reason="late"), failed()]
        for outcome in outcomes:
            await bench.end(await bench.claim_one(), outcome)
        assert (await bench.task_of(task)).failures == 0

    async def test_a_batch_counts_in_its_own_order(self, bench: Bench) -> None:
        task = await bench.task(disable_after=2)
        await bench.queue(task, 4)
        outcomes: list[Outcome] = [failed(), Succeeded(), failed(), Succeeded()]
        leases = await bench.claim()
        pairs = zip(leases, outcomes, strict=True)
        await bench.store.write(
            store_settlement.settle, [await bench.decide(running(s), o) for s, o in pairs]
        )
        found = await bench.task_of(task)
        assert (found.failures, found.enabled) == (0, True)

    async def test_enough_failures_in_a_row_disable_the_task(self, bench: Bench) -> None:
        task = await bench.task(disable_after=2)
        await bench.queue(task, 2)
        await bench.end(await bench.claim_one(), failed())
        assert (await bench.task_of(task)).enabled
        await bench.end(await bench.claim_one(), failed())
        found = await bench.task_of(task)
        assert not found.enabled
        assert found.disabled_reason == "failed 2 times in a row"
        names = [
            e.name for e in await bench.store.read(list_events, 0, 100) if e.task_id == task.id
        ]
        assert names.count(EventName.TASK_DISABLED) == 1

    async def test_successors_are_queued_with_the_end(self, bench: Bench) -> None:
        first = await bench.task("first")
        second = await bench.task("second", after=After(task="first", on=AfterOn.ANY))
        await bench.queue(first)
        lease = await bench.claim_one()
        await _end_with(bench, lease, AttemptReport(outcome=Succeeded(result='{"n": 1}')))
        follower = await bench.claim_one()
        assert (follower.task_id, follower.key) == (second.id, f"after:{lease.run_id}")
        told = json.loads(follower.payload)["after"]
        assert (told["run"], told["state"], told["result"]) == (
            lease.run_id,
            "succeeded",
            {"n": 1},
        )
        assert (await bench.run(follower.run_id)).upstream_id == lease.run_id

    async def test_a_refused_settlement_queues_and_sends_nothing(self, bench: Bench) -> None:
        first = await bench.task("first")
        second = await bench.task("second", after=After(task="first"))
        await bench.queue(first)
        old = await bench.claim_one()
        await bench.end(old, Lost(reason="gone"))
        new = await bench.claim_one()
        message = OutgoingMessage(client_id="m", channel="log", target="", body="hello")
        report = AttemptReport(outcome=Succeeded(), messages=(message,))
        assert not await _end_with(bench, old, report)
        assert await bench.store.read(count_runs, second.id) == {}
        assert await bench.store.read(list_deliveries, None, 10) == []
        assert await _end_with(bench, new, report)
        assert await bench.store.read(count_runs, second.id) == {"queued": 1}
        assert len(await bench.store.read(list_deliveries, None, 10)) == 1

    async def test_messages_go_to_the_outbox_with_the_end(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        heard: list[str] = []
        bench.store.subscribe(heard.append)
        message = OutgoingMessage(client_id="m", channel="chat", target="ann", body="hello")
        await _end_with(
            bench, lease, AttemptReport(outcome=Succeeded(), messages=(message, message))
        )
        (delivery,) = await bench.store.read(list_deliveries, lease.run_id, 10)
        assert (delivery.channel, delivery.target, delivery.body) == ("chat", "ann", "hello")
        assert (delivery.state, delivery.tries) == (DeliveryState.PENDING, 0)
        assert "deliveries" in heard


class TestQuestions:
    """Waiting for a person."""

    async def test_a_question_makes_the_run_wait_without_a_holder(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        await bench.ask(lease, "Go on?", context="all of it", options=("yes", "no"))
        run = await bench.run(lease.run_id)
        assert (run.state, run.holder, run.place) == (RunState.WAITING, None, None)
        (question,) = await bench.store.read(list_questions, [lease.run_id])
        assert (question.kind, question.epoch) == ("ask", lease.epoch)
        assert (question.question, question.context) == ("Go on?", "all of it")
        assert question.options == ("yes", "no")
        assert question.answered_at is None
        assert question.expires_at == bench.clock.now() + timedelta(hours=24) == run.expires_at
        assert await bench.claim() == []
        assert await bench.events(lease.run_id) == ["run.asked"]

    async def test_answers_come_back_with_the_next_lease_in_order(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        for text in ("one", "two"):
            lease = await bench.claim_one()
            assert await _answer(bench, lease, await bench.ask(lease), text)
        claimed = await bench.claimed()
        (lease,) = claimed.leases
        assert (lease.cause, lease.epoch, lease.asked) == ("resume", 3, 2)
        assert claimed.answers == {lease.run_id: ("one", "two")}
        assert (await bench.run(lease.run_id)).expires_at is None

    async def test_telling_what_to_do_with_a_lost_run_is_an_answer(self, bench: Bench) -> None:
        await bench.queue(await bench.task(on_lost=OnLost.ASK))
        lease = await bench.claim_one()
        await bench.end(lease, Lost(reason="gone"))
        (question,) = await bench.store.read(list_questions, [lease.run_id])
        assert await _answer(bench, lease, question.id, "retry", kind="lost")
        assert (await bench.run(lease.run_id)).losses == 1
        assert await bench.events(lease.run_id) == ["run.asked", "run.answered"]

    async def test_a_question_is_answered_once(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        question = await bench.ask(lease)
        assert await _answer(bench, lease, question, "yes")
        assert not await _answer(bench, lease, question, "no")
        (stored,) = await bench.store.read(list_questions, [lease.run_id])
        assert (stored.answer, stored.answered_by) == ("yes", "ann")
        assert stored.answered_at == bench.clock.now()

    async def test_a_waiting_run_can_be_cancelled_and_expired(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 2)
        for outcome in (Cancelled(reason="no"), Expired(reason="late")):
            lease = await bench.claim_one()
            question = await bench.ask(lease)
            assert await bench.end_open(lease.run_id, outcome)
            assert await bench.state(lease.run_id) in FINISHED
            assert not await _answer(bench, lease, question, "too late")
            assert len(await bench.store.read(list_attempts, lease.run_id)) == 1

    async def test_asking_again_from_an_old_epoch_is_refused(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        old = await bench.claim_one()
        await bench.end(old, Lost(reason="gone"))
        await bench.claim_one()
        assert not await bench.end(old, WaitingForAnswer(question="still there?"))
        assert await bench.store.read(list_questions, [old.run_id]) == []


async def _end_with(bench: Bench, lease: Lease, report: AttemptReport) -> bool:
    (task,) = await bench.store.read(get_tasks, [lease.task_id])
    followers = (await bench.store.read(list_successors, [lease.task_id])).get(lease.task_id, [])
    context = SettlementContext(
        policy=task.policy, followers=tuple(followers), now=bench.store.now()
    )
    return (
        await bench.store.write(store_settlement.settle, [settle(running(lease), report, context)])
    )[0]


async def _everything(bench: Bench, lease: Lease) -> list[object]:
    return [
        await bench.run(lease.run_id),
        await bench.store.read(list_attempts, lease.run_id),
        await bench.store.read(list_events, 0, 1_000),
        await bench.store.read(list_deliveries, None, 100),
        await bench.store.read(list_tasks, None),
        await bench.store.read(list_runs, RunFilter()),
    ]


async def _answer(
    bench: Bench, lease: Lease, question: int, text: str, *, kind: str = "ask"
) -> bool:
    (task,) = await bench.store.read(get_tasks, [lease.task_id])
    facts = running(lease)
    context = SettlementContext(policy=task.policy, now=bench.store.now())
    waiting = replace(facts, state=RunState.WAITING)
    settlement = settle_answer(waiting, QuestionId(question), kind, text, "ann", context)
    return (await bench.store.write(store_settlement.settle, [settlement]))[0]


# answers


class TestAnswers:
    """What is approved is done with the answer, once, and what came of it is written down."""

    async def test_a_run_is_queued_with_the_answer_and_its_number_kept(self, bench: Bench) -> None:
        lease, approved = await _asked(bench)
        other = await bench.task("other")
        deed = ApprovedAction(queues=bench.batch(other, [{"n": 1}]))
        came = await bench.store.write(approve, approved, deed)
        (run_id,) = await bench.claim_ids(routes=[other.route])
        assert came is not None
        assert json.loads(came) == {"ok": True, "run": run_id, "created": True}
        (question,) = await bench.store.read(list_questions, [lease.run_id])
        assert (question.answer, question.outcome) == (APPROVE, came)
        claimed = await bench.claimed(1)
        assert claimed.answers[lease.run_id] == (f"{APPROVE} sha256:{question.digest} {came}",)
        assert (await verify(bench.store)).violations == ()

    async def test_a_second_answer_does_nothing(self, bench: Bench) -> None:
        _, approved = await _asked(bench)
        other = await bench.task("other")
        deed = ApprovedAction(queues=bench.batch(other, [None]))
        assert await bench.store.write(approve, approved, deed) is not None
        assert await bench.store.write(approve, approved, deed) is None
        assert len(await bench.claim_ids(routes=[other.route])) == 1

    async def test_a_key_that_stands_for_something_else_is_told(self, bench: Bench) -> None:
        _, approved = await _asked(bench)
        other = await bench.task("other")
        await bench.enqueue(bench.batch(other, [1], ["k"]))
        came = await bench.store.write(
            approve, approved, ApprovedAction(queues=bench.batch(other, [2], ["k"]))
        )
        assert _told(came) == (False, "conflict")

    @pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.RUNNING])
    async def test_a_run_is_ended_as_it_stands_then(self, bench: Bench, state: RunState) -> None:
        _, approved = await _asked(bench)
        (run_id,) = await bench.queue(await bench.task("other"))
        deed = ApprovedAction(ends=await _end(bench, run_id))
        lease = await bench.claim_one()
        if state is RunState.CANCELLED:  # it waits by then, and nobody works on it
            await bench.ask(lease)
        came = await bench.store.write(approve, approved, deed)
        assert json.loads(came or "") == {"ok": True, "run": run_id, "state": state.value}
        assert (await bench.state(run_id)) is state
        (facts,) = await bench.store.read(get_open_runs, [run_id])
        assert facts.cancel_requested is (state is RunState.RUNNING)
        assert (await verify(bench.store)).violations == ()

    async def test_a_run_that_has_ended_meanwhile_is_left_alone(self, bench: Bench) -> None:
        _, approved = await _asked(bench)
        other = await bench.task("other")
        (run_id,) = await bench.queue(other)
        deed = ApprovedAction(ends=await _end(bench, run_id))
        assert await bench.end(await bench.claim_one())
        assert _told(await bench.store.write(approve, approved, deed)) == (False, "illegal_move")
        assert await bench.state(run_id) is RunState.SUCCEEDED

    async def test_what_is_known_already_is_kept_as_it_is(self, bench: Bench) -> None:
        lease, approved = await _asked(bench)
        known = '{"ok": true, "rows": [["ä"]]}'
        assert await bench.store.write(approve, approved, ApprovedAction(known=known)) == known
        (question,) = await bench.store.read(list_questions, [lease.run_id])
        assert question.outcome == known


async def _asked(bench: Bench) -> tuple[Lease, Settlement]:
    """Return a run that waits for an approval, and the answer that approves it."""
    task = await bench.task("asks")
    await bench.queue(task)
    lease = await bench.claim_one()
    action = action_text({}, run=lease.run_id, attempt=1, task="asks", space="main", by=ROTA)
    options: dict[str, Any] = {"action": action, "expires_in": timedelta(days=1)}
    question = await bench.ask(lease, options=DECISIONS, **options)
    (facts,) = await bench.store.read(get_open_runs, [lease.run_id])
    (asked,) = await bench.store.read(list_questions, [lease.run_id])
    context = SettlementContext(policy=task.policy, now=bench.store.now())
    assert asked.id == question
    return lease, settle_answer(facts, asked.id, asked.kind, APPROVE, "ann", context)


async def _end(bench: Bench, run_id: int) -> Settlement:
    return await end_of(bench.store, await bench.run(run_id), "not wanted", FixedChance())


def _told(came: str | None) -> tuple[bool, str]:
    record = json.loads(came or "")
    return record["ok"], record["error"]["code"]


# attempt notes

FOUND = json.dumps([{"check": "min_length", "passed": False, "evidence": "too short"}])
BOUNDS: dict[str, object] = {"next_check": {"min": "10m", "max": "1d"}}


class TestNotes:
    """What holds for marks, evidence, memories and next checks."""

    async def _lease(self, bench: Bench) -> Lease:
        await bench.worker("w1", timedelta(days=9))
        await bench.queue(await bench.task())
        return await bench.claim_one()

    async def _end(
        self,
        bench: Bench,
        lease: Lease,
        aside: AttemptNotes,
        outcome: Outcome | None = None,
        deliver_to: str | None = None,
    ) -> bool:
        (task,) = await bench.store.read(get_tasks, [lease.task_id])
        context = SettlementContext(
            policy=replace(task.policy, deliver_to=deliver_to), now=bench.store.now()
        )
        report = AttemptReport(outcome=outcome or Succeeded(), aside=aside)
        return (
            await bench.store.write(
                store_settlement.settle, [settle(running(lease), report, context)]
            )
        )[0]

    async def test_what_checks_found_stays_with_the_attempt(self, bench: Bench) -> None:
        lease = await self._lease(bench)
        against = AttemptNotes(checks=FOUND, checked=CheckState.CONTRADICTED)
        outcome = Failed(code="check_failed", message="too short")
        assert await self._end(bench, lease, against, outcome)
        run = await bench.run(lease.run_id)
        assert (run.state, run.checked) == (RunState.FAILED, CheckState.CONTRADICTED)
        (attempt,) = await bench.store.read(list_attempts, lease.run_id)
        assert attempt.checks == json.loads(FOUND)

    async def test_quiet_runs_are_counted_and_left_out(self, bench: Bench) -> None:
        lease = await self._lease(bench)
        quiet = AttemptNotes(mark=SuppressionReason.QUIET, remembered='{"seen": 3}')
        assert await self._end(bench, lease, quiet, deliver_to="test:ann")
        assert (await bench.run(lease.run_id)).mark is SuppressionReason.QUIET
        assert await bench.store.read(list_runs, RunFilter(quiet=False)) == []
        assert len(await bench.store.read(list_runs, RunFilter())) == 1
        assert (await bench.store.read(count_runs, lease.task_id))["quiet"] == 1
        kept = await bench.store.read(get_state, lease.task_id, "gate")
        assert kept is not None
        assert kept.value == '{"seen": 3}'
        assert await bench.store.read(list_deliveries, lease.run_id, 10) == []

    async def test_a_silent_success_is_delivered_to_nobody(self, bench: Bench) -> None:
        lease = await self._lease(bench)
        done = Succeeded(result='"nothing new"', silent=True)
        assert await self._end(bench, lease, AttemptNotes(), done, deliver_to="test:ann")
        run = await bench.run(lease.run_id)
        assert (run.state, run.mark, run.result) == (
            RunState.SUCCEEDED,
            SuppressionReason.SILENT,
            '"nothing new"',
        )
        assert await bench.store.read(list_deliveries, lease.run_id, 10) == []

    async def test_a_failure_remembers_and_queues_nothing(self, bench: Bench) -> None:
        lease = await self._lease(bench)
        aside = AttemptNotes(remembered="1", next_check=await self._next(bench, lease, "1h"))
        assert await self._end(bench, lease, aside, Failed(code="x", message="x"))
        assert await bench.store.read(get_state, lease.task_id, "gate") is None
        assert len(await bench.store.read(list_runs, RunFilter())) == 1

    async def _next(self, bench: Bench, lease: Lease, words: str) -> RunBatch | None:
        (task,) = await bench.store.read(get_tasks, [lease.task_id])
        bound = replace(task, spec=dict(BOUNDS), policy=Policy())
        return next_run(bound, lease.run_id, words, bench.store.now())

    async def test_a_task_has_one_next_check_at_most(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.worker("w1", timedelta(days=9))
        await bench.queue(task, 2)
        first, second = await bench.claim(2)
        assert await self._end(
            bench, first, AttemptNotes(next_check=await self._next(bench, first, "6h"))
        )
        assert await self._end(
            bench, second, AttemptNotes(next_check=await self._next(bench, second, "1s"))
        )
        (later,) = await bench.store.read(list_runs, RunFilter(state=RunState.QUEUED))
        assert (later.place, later.upstream_id) == (QueueState.LATER, first.run_id)
        assert later.available_at - bench.clock.now() == timedelta(minutes=10)


# tasks that run until they have succeeded


class TestUntilSuccess:
    """A task that is to run until it has succeeded."""

    async def _task(self, bench: Bench) -> Task:
        task = await bench.task(until_success=True)
        await bench.worker("w1", timedelta(days=1))
        await bench.planned(task, every="1m")
        return task

    async def _slot(self, bench: Bench) -> None:
        bench.clock.advance(minutes=1)
        await bench.plan()

    async def test_ist_25_a_failure_keeps_the_task_and_the_first_success_ends_it(
        self, bench: Bench
    ) -> None:
        task = await self._task(bench)
        for outcome in (failed(), Cancelled(reason="not now")):
            await self._slot(bench)
            await bench.end(await bench.claim_one(), outcome)
            assert (await bench.task_of(task)).enabled
        await self._slot(bench)
        lease = await bench.claim_one()
        await self._slot(bench)  # the next one waits already
        assert await bench.end(lease)
        found = await bench.task_of(task)
        assert (found.enabled, found.disabled_reason) == (
            False,
            "it has succeeded, and was to run until then",
        )
        assert found.disabled_at == bench.clock.now()
        states = [run.state for run in await bench.slots(task)]
        assert states[-2:] == [RunState.SUCCEEDED, RunState.CANCELLED]
        await self._slot(bench)
        assert (await bench.claimed()).leases == []
        names = [
            e.name for e in await bench.store.read(list_events, 0, 1_000) if e.task_id == task.id
        ]
        assert names.count(EventName.TASK_DISABLED) == 1
        told = explain(await load_facts(bench.store, found, None), ZoneInfo("UTC"))
        assert any("it has succeeded, and was to run until then" in note for note in told.notes)

    async def test_a_success_that_comes_late_or_twice_ends_it_once(self, bench: Bench) -> None:
        task = await self._task(bench)
        await bench.queue(task, 2)
        one, two = await bench.claim_one(), await bench.claim_one()
        assert await bench.end(one)
        assert await bench.end(one)
        await bench.store.write(enable_task, task)
        assert await bench.end(one), "it stands already, and ends nothing again"
        assert (await bench.task_of(task)).enabled
        assert await bench.end(two)
        assert not (await bench.task_of(task)).enabled

    async def test_a_gate_that_woke_nobody_is_no_success_of_the_task(self, bench: Bench) -> None:
        task = await self._task(bench)
        await bench.queue(task)
        lease = await bench.claim_one()
        report = AttemptReport(
            outcome=Succeeded(), aside=AttemptNotes(mark=SuppressionReason.QUIET)
        )
        context = SettlementContext(policy=task.policy, now=bench.store.now())
        assert await bench.store.write(
            store_settlement.settle, [settle(running(lease), report, context)]
        ) == [True]
        assert (await bench.task_of(task)).enabled

    async def test_zub_38_what_is_in_the_slots_is_told_the_longest_first(
        self, bench: Bench
    ) -> None:
        await bench.worker("w1", timedelta(days=1))
        runs = []
        for space in ("ann", "bob", "ann"):
            await bench.queue(await bench.task(f"job-{space}", space=space))
            bench.clock.advance(minutes=1)
            runs.append((await bench.claim_one(), bench.clock.now()))
        await bench.queue(await bench.task("waits"))
        found = await bench.store.read(list_busy_slots, None, 10)
        assert [(slot.run_id, slot.since) for slot in found] == [
            (lease.run_id, at) for lease, at in runs
        ]
        assert (found[0].task, found[0].space, found[0].worker) == ("job-ann", "ann", "w1")
        assert await bench.store.read(list_busy_slots, None, 2) == found[:2]
        ann = await bench.space("ann")
        assert await bench.store.read(list_busy_slots, ann.id, 10) == [found[0], found[2]]
        await bench.end(runs[0][0])
        assert await bench.store.read(list_busy_slots, None, 10) == found[1:]


# stops


class TestStops:
    """What becomes of a run that somebody wants stopped."""

    async def test_a_run_somebody_wants_stopped_never_goes_back_to_the_queue(
        self, bench: Bench
    ) -> None:
        task = await bench.task(retry=RETRY)
        for outcome in (
            failed(),
            WaitingForAnswer(question="Shall I?"),
            Drained(),
            Lost(reason="gone"),
        ):
            await bench.queue(task)
            lease = await bench.claim_one()
            decided = await bench.decide(running(lease), outcome)
            await bench.store.write(request_cancel, [lease.run_id], "cancelled by ann")
            assert await bench.store.write(write_settlements, [decided]) == [True]
            run = await bench.run(lease.run_id)
            assert (run.state, run.error) == (RunState.CANCELLED, "cancelled by ann")
            assert await bench.claim() == []

    async def test_what_was_stopped_tells_who_wanted_that(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 3)
        asked, itself, done = await bench.claim(3)
        for lease in (asked, done):
            await bench.store.write(request_cancel, [lease.run_id], "cancelled by ann")
        for lease in (asked, itself):
            assert await bench.end(lease, Cancelled(reason="it was cancelled"))
        assert await bench.end(done)
        ends = [await bench.run(lease.run_id) for lease in (asked, itself, done)]
        assert [run.error for run in ends] == ["cancelled by ann", "it was cancelled", None]
        assert ends[-1].state is RunState.SUCCEEDED
        (attempt,) = await bench.store.read(list_attempts, asked.run_id)
        assert attempt.error == "cancelled by ann"
