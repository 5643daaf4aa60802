"""Delivering: refused is tried again, unanswered is unknown, nothing is sent twice."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.errors import Unavailable
from rota.flow.deliver import InFlightDeliveries, deliver
from rota.flow.maintain import rescue
from rota.model.attempts import Succeeded
from rota.model.notifications import DeliveryState
from rota.ports.channel import ChannelRefused
from rota.rules.settlement import DELIVERY_RETRY
from rota.store.outbox import claim_deliveries, next_delivery, record_delivery
from rota.store.sqlite.database import MemoryDatabase
from rota.store.views import list_deliveries
from rota.testing.fakes import RecordingChannel
from tests.tools.interception import intercept
from tests.tools.store_bench import MINUTE, Bench


@pytest.fixture
def message(desk, runner):
    async def leave():
        await desk.queue(await desk.task(deliver_to="test:ann"))
        await desk.end(await desk.claim_one(), Succeeded(result='"hello"'))

    runner.run(leave())


async def state(desk):
    (found,) = await desk.store.read(list_deliveries, None, 10)
    return found


async def post(desk, channel, chance):
    return await deliver(desk.store, {channel.name: channel}, "w1", chance)


async def test_a_message_is_sent_once(desk, message, chance):
    channel = RecordingChannel()
    assert await post(desk, channel, chance) == 1
    assert await post(desk, channel, chance) == 0
    (taken,) = channel.sent
    assert (taken.target, taken.body) == ("ann", "hello")
    found = await state(desk)
    assert (found.state, found.sent_at) == (DeliveryState.SENT, desk.clock.now())


async def test_a_refused_message_is_tried_again_with_growing_pauses_then_given_up(
    desk, message, chance
):
    channel = RecordingChannel(errors=[ChannelRefused("busy")] * 20)
    pauses = []
    while True:
        await post(desk, channel, chance)
        next_at = await desk.store.read(next_delivery)
        if next_at is None:
            break
        pause = timedelta(microseconds=next_at - desk.store.now())
        pauses.append(pause.total_seconds())
        desk.clock.advance(pause)
    assert pauses == [2, 6, 18, 54, 162, 486, 1458]
    assert len(channel.attempts) == DELIVERY_RETRY.attempts
    assert len({delivery.dedupe_key for delivery in channel.attempts}) == 1
    found = await state(desk)
    assert (found.state, found.error) == (DeliveryState.DEAD, "busy")


async def test_a_refused_message_is_not_tried_before_its_time(desk, message, chance):
    channel = RecordingChannel(errors=[ChannelRefused("busy")])
    await post(desk, channel, chance)
    desk.clock.advance(seconds=1)
    assert await post(desk, channel, chance) == 0
    desk.clock.advance(seconds=1)
    assert await post(desk, channel, chance) == 1
    assert (await state(desk)).state is DeliveryState.SENT


async def test_a_final_refusal_ends_it_at_once(desk, message, chance):
    channel = RecordingChannel(errors=[ChannelRefused("no such person", final=True)])
    await post(desk, channel, chance)
    found = await state(desk)
    assert (found.state, found.tries, found.error) == (DeliveryState.DEAD, 1, "no such person")


@pytest.mark.parametrize("fault", [TimeoutError("no answer"), OSError("reset"), KeyError("x")])
async def test_a_message_without_an_answer_is_unknown_and_never_sent_again(
    desk, message, chance, fault
):
    channel = RecordingChannel(errors=[fault])
    await post(desk, channel, chance)
    found = await state(desk)
    assert found.state is DeliveryState.UNKNOWN
    assert type(fault).__name__ in found.error or "did not answer" in found.error
    desk.clock.advance(days=2)
    assert await post(desk, channel, chance) == 0
    assert len(channel.attempts) == 1


async def test_a_channel_nobody_configured_is_dead_and_says_so(desk, message, chance):
    await deliver(desk.store, {}, "w1", chance)
    found = await state(desk)
    assert (found.state, found.error) == (DeliveryState.DEAD, "no channel 'test' is configured")


async def test_one_bad_message_does_not_hold_up_the_others(desk, chance):
    await desk.queue(await desk.task(deliver_to="test:ann"), 3)
    for _ in range(3):
        await desk.end(await desk.claim_one())
    channel = RecordingChannel(errors=[OSError("reset")])
    assert await post(desk, channel, chance) == 3
    assert len(channel.sent) == 2


class Wavering(MemoryDatabase):
    """A store that is out of reach at chosen moments, before or after it has done its work."""

    fails_before = ""
    fails_after = ""

    async def _waver(self, name, work):
        if self.fails_before == name:
            self.fails_before = ""
            work.close()
            raise Unavailable("gone before")
        done = await work
        if self.fails_after == name:
            self.fails_after = ""
            raise Unavailable("gone after")
        return done

    async def write(self, operation, *args, **kwargs):
        work = super().write(operation, *args, **kwargs)
        name = {claim_deliveries: "take", record_delivery: "mark"}.get(operation)
        return await (work if name is None else self._waver(name, work))


@pytest.mark.parametrize("moment", ["fails_before", "fails_after"])
@pytest.mark.parametrize("step", ["take", "mark"])
async def test_a_message_in_hand_is_sent_once_and_recorded_when_the_store_is_back(
    clock, chance, opened_later, moment, step
):
    store = await opened_later(Wavering(clock))
    desk = Bench(store, clock)
    await desk.worker("w1")
    await desk.queue(await desk.task(deliver_to="test:ann"), 3)
    for number in range(3):
        await desk.end(await desk.claim_one(), Succeeded(result=str(number)))
    channel, in_hand = RecordingChannel(), InFlightDeliveries()
    setattr(store, moment, step)
    with pytest.raises(Unavailable):
        await deliver(store, {"test": channel}, "w1", chance, in_hand)
    await deliver(store, {"test": channel}, "w1", chance, in_hand)
    states = [found.state for found in await store.read(list_deliveries, None, 10)]
    assert states == [DeliveryState.SENT] * 3
    assert sorted(delivery.body for delivery in channel.attempts) == ["0", "1", "2"]


async def test_a_message_whose_sending_is_broken_off_is_unknown(desk, message, chance):
    begun = asyncio.Event()

    class Silent(RecordingChannel):
        async def send(self, delivery):
            begun.set()
            await asyncio.Event().wait()

    in_hand = InFlightDeliveries()
    sending = asyncio.ensure_future(deliver(desk.store, {"test": Silent()}, "w1", chance, in_hand))
    await begun.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await deliver(desk.store, {}, "w1", chance, in_hand)
    found = await state(desk)
    assert (found.state, found.error) == (DeliveryState.UNKNOWN, "sending was interrupted")


async def test_a_message_whose_sender_vanished_is_unknown(desk, message, chance):
    await desk.worker("dies")
    assert len(await desk.store.write(claim_deliveries, "dies", 10)) == 1
    await rescue(desk.store, chance, fence=True)
    assert (await state(desk)).state is DeliveryState.SENDING
    desk.clock.advance(MINUTE)
    await rescue(desk.store, chance, fence=True)
    found = await state(desk)
    assert (found.state, found.error) == (
        DeliveryState.UNKNOWN,
        "the sender died while sending",
    )


async def test_a_target_whose_record_fails_does_not_leave_another_to_itself(desk, chance):
    for name, target in (("a", "test:ann"), ("b", "test:bob")):
        await desk.queue(await desk.task(name, deliver_to=target))
        await desk.end(await desk.claim_one(), Succeeded(result='"hello"'))
    failed, go_on = asyncio.Event(), asyncio.Event()

    async def fail_for_ann(proceed, delivery, *rest):
        if delivery.target == "ann":
            failed.set()
            raise Unavailable("gone")
        await go_on.wait()
        await proceed(delivery, *rest)

    intercept(desk.store, record_delivery, fail_for_ann)
    posting = asyncio.ensure_future(post(desk, RecordingChannel(), chance))
    await failed.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not posting.done()
    go_on.set()
    with pytest.raises(Unavailable):
        await posting
    found = {d.target: d.state for d in await desk.store.read(list_deliveries, None, 10)}
    assert found == {"ann": DeliveryState.SENDING, "bob": DeliveryState.SENT}
