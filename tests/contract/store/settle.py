"""Settling: compare-and-set on state and epoch, and everything an end brings with it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from rota.flow.settle import running
from rota.model.attempts import (
    AttemptReport,
    Cancelled,
    Drained,
    Expired,
    Lost,
    Outcome,
    OutgoingMessage,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.events import EventName
from rota.model.ids import Epoch, QuestionId, RunId
from rota.model.notifications import DeliveryState
from rota.model.runs import FINISHED, AttemptCause, Lease, QueueState, RunState
from rota.model.settlement import Settlement
from rota.model.tasks import After, AfterOn, OnLost, Retry
from rota.model.views import RunFilter
from rota.rules.settlement import SettlementContext, settle, settle_answer
from rota.store import settlement as store_settlement
from rota.store.plans import promote_delayed
from rota.store.settlement import request_cancel
from rota.store.tasks import get_tasks
from rota.store.views import (
    count_runs,
    list_attempts,
    list_deliveries,
    list_events,
    list_questions,
    list_run_events,
    list_runs,
    list_successors,
    list_tasks,
)
from rota.store.workers import get_open_runs, mark_stuck
from tests.tools.store_bench import Bench, failed

RETRY = Retry(attempts=3, base=timedelta(minutes=1), jitter=0)


class SettleContract:
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


class FollowUpContract:
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


class QuestionContract:
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
