"""Messages reach a run that goes on if it listens, in their order, and move only when it says so."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from rota.errors import NotFound, Unavailable
from rota.flow.attempt import conversation
from rota.flow.attempt.conversation import MessageDelivery
from rota.flow.define.runs import enqueue
from rota.model.attempts import KeptAttempt
from rota.model.audit import AttemptIdentity
from rota.model.threads import MessageState
from rota.store.threads import list_messages
from tests.unit.attempt.test_conversation import HERE, answering, claim, tell


class Box:
    """A mailbox that takes messages once its program listens."""

    def __init__(self, *, listens=True):
        self.listens = listens
        self.given = []
        self.asked = asyncio.Event()
        self.faults = []

    async def put_message(self, run_id, epoch, message, told):
        self.asked.set()
        if self.faults:
            raise self.faults.pop()
        if not self.listens:
            return None
        self.given.append(told(message)["text"])
        return len(self.given)


@pytest.fixture
def going(desk, monkeypatch):
    """A run of the thread that goes on, and who offers it what is said there."""
    monkeypatch.setattr(conversation, "AGAIN_SECONDS", 0.01)

    @asynccontextmanager
    async def begin():
        await enqueue(desk.store, await answering(desk), None)
        desk.given = await claim(desk)
        desk.box = Box()
        desk.offering = MessageDelivery(desk.store, desk.box)
        desk.kept = KeptAttempt(
            run_id=desk.given.lease.run_id, epoch=desk.given.lease.epoch, home="h", nonce="n",
            boot="b", executor="process",
        )  # fmt: skip
        desk.offering.begin(desk.given, desk.kept)
        try:
            yield desk
        finally:
            desk.offering.end(desk.given.lease.run_id)

    return begin


def held(desk, epoch=None):
    lease = desk.given.lease
    return AttemptIdentity(run_id=lease.run_id, epoch=epoch or lease.epoch, task_id=lease.task_id,
                task="talk", thread=HERE, space="main")  # fmt: skip


async def until(box, count):
    async with asyncio.timeout(5):
        while len(box.given) < count:
            box.asked.clear()
            await box.asked.wait()


async def states(desk):
    found = await desk.store.read(list_messages, HERE, None, 1 << 62, 10)
    return [message.state for message in reversed(found)]


async def test_what_is_said_is_offered_at_once_and_in_order(going):
    async with going() as desk:
        await tell(desk, "one", "two")
        await until(desk.box, 2)
        assert desk.box.given == ["one", "two"]
        assert set(await states(desk)) == {MessageState.PENDING}


async def test_a_message_moves_when_it_is_acknowledged_with_all_before_it(going):
    async with going() as desk:
        await tell(desk, "one", "two", "three")
        await until(desk.box, 3)
        read = desk.offering.acknowledged
        assert await read(held(desk), 2) == 2
        assert await states(desk) == [MessageState.TAKEN, MessageState.TAKEN, MessageState.PENDING]
        assert await read(held(desk), 1) == 0
        assert await read(held(desk), 3) == 1


async def test_an_acknowledgement_counts_after_a_restart_too(going):
    async with going() as desk:
        await tell(desk, "one", "two")
        await until(desk.box, 2)
        desk.offering.end(desk.given.lease.run_id)
        await tell(desk, "three")
        again = MessageDelivery(desk.store, desk.box)
        again.begin(desk.given, desk.kept)
        try:
            assert await again.acknowledged(held(desk), 2) == 2
            await until(desk.box, 3)
            assert desk.box.given == ["one", "two", "three"]
        finally:
            again.end(desk.given.lease.run_id)


async def test_another_try_is_offered_everything_that_is_left_again(going):
    async with going() as desk:
        await tell(desk, "one", "two")
        await until(desk.box, 2)
        await desk.offering.acknowledged(held(desk), 1)
        desk.box.given.clear()
        desk.offering.begin(desk.given, replace(desk.kept, nonce="another"))
        await until(desk.box, 1)
        assert desk.box.given == ["two"]
        assert await desk.offering.acknowledged(held(desk), 1) == 1


@pytest.mark.parametrize(("number", "epoch"), [(7, None), (1, 7)])
async def test_only_what_lies_there_is_acknowledged_and_only_by_who_goes_on(going, number, epoch):
    async with going() as desk:
        await tell(desk, "one")
        await until(desk.box, 1)
        with pytest.raises(NotFound):
            await desk.offering.acknowledged(held(desk, epoch), number)
        assert await states(desk) == [MessageState.PENDING]


async def test_an_attempt_that_is_over_acknowledges_nothing(going):
    async with going() as desk:
        await tell(desk, "one")
        await until(desk.box, 1)
        await desk.end(desk.given.lease)
        with pytest.raises(NotFound):
            await desk.offering.acknowledged(held(desk), 1)
        assert await states(desk) == [MessageState.PENDING]


async def test_whoever_does_not_listen_yet_is_offered_it_later(going):
    async with going() as desk:
        desk.box.listens = False
        await tell(desk, "one")
        desk.box.asked.clear()
        async with asyncio.timeout(5):
            await desk.box.asked.wait()
        assert desk.box.given == []
        desk.box.listens = True
        await until(desk.box, 1)


async def test_what_could_not_be_offered_is_offered_again(going):
    async with going() as desk:
        desk.box.faults.append(Unavailable("the disk is full"))
        await tell(desk, "one", "two")
        await until(desk.box, 2)
        assert desk.box.given == ["one", "two"]


async def test_a_run_that_has_ended_is_offered_nothing(going):
    async with going() as desk:
        await tell(desk, "one")
        await until(desk.box, 1)
        desk.offering.end(desk.given.lease.run_id)
        await tell(desk, "two")
        assert desk.box.given == ["one"]
        assert desk.offering._going == {}
