"""Notifications and the outbox: sent once, in the transaction that moves a run."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from rota.flow.define.runs import answer_question
from rota.flow.observe.verification import verify
from rota.flow.settle import running
from rota.model.attempts import (
    AttemptReport,
    Cancelled,
    Expired,
    Lost,
    OutgoingMessage,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.ids import RunId
from rota.model.notifications import Delivery, DeliveryKind, DeliveryState, NotificationLevel
from rota.model.runs import Lease
from rota.model.tasks import OnLost, Retry
from rota.model.views import DeadDeliveriesView
from rota.rules.notifications import MIN_PRIORITIES
from rota.rules.permissions import LOCAL
from rota.rules.settlement import SettlementContext, settle
from rota.store import settlement as store_settlement
from rota.store.notifications import (
    drop_notification_target,
    list_notification_targets,
    set_notification_target,
)
from rota.store.outbox import (
    claim_deliveries,
    list_deliveries_of_worker,
    list_orphaned_deliveries,
    next_delivery,
    record_delivery,
)
from rota.store.plans import promote_delayed
from rota.store.views import (
    dead_deliveries,
    list_deliveries,
    list_events,
    list_questions,
    list_run_events,
)
from rota.store.workers import fence_workers
from tests.tools.store_bench import MINUTE, Bench, failed

# notifications

ASKED = WaitingForAnswer(question="deploy?", context="build 7", options=("yes", "no"))


class TestTargets:
    """Setting, listing and removing."""

    async def test_a_preference_is_set_listed_and_removed(self, bench: Bench) -> None:
        space = await bench.space()
        await bench.store.write(set_notification_target, space.id, "log", "ops", 10, usual=True)
        (found,) = await bench.store.read(list_notification_targets, space.id)
        assert (found.to, found.min_priority, found.is_default, found.space) == (
            "log:ops",
            10,
            True,
            "main",
        )
        assert await bench.store.write(drop_notification_target, space.id, "log", "ops")
        assert not await bench.store.write(drop_notification_target, space.id, "log", "ops")
        assert await bench.store.read(list_notification_targets, None) == []

    async def test_the_same_place_is_replaced_and_as_old_as_its_last_change(
        self, bench: Bench
    ) -> None:
        space = await bench.space()
        await bench.store.write(set_notification_target, space.id, "log", "", 0, usual=False)
        first = bench.clock.now()
        bench.clock.advance(MINUTE)
        await bench.store.write(set_notification_target, space.id, "log", "", 0, usual=False)
        assert [
            p.updated_at for p in await bench.store.read(list_notification_targets, space.id)
        ] == [first]
        await bench.store.write(set_notification_target, space.id, "log", "", 100, usual=False)
        assert [
            p.min_priority for p in await bench.store.read(list_notification_targets, space.id)
        ] == [100]

    async def test_a_space_has_one_usual_place_whoever_sets_it_at_once(self, bench: Bench) -> None:
        space, other = await bench.space(), await bench.space("other")
        await bench.store.write(set_notification_target, other.id, "log", "", 0, usual=True)
        await asyncio.gather(
            *(
                bench.store.write(set_notification_target, space.id, "log", str(n), 0, usual=True)
                for n in range(4)
            )
        )
        found = await bench.store.read(list_notification_targets, None)
        assert sorted(p.space for p in found if p.is_default) == ["main", "other"]


class TestNotifications:
    """What is told of runs, and when it is told no more."""

    async def _lease(self, bench: Bench, **policy: Any) -> Lease:
        await bench.worker("w1", timedelta(days=2))
        task = await bench.task(**policy)
        bench.clock.advance(2 * MINUTE)  # what verify holds a run against has stood for a while
        await bench.queue(task)
        return await bench.claim_one()

    async def _prefer(
        self, bench: Bench, to: str, level: NotificationLevel = NotificationLevel.NORMAL
    ) -> None:
        channel, _, target = to.partition(":")
        space = await bench.space()
        await bench.store.write(
            set_notification_target, space.id, channel, target, MIN_PRIORITIES[level], usual=False
        )

    async def _told(self, bench: Bench, run_id: int | None = None) -> list[Delivery]:
        assert (await verify(bench.store)).violations == ()
        return list(reversed(await bench.store.read(list_deliveries, run_id, 50)))

    async def test_a_run_that_failed_for_good_is_told_once(self, bench: Bench) -> None:
        await self._prefer(bench, "log:ops")
        lease = await self._lease(bench)
        assert await bench.end(lease, failed(retryable=False))
        await bench.end(lease, failed(retryable=False))
        (notice,) = await self._told(bench)
        assert (notice.channel, notice.target) == ("log", "ops")
        assert notice.body == f"job: run {lease.run_id} failed: boom"
        assert (notice.kind, notice.run_id) == (DeliveryKind.NOTIFICATION, lease.run_id)
        assert (await bench.events(lease.run_id))[-1] == "run.notified"

    async def test_what_is_tried_again_succeeds_or_is_cancelled_is_told_to_nobody(
        self, bench: Bench
    ) -> None:
        await self._prefer(bench, "log:ops")
        lease = await self._lease(bench, retry=Retry(attempts=2))
        assert await bench.end(lease, failed())
        assert await self._told(bench) == []
        bench.clock.advance(timedelta(hours=2))
        await bench.store.write(promote_delayed, 10)
        assert await bench.end(await bench.claim_one(), Succeeded())
        await bench.queue(await bench.task(retry=Retry(attempts=2)))
        assert await bench.end(await bench.claim_one(), Cancelled(reason="enough"))
        assert await self._told(bench) == []

    async def test_below_its_level_nothing_is_delivered_and_the_record_says_so(
        self, bench: Bench
    ) -> None:
        await self._prefer(bench, "log:loud", NotificationLevel.URGENT)
        await self._prefer(bench, "log:ops", NotificationLevel.HIGH)
        await self._prefer(bench, "log:all")
        lease = await self._lease(bench, priority=MIN_PRIORITIES[NotificationLevel.HIGH])
        assert await bench.end(lease, failed(retryable=False))
        assert [d.target for d in await self._told(bench)] == ["all", "ops"]
        events = await bench.store.read(list_run_events, lease.run_id)
        assert events[-1].data == {"targets": ["log:all", "log:ops"], "below_level": ["log:loud"]}

    async def test_another_space_is_told_nothing(self, bench: Bench) -> None:
        other = await bench.space("other")
        await bench.store.write(
            set_notification_target,
            other.id,
            "log",
            "",
            MIN_PRIORITIES[NotificationLevel.NORMAL],
            usual=False,
        )
        assert await bench.end(await self._lease(bench), failed(retryable=False))
        assert await self._told(bench) == []

    async def test_where_the_result_goes_a_failure_is_told_once(self, bench: Bench) -> None:
        await self._prefer(bench, "log:ops")
        lease = await self._lease(bench, deliver_to="log:ops")
        assert await bench.end(lease, failed(retryable=False))
        (told,) = await self._told(bench)
        assert (told.kind, told.body) == (
            DeliveryKind.RESULT,
            f"job: run {lease.run_id} failed: boom",
        )

    async def test_a_task_that_its_failures_disabled_is_told(self, bench: Bench) -> None:
        await self._prefer(bench, "log:ops")
        await self._prefer(bench, "log:loud", NotificationLevel.URGENT)
        lease = await self._lease(bench, disable_after=1)
        assert await bench.end(lease, failed(retryable=False))
        failure, disabled = await self._told(bench)
        assert failure.body.startswith(f"job: run {lease.run_id} failed")
        assert "the task was disabled, it has failed 1 times in a row" in disabled.body
        events = await bench.store.read(list_events, 0, 100)
        (told,) = [event for event in events if event.name == "task.disabled"]
        assert (told.data["targets"], told.data["below_level"]) == (["log:ops"], ["log:loud"])

    async def _waiting(self, bench: Bench, **policy: Any) -> Lease:
        lease = await self._lease(bench, **policy)
        assert await bench.end(lease, ASKED)
        return lease

    async def test_a_question_goes_where_the_results_go_with_all_that_an_answer_needs(
        self, bench: Bench
    ) -> None:
        await self._prefer(bench, "log:ops")
        lease = await self._waiting(bench, deliver_to="log:home")
        home, ops = await self._told(bench)
        assert [home.target, ops.target] == ["home", "ops"]
        assert home.body == ops.body
        assert home.body.splitlines() == [
            f"job: run {lease.run_id} asks:",
            "> deploy?",
            "> build 7",
            "Answer until 2026-03-03 12:02 UTC:",
            f"  rota answer {lease.run_id} yes",
            f"  rota answer {lease.run_id} no",
        ]

    async def test_a_question_is_told_once_at_a_place_that_is_both(self, bench: Bench) -> None:
        await self._prefer(bench, "log:ops")
        await self._waiting(bench, deliver_to="log:ops")
        assert len(await self._told(bench)) == 1

    async def test_an_approval_shows_the_exact_action_and_its_hash(self, bench: Bench) -> None:
        lease = await self._lease(bench, deliver_to="log:")
        action = '{"action": "rm"}'
        asked = WaitingForAnswer(question="may I?", action=action, options=("approve", "deny"))
        assert await bench.end(lease, asked)
        (question,) = await bench.store.read(list_questions, [lease.run_id])
        (told,) = await self._told(bench)
        assert action in told.body.splitlines()
        assert f"rota answer {lease.run_id} approve --hash {question.digest}" in told.body

    async def _answer(self, bench: Bench, lease: Lease) -> None:
        (question, *_) = await bench.store.read(list_questions, [lease.run_id])
        await answer_question(bench.store, LOCAL, question.id, "yes")

    async def test_what_was_not_sent_is_withdrawn_with_the_answer(self, bench: Bench) -> None:
        lease = await self._waiting(bench, deliver_to="log:")
        await self._answer(bench, lease)
        (told,) = await self._told(bench)
        assert (told.state, told.tries) == (DeliveryState.WITHDRAWN, 0)
        assert await bench.store.write(claim_deliveries, "w1", 10) == []
        assert "delivery.withdrawn" in await bench.events(lease.run_id)

    async def test_what_a_channel_refused_is_not_sent_after_the_answer(self, bench: Bench) -> None:
        lease = await self._waiting(bench, deliver_to="log:")
        (taken,) = await bench.store.write(claim_deliveries, "w1", 10)
        await self._answer(bench, lease)
        now = bench.store.now()
        assert await bench.store.write(record_delivery, taken, DeliveryState.PENDING, "busy", now)
        assert await bench.store.write(claim_deliveries, "w1", 10) == []
        (told,) = await self._told(bench)
        assert told.state is DeliveryState.WITHDRAWN

    async def test_a_later_question_of_the_same_run_is_told_anew(self, bench: Bench) -> None:
        lease = await self._waiting(bench, deliver_to="log:")
        await self._answer(bench, lease)
        again = await bench.claim_one()
        assert again.run_id == lease.run_id
        assert await bench.end(again, ASKED)
        states = [d.state for d in await self._told(bench)]
        assert states == [DeliveryState.WITHDRAWN, DeliveryState.PENDING]
        assert len(await bench.store.write(claim_deliveries, "w1", 10)) == 1

    async def test_an_expired_question_is_withdrawn_and_its_expiry_told(self, bench: Bench) -> None:
        await self._prefer(bench, "log:ops")
        lease = await self._waiting(bench)
        assert await bench.end_open(lease.run_id, Expired(reason="nobody answered"))
        asked, expired = await self._told(bench)
        assert (asked.state, expired.state) == (DeliveryState.WITHDRAWN, DeliveryState.PENDING)
        assert expired.body == f"job: run {lease.run_id} expired: nobody answered"

    async def test_a_run_that_is_lost_and_asks_is_told(self, bench: Bench) -> None:
        await self._prefer(bench, "log:ops")
        lease = await self._lease(bench, on_lost=OnLost.ASK)
        assert await bench.end(lease, Lost(reason="gone"))
        (told,) = await self._told(bench)
        assert "This run was lost" in told.body

    async def test_a_late_attempt_tells_nobody(self, bench: Bench) -> None:
        await self._prefer(bench, "log:ops")
        lease = await self._lease(bench)
        assert await bench.end(lease, Lost(reason="gone"))
        again = await bench.claim_one()
        assert not await bench.end(lease, failed(retryable=False))
        assert await bench.end(again, Succeeded())
        assert await self._told(bench) == []


# the outbox


class TestOutbox:
    """Taking and marking deliveries."""

    async def _send(self, bench: Bench, count: int = 1) -> int:
        """Let a run leave messages; return the run's id."""
        task = await bench.task()
        await bench.queue(task)
        lease = await bench.claim_one()
        messages = tuple(
            OutgoingMessage(client_id=str(n), channel="chat", target="ann", body=f"m{n}")
            for n in range(count)
        )
        report = AttemptReport(outcome=Succeeded(), messages=messages)
        context = SettlementContext(policy=task.policy, now=bench.store.now())
        await bench.store.write(store_settlement.settle, [settle(running(lease), report, context)])
        return lease.run_id

    async def _take(self, bench: Bench, worker: str = "w1", most: int = 10) -> list[Delivery]:
        return await bench.store.write(claim_deliveries, worker, most)

    async def test_messages_are_taken_once_in_order(self, bench: Bench) -> None:
        await self._send(bench, 3)
        first = await self._take(bench, most=2)
        assert [d.body for d in first] == ["m0", "m1"]
        assert {(d.state, d.tries) for d in first} == {(DeliveryState.SENDING, 1)}
        assert [d.body for d in await self._take(bench)] == ["m2"]
        assert await self._take(bench) == []

    async def test_postmen_at_once_take_different_messages(self, bench: Bench) -> None:
        await self._send(bench, 9)
        takes = await asyncio.gather(*(self._take(bench, f"w{n}", 3) for n in range(4)))
        bodies = [d.body for take in takes for d in take]
        assert sorted(bodies) == [f"m{n}" for n in range(9)]

    async def test_what_died_lately_is_counted_with_the_last_of_it(self, bench: Bench) -> None:
        store = bench.store
        run_id = await self._send(bench, 3)
        assert await store.read(dead_deliveries, None, 0) is None
        since = store.now()
        for number, delivery in enumerate(await self._take(bench)):
            bench.clock.advance(MINUTE)
            state = DeliveryState.UNKNOWN if number == 2 else DeliveryState.DEAD
            await store.write(record_delivery, delivery, state, f"why {number}", store.now())
        found = await store.read(dead_deliveries, None, since)
        assert found == DeadDeliveriesView(2, RunId(run_id), "chat:ann", "why 1")
        (main, other) = (await bench.space("main"), await bench.space("other"))
        assert await store.read(dead_deliveries, main.id, since) == found
        assert await store.read(dead_deliveries, other.id, since) is None
        assert await store.read(dead_deliveries, None, store.now()) is None

    async def test_sent_unknown_and_dead_are_recorded_with_an_event(self, bench: Bench) -> None:
        run_id = await self._send(bench, 3)
        states = (DeliveryState.SENT, DeliveryState.UNKNOWN, DeliveryState.DEAD)
        for delivery, state in zip(await self._take(bench), states, strict=True):
            assert await bench.store.write(
                record_delivery, delivery, state, "why", bench.store.now()
            )
        found = list(reversed(await bench.store.read(list_deliveries, run_id, 10)))
        assert [d.state for d in found] == list(states)
        assert [d.error for d in found] == ["why"] * 3
        assert [d.sent_at for d in found] == [bench.clock.now(), None, None]
        assert await bench.events(run_id) == [
            "run.settled",
            "delivery.sent",
            "delivery.unknown",
            "delivery.dead",
        ]

    async def test_only_the_takers_own_try_may_mark(self, bench: Bench) -> None:
        await self._send(bench)
        (old,) = await self._take(bench)
        again = bench.store.now()
        assert await bench.store.write(record_delivery, old, DeliveryState.PENDING, "no", again)
        (new,) = await self._take(bench, "w2")
        assert (new.id, new.tries) == (old.id, 2)
        assert not await bench.store.write(record_delivery, old, DeliveryState.DEAD, "x", again)
        assert await bench.store.write(record_delivery, new, DeliveryState.SENT, None, again)
        assert not await bench.store.write(record_delivery, new, DeliveryState.DEAD, "x", again)
        (found,) = await bench.store.read(list_deliveries, None, 10)
        assert found.state is DeliveryState.SENT

    async def test_a_refused_message_comes_back_at_its_time(self, bench: Bench) -> None:
        await self._send(bench)
        (delivery,) = await self._take(bench)
        later = bench.store.now() + 60_000_000
        await bench.store.write(record_delivery, delivery, DeliveryState.PENDING, "busy", later)
        assert await self._take(bench) == []
        assert await bench.store.read(next_delivery) == later
        bench.clock.advance(MINUTE)
        (again,) = await self._take(bench)
        assert (again.tries, again.dedupe_key) == (2, delivery.dedupe_key)
        assert await bench.store.read(next_delivery) is None

    async def test_what_a_postman_holds_can_be_asked_for(self, bench: Bench) -> None:
        await self._send(bench, 3)
        mine = await self._take(bench, "w1", 2)
        await self._take(bench, "w2", 1)
        assert await bench.store.read(list_deliveries_of_worker, "w1", 10) == mine
        await bench.store.write(
            record_delivery, mine[0], DeliveryState.SENT, None, bench.store.now()
        )
        assert await bench.store.read(list_deliveries_of_worker, "w1", 10) == mine[1:]

    async def test_messages_of_a_vanished_postman_are_orphans(self, bench: Bench) -> None:
        await self._send(bench, 2)
        await bench.worker("dying")
        await bench.worker("alive", timedelta(hours=1))
        (orphan,) = await self._take(bench, "dying", 1)
        await self._take(bench, "alive", 1)
        assert await bench.store.read(list_orphaned_deliveries, 10) == []
        bench.clock.advance(MINUTE)
        await bench.store.write(fence_workers)
        assert [d.id for d in await bench.store.read(list_orphaned_deliveries, 10)] == [orphan.id]
        await bench.store.write(
            record_delivery, orphan, DeliveryState.UNKNOWN, "gone", bench.store.now()
        )
        assert await bench.store.read(list_orphaned_deliveries, 10) == []

    async def test_a_message_nobody_spoke_for_is_an_orphan_after_a_while(
        self, bench: Bench
    ) -> None:
        await self._send(bench)
        await bench.worker("alive", timedelta(hours=1))
        (taken,) = await self._take(bench, "alive")
        bench.clock.advance(MINUTE)
        assert await bench.store.read(list_orphaned_deliveries, 10) == []
        bench.clock.advance(MINUTE)
        assert [d.id for d in await bench.store.read(list_orphaned_deliveries, 10)] == [taken.id]
