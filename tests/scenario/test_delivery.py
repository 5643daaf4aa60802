"""Delivery: a message is recorded with its result, sent once, and by nobody who lost the run."""

from __future__ import annotations

import pytest

from rota.errors import Unavailable
from rota.flow.deliver import InFlightDeliveries, deliver
from rota.flow.maintain import rescue
from rota.flow.settle import running
from rota.model.attempts import AttemptReport, OutgoingMessage, Succeeded
from rota.model.notifications import DeliveryState
from rota.model.runs import RunState
from rota.ports.channel import Channel
from rota.rules.settlement import SettlementContext, settle
from rota.store.outbox import record_delivery
from rota.store.settlement import settle as write_settlements
from rota.store.views import list_attempts, list_deliveries, list_run_events
from rota.testing.fakes import RecordingChannel
from tests.scenario.builders import Silent, library
from tests.tools.power_cut import cut_at_every_query
from tests.tools.store_bench import MINUTE


async def test_a_worker_that_lost_its_run_delivers_nothing(desk, chance):
    """IST-W04: There was no fencing: the first worker of a reclaimed task still completed and delivered."""
    task = await desk.task(deliver_to="test:ann")
    await desk.queue(task)
    await desk.worker("w1")
    old = await desk.claim_one()
    desk.clock.advance(MINUTE)
    await rescue(desk.store, chance, fence=True)
    new = await desk.claim_one(worker="w2")
    assert not await desk.end(old, Succeeded(result='"old"'))
    assert await desk.end(new, Succeeded(result='"new"'))
    channel = RecordingChannel()
    assert await deliver(desk.store, {"test": channel}, "w2", chance) == 1
    assert [d.body for d in channel.sent] == ["new"]


async def test_a_result_and_its_message_are_recorded_together(desk):
    """IST-W05: Delivery came after the commit without an outbox: a crash in between lost it."""
    task = await desk.task()
    await desk.queue(task)
    lease = await desk.claim_one()
    message = OutgoingMessage(client_id="m", channel="test", target="ann", body="hello")
    report = AttemptReport(outcome=Succeeded(result="1"), messages=(message,))
    now = desk.store.now()
    settlement = settle(running(lease), report, SettlementContext(policy=task.policy, now=now))

    async def nothing_happened():
        assert (await desk.run(lease.run_id)).state is RunState.RUNNING
        assert await desk.store.read(list_attempts, lease.run_id) == []
        assert await desk.store.read(list_run_events, lease.run_id) == []
        assert await desk.store.read(list_deliveries, None, 10) == []

    store = desk.store
    cuts = await cut_at_every_query(store, write_settlements, [settlement], check=nothing_happened)
    assert cuts >= 4
    assert (await desk.run(lease.run_id)).state is RunState.SUCCEEDED
    assert len(await desk.store.read(list_deliveries, lease.run_id, 10)) == 1


async def test_a_failed_delivery_leaves_the_run_succeeded(desk, chance):
    """IST-W05: A mail that could not be sent turned a completed task into a failed one."""
    await desk.queue(await desk.task(deliver_to="test:ann"))
    lease = await desk.claim_one()
    await desk.end(lease, Succeeded(result='"done"'))
    channel = RecordingChannel(errors=[TimeoutError("no answer")])
    await deliver(desk.store, {"test": channel}, "w1", chance)
    assert await desk.state(lease.run_id) is RunState.SUCCEEDED
    (delivery,) = await desk.store.read(list_deliveries, lease.run_id, 10)
    assert delivery.state.value == "unknown"


async def test_a_sent_message_is_marked_even_if_the_database_was_away(flaky, chance):
    """Found by the simulation."""
    await flaky.queue(await flaky.task(deliver_to="test:ann"))
    await flaky.end(await flaky.claim_one())
    flaky.store.failing[record_delivery] = 2
    channel, in_hand = RecordingChannel(), InFlightDeliveries()
    for _ in range(2):
        with pytest.raises(Unavailable):
            await deliver(flaky.store, {"test": channel}, "w1", chance, in_hand)
    await deliver(flaky.store, {"test": channel}, "w1", chance, in_hand)
    assert len(channel.attempts) == 1
    (delivery,) = await flaky.store.read(list_deliveries, None, 10)
    assert delivery.state is DeliveryState.SENT


async def test_a_channel_that_does_not_answer_sends_the_rest_back():
    """Found by a review."""
    channel: Channel = Silent()
    rota = library(channels=[channel])

    @rota.task("talk")
    async def talk(run):
        run.send("one", to="silent:me")
        run.send("two", to="silent:me")

    async with rota:
        run_id = await rota.enqueue("talk")
        await rota.work(until_idle=True)
        states = {d.body: d.state for d in await rota.store.read(list_deliveries, run_id, 10)}
    assert set(states.values()) <= {DeliveryState.UNKNOWN, DeliveryState.PENDING}
    assert DeliveryState.UNKNOWN in states.values()
