"""The outbox: each message is taken by one sender, and only that try says what became of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.flow.settle import running
from rota.model.attempts import AttemptReport, OutgoingMessage, Succeeded
from rota.model.ids import RunId
from rota.model.notifications import Delivery, DeliveryState
from rota.model.views import DeadDeliveriesView
from rota.rules.settlement import SettlementContext, settle
from rota.store import settlement as store_settlement
from rota.store.outbox import (
    claim_deliveries,
    list_held_deliveries,
    list_orphaned_deliveries,
    next_delivery,
    record_delivery,
)
from rota.store.views import dead_deliveries, list_deliveries
from rota.store.workers import fence_workers
from tests.tools.store_bench import MINUTE, Bench


class OutboxContract:
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
        assert await bench.store.read(list_held_deliveries, "w1", 10) == mine
        await bench.store.write(
            record_delivery, mine[0], DeliveryState.SENT, None, bench.store.now()
        )
        assert await bench.store.read(list_held_deliveries, "w1", 10) == mine[1:]

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
