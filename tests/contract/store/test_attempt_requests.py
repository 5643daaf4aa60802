"""What attempts ask for: deferred until a success, done once, asked while they run."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from rota.errors import Conflict, Fenced
from rota.flow.observe.verification import verify
from rota.flow.settle import settle_runs
from rota.model.attempt_requests import (
    MAX_DEFERRED,
    DeferredKind,
    DeferredOperation,
    DeferredResult,
)
from rota.model.attempts import (
    AttemptReport,
    Cancelled,
    Lost,
    Outcome,
    Released,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.ids import Epoch, RunId
from rota.model.notifications import DeliveryState
from rota.model.runs import RunState
from rota.model.tasks import OnLost, Pool, Retry
from rota.store.attempt_requests import (
    defer_operations,
    find_effect,
    list_deferred_operations,
    record_effect,
    runs_with_outside_actions,
)
from rota.store.outbox import claim_deliveries, record_delivery
from rota.store.settlement import request_cancel
from rota.store.tasks import get_seen, put_state
from rota.store.views import list_deliveries, list_questions
from rota.store.workers import fence_workers, list_lost_runs, prune_runs
from rota.testing.fakes import FixedChance
from tests.tools.attempt_bench import Talk, talking
from tests.tools.store_bench import Bench, failed

AGAIN = Retry(attempts=3, base=timedelta(0), jitter=0)


class TestDeferred:
    """Operations that wait for a success."""

    async def test_what_was_deferred_is_done_in_order_when_the_run_succeeds(
        self, bench: Bench
    ) -> None:
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        await bench.store.write(put_state, talk.task.id, "old", "1", "ann")
        drop = DeferredOperation(kind=DeferredKind.FORGET, data='{"key": "old"}')
        operations = [talk.state("n", 1), talk.state("n", 2), drop, talk.seen("a", "b")]
        assert (
            await bench.store.write(defer_operations, speaker, operations)
            == [DeferredResult.DEFERRED] * 4
        )
        assert await bench.store.write(
            defer_operations, speaker, [talk.message(speaker, "bye")]
        ) == [DeferredResult.DEFERRED]
        assert await talk.values() == {"old": 1}
        assert await bench.store.read(list_deliveries, None, 10) == []
        assert await talk.end(lease)
        assert await talk.values() == {"n": 2}
        for item in ("a", "b"):
            found = await bench.store.read(get_seen, talk.task.id, "default", item)
            assert found is not None
            assert found.count == 1
        (delivery,) = await bench.store.read(list_deliveries, lease.run_id, 10)
        assert (delivery.body, delivery.channel) == ("hello", "log")
        assert await talk.left(lease) == 0
        assert (await verify(bench.store)).violations == ()

    async def test_what_has_left_is_known(self, bench: Bench) -> None:
        talk = await talking(bench)
        await bench.queue(talk.task, 2)
        (quiet, speaker), (loud, other), (waiting, _) = [await talk.begin() for _ in range(3)]
        await bench.store.write(defer_operations, speaker, [talk.message(speaker, "later")])
        await bench.store.write(record_effect, other, "paid", "{}")
        asked = WaitingForAnswer(question="?", action="pay", options=("approve", "deny"))
        assert await talk.end(waiting, asked)
        ids = [quiet.run_id, loud.run_id, waiting.run_id]
        assert await bench.store.read(runs_with_outside_actions, ids) == {loud.run_id}
        assert await talk.answer(waiting, "approve")
        assert await bench.store.read(runs_with_outside_actions, ids) == {
            loud.run_id,
            waiting.run_id,
        }

    async def test_no_other_end_does_anything_of_it(self, bench: Bench) -> None:
        talk = await talking(bench, retry=AGAIN, on_lost=OnLost.RETRY)
        ends: list[Outcome] = [
            failed(),
            Lost(reason="gone"),
            Released(),
            failed(retryable=False),
        ]
        for outcome in ends:
            lease, speaker = await talk.begin()
            operations = [
                talk.state("n", 1),
                talk.message(speaker, "bye"),
                talk.subtask(speaker, "s"),
            ]
            await bench.store.write(defer_operations, speaker, operations)
            assert await talk.end(lease, outcome)
            assert await talk.left(lease) == 0
        assert await talk.values() == {}
        assert await bench.store.read(list_deliveries, None, 10) == []
        assert await bench.claim() == []
        assert (await verify(bench.store)).violations == ()

    async def test_an_earlier_attempt_defers_nothing_for_a_later_one(self, bench: Bench) -> None:
        talk = await talking(bench, retry=AGAIN)
        lease, speaker = await talk.begin()
        await bench.store.write(defer_operations, speaker, [talk.state("first", 1)])
        await talk.end(lease, failed())
        lease, speaker = await talk.begin()
        await bench.store.write(defer_operations, speaker, [talk.state("second", 2)])
        assert await talk.end(lease)
        assert await talk.values() == {"second": 2}

    async def test_an_attempt_that_was_fenced_defers_and_does_nothing(self, bench: Bench) -> None:
        talk = await talking(bench)
        old, speaker = await talk.begin()
        await talk.end(old, Lost(reason="gone"))
        new, _ = await talk.begin()
        for stale in (
            speaker,
            replace(speaker, epoch=Epoch(7)),
            replace(speaker, run_id=RunId(9_999)),
        ):
            with pytest.raises(Fenced):
                await bench.store.write(defer_operations, stale, [talk.state("n", 1)])
            with pytest.raises(Fenced):
                await bench.store.write(record_effect, stale, "x", "1", talk.delivery(stale, "x"))
        assert not await talk.end(old)
        assert await talk.end(new)
        with pytest.raises(Fenced):
            await bench.store.write(defer_operations, await talk.speaker(new), [talk.state("n", 1)])
        assert await talk.values() == {}
        assert await bench.store.read(list_deliveries, None, 10) == []

    async def test_a_settlement_that_is_repeated_does_it_once(self, bench: Bench) -> None:
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        await bench.store.write(
            defer_operations, speaker, [talk.seen("a"), talk.message(speaker, "bye")]
        )
        assert await talk.end(lease)
        assert await talk.end(lease)  # its first answer was lost
        found = await bench.store.read(get_seen, talk.task.id, "default", "a")
        assert found is not None
        assert found.count == 1
        assert len(await bench.store.read(list_deliveries, None, 10)) == 1

    async def test_a_subtask_is_queued_with_its_parent_pool_and_thread(self, bench: Bench) -> None:
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        await bench.store.write(
            defer_operations, speaker, [talk.subtask(speaker, "a"), talk.subtask(speaker, "b")]
        )
        assert await talk.end(lease)
        made = await bench.claimed()
        (first,) = made.leases  # one thread, one at a time
        run = await bench.run(first.run_id)
        assert (run.pool, run.upstream_id, run.source) == (Pool.FOREGROUND, lease.run_id, "after")
        assert (first.thread, first.depth) == ("cli:default", 1)
        effect = await bench.store.read(find_effect, speaker, "a")
        assert effect is not None
        assert json.loads(effect.result) == {"run": first.run_id}
        assert (await verify(bench.store)).violations == ()

    async def test_what_is_deferred_is_bounded(self, bench: Bench) -> None:
        talk = await talking(bench)
        _, speaker = await talk.begin()
        await bench.store.write(defer_operations, speaker, [talk.state("n", 1)] * MAX_DEFERRED)
        with pytest.raises(Conflict, match="at most 200"):
            await bench.store.write(defer_operations, speaker, [talk.state("n", 1)])
        await bench.queue(talk.task)
        _, other = await talk.begin()
        with pytest.raises(Conflict, match="bytes"):
            await bench.store.write(defer_operations, other, [talk.state("n", "x" * 600_000)] * 2)
        assert await bench.store.read(list_deferred_operations, [other.run_id]) == []

    async def test_a_waiting_run_that_is_cancelled_leaves_nothing(self, bench: Bench) -> None:
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        await bench.store.write(defer_operations, speaker, [talk.state("n", 1), talk.question()])
        await talk.end(lease)
        assert await talk.left(lease) == 1
        assert await bench.end_open(lease.run_id, Cancelled(reason="no"))
        assert await talk.left(lease) == 0
        assert (await verify(bench.store)).violations == ()


class TestEffects:
    """Effects that happen once for a slot."""

    async def test_a_message_is_in_the_outbox_at_once_and_once(self, bench: Bench) -> None:
        talk = await talking(bench, retry=AGAIN)
        lease, speaker = await talk.begin()
        sent = talk.delivery(speaker, "hi")
        first = await bench.store.write(record_effect, speaker, "hi", "{}", sent)
        (delivery,) = await bench.store.read(list_deliveries, lease.run_id, 10)
        assert (first.again, json.loads(first.result)) == (False, {"delivery": delivery.id})
        assert (await verify(bench.store)).violations == ()
        await talk.end(lease, failed())
        lease, speaker = await talk.begin()
        bench.clock.advance(minutes=1)
        other = talk.delivery(speaker, "hi", "in other words")
        again = await bench.store.write(record_effect, speaker, "hi", "{}", other)
        assert again == replace(first, again=True)
        assert await bench.store.write(
            defer_operations, speaker, [talk.message(speaker, "hi")]
        ) == [DeferredResult.ALREADY_DONE]
        assert await talk.end(lease)
        assert len(await bench.store.read(list_deliveries, None, 10)) == 1
        assert (await verify(bench.store)).violations == ()

    async def test_another_run_has_effects_of_its_own(self, bench: Bench) -> None:
        talk = await talking(bench)
        for _ in range(2):
            lease, speaker = await talk.begin()
            effect = await bench.store.write(
                record_effect, speaker, "hi", "{}", talk.delivery(speaker, "hi")
            )
            assert not effect.again
            await talk.end(lease)
            await bench.queue(talk.task)
        assert len(await bench.store.read(list_deliveries, None, 10)) == 2

    async def test_what_a_program_did_itself_is_kept_for_the_next_attempt(
        self, bench: Bench
    ) -> None:
        talk = await talking(bench, retry=AGAIN)
        lease, speaker = await talk.begin()
        assert await bench.store.read(find_effect, speaker, "paid") is None
        await bench.store.write(record_effect, speaker, "paid", '{"receipt": 7}')
        await talk.end(lease, failed())
        _, speaker = await talk.begin()
        found = await bench.store.read(find_effect, speaker, "paid")
        assert found is not None
        assert (found.result, found.again) == ('{"receipt": 7}', True)

    async def test_one_name_is_deferred_once(self, bench: Bench) -> None:
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        bye = talk.message(speaker, "bye")
        puts = await bench.store.write(defer_operations, speaker, [bye, bye])
        assert puts == [DeferredResult.DEFERRED, DeferredResult.ALREADY_DEFERRED]
        assert await bench.store.write(defer_operations, speaker, [bye]) == [
            DeferredResult.ALREADY_DEFERRED
        ]
        assert await talk.end(lease)
        assert len(await bench.store.read(list_deliveries, None, 10)) == 1

    async def test_effects_leave_with_their_run(self, bench: Bench) -> None:
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        await bench.store.write(record_effect, speaker, "paid", "1")
        await talk.end(lease)
        bench.clock.advance(days=1)
        assert await bench.store.write(prune_runs, bench.store.now(), 1_000)
        assert await bench.store.read(find_effect, speaker, "paid") is None
        assert (await verify(bench.store)).violations == ()

    async def test_messages_stay_as_long_as_their_run(self, bench: Bench) -> None:
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        await bench.store.write(record_effect, speaker, "hi", "{}", talk.delivery(speaker, "hi"))
        await bench.worker("sender")
        (sent,) = await bench.store.write(claim_deliveries, "sender", 10)
        await bench.store.write(record_delivery, sent, DeliveryState.SENT, None, bench.store.now())
        bench.clock.advance(days=1)
        assert await bench.store.write(prune_runs, bench.store.now(), 1_000)
        assert len(await bench.store.read(list_deliveries, lease.run_id, 10)) == 1
        assert (await verify(bench.store)).violations == ()
        await talk.end(lease)
        bench.clock.advance(days=1)
        assert await bench.store.write(prune_runs, bench.store.now(), 1_000)
        assert await bench.store.read(list_deliveries, None, 10) == []


class TestAsking:
    """Questions of attempts that go on."""

    async def test_a_run_that_has_asked_waits_however_its_program_ends(self, bench: Bench) -> None:
        task = await bench.task(route="agent", retry=AGAIN)
        ends: list[Outcome] = [
            Succeeded(result='"done"'),
            failed(),
            Cancelled(reason="it did not end its turn"),
            Lost(reason="gone"),
        ]
        for outcome in ends:
            await bench.queue(task)
            talk = Talk(bench, task)
            lease, speaker = await talk.begin()
            await bench.store.write(defer_operations, speaker, [talk.question(default="no")])
            assert await talk.end(lease, outcome)
            run = await bench.run(lease.run_id)
            assert (run.state, run.worker_id, run.result) == (RunState.WAITING, None, None)
            (question,) = await bench.store.read(list_questions, [lease.run_id])
            assert (question.kind, question.default, question.epoch) == ("ask", "no", 1)
            assert await bench.claim() == []
            assert await talk.left(lease) == 0
        assert (await verify(bench.store)).violations == ()

    async def test_an_answer_carries_on_what_was_deferred_before(self, bench: Bench) -> None:
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        await bench.store.write(
            defer_operations, speaker, [talk.state("before", 1), talk.question()]
        )
        await bench.store.write(defer_operations, speaker, [talk.message(speaker, "bye")])
        await talk.end(lease)
        assert await talk.answer(lease)
        assert await talk.left(lease) == 2
        assert await talk.values() == {}
        lease, speaker = await talk.begin()
        assert lease.epoch == 2
        puts = await bench.store.write(defer_operations, speaker, [talk.message(speaker, "bye")])
        assert puts == [DeferredResult.ALREADY_DEFERRED]
        await bench.store.write(defer_operations, speaker, [talk.state("after", 2)])
        assert await talk.end(lease)
        assert await talk.values() == {"before": 1, "after": 2}
        assert len(await bench.store.read(list_deliveries, None, 10)) == 1
        assert (await verify(bench.store)).violations == ()

    async def test_what_fails_after_the_answer_takes_only_its_own_with_it(
        self, bench: Bench
    ) -> None:
        talk = await talking(bench, retry=AGAIN, on_lost=OnLost.RETRY)
        lease, speaker = await talk.begin()
        await bench.store.write(
            defer_operations, speaker, [talk.state("before", 1), talk.question()]
        )
        await talk.end(lease)
        await talk.answer(lease)
        for outcome in (failed(), Lost(reason="gone")):
            lease, speaker = await talk.begin()
            await bench.store.write(defer_operations, speaker, [talk.state("after", lease.epoch)])
            await talk.end(lease, outcome)
            assert await talk.left(lease) == 1
        lease, _ = await talk.begin()
        assert await talk.end(lease)
        assert await talk.values() == {"before": 1}
        assert (await verify(bench.store)).violations == ()

    async def test_a_run_that_fails_for_good_after_the_answer_leaves_nothing(
        self, bench: Bench
    ) -> None:
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        await bench.store.write(
            defer_operations, speaker, [talk.state("before", 1), talk.question()]
        )
        await talk.end(lease)
        await talk.answer(lease)
        lease, _ = await talk.begin()
        await talk.end(lease, failed())
        assert (await talk.left(lease), await talk.values()) == (0, {})

    async def test_an_attempt_asks_once(self, bench: Bench) -> None:
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        await bench.store.write(defer_operations, speaker, [talk.question()])
        with pytest.raises(Conflict, match="has asked already"):
            await bench.store.write(defer_operations, speaker, [talk.question()])
        await talk.end(lease)
        await talk.answer(lease)
        lease, speaker = await talk.begin()
        await bench.store.write(defer_operations, speaker, [talk.question()])
        await talk.end(lease)
        assert [q.epoch for q in await bench.store.read(list_questions, [lease.run_id])] == [1, 2]

    async def test_a_run_that_somebody_wants_stopped_does_not_wait(self, bench: Bench) -> None:
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        await bench.store.write(defer_operations, speaker, [talk.state("n", 1), talk.question()])
        await bench.store.write(request_cancel, [lease.run_id], "cancelled by ann")
        assert await talk.end(lease)
        assert await bench.state(lease.run_id) is RunState.CANCELLED
        assert await talk.left(lease) == 0
        assert (await verify(bench.store)).violations == ()

    async def test_a_question_outlives_the_worker_that_was_lost(self, bench: Bench) -> None:
        await bench.worker("w1", timedelta(seconds=30))
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        await bench.store.write(defer_operations, speaker, [talk.question()])
        bench.clock.advance(minutes=1)
        await bench.store.write(fence_workers)
        lost = await bench.store.read(list_lost_runs, 10)
        report = AttemptReport(outcome=Lost(reason="gone"))
        assert await settle_runs(bench.store, [(run, report) for run in lost], FixedChance())
        assert await bench.state(lease.run_id) is RunState.WAITING

    async def test_an_approval_is_kept_with_its_action_and_hash(self, bench: Bench) -> None:
        talk = await talking(bench)
        lease, speaker = await talk.begin()
        await bench.store.write(
            defer_operations, speaker, [talk.question(action='{"action": "deploy"}')]
        )
        await talk.end(lease)
        (question,) = await bench.store.read(list_questions, [lease.run_id])
        assert (question.kind, question.action) == ("approval", '{"action": "deploy"}')
        await talk.answer(lease, "approve")
        claimed = await bench.claimed()
        assert claimed.answers == {lease.run_id: (f"approve sha256:{question.digest}",)}
        assert (await verify(bench.store)).violations == ()
