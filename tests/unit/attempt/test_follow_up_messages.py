"""Messages for a run that goes on: offered in order, written to its input once."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rota.agents.command.agent import CommandAgent
from rota.agents.pi.agent import PiAgent
from rota.errors import NotFound, Unavailable
from rota.flow.attempt import conversation
from rota.flow.attempt.conversation import InputWriter, MessageDelivery
from rota.flow.attempt.output import OutputParser
from rota.flow.define.runs import enqueue
from rota.model.agents import AgentSpec
from rota.model.attempts import KeptAttempt, OutputStream
from rota.model.audit import AttemptIdentity
from rota.model.threads import MessageState, ThreadMessage
from rota.ports.agent import AgentWorkspace
from rota.store.threads import list_messages
from tests.unit.attempt.test_conversation import HERE, answering, claim, tell

# offers


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
        assert await states(desk) == [
            MessageState.ACKNOWLEDGED,
            MessageState.ACKNOWLEDGED,
            MessageState.PENDING,
        ]
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


# input of programs

PROMPT = b'{"rota": "instructions", "text": "go"}\n'


class Yard:
    """The input of one program."""

    def __init__(self):
        self.data, self.ended, self.full, self.rings = PROMPT, False, False, 0

    def read_input(self, kept):
        return self.data, self.ended

    def write_input(self, kept, offset, data, *, end=False):
        if self.full:
            raise OSError(28, "No space left on device")
        self.rings += 1
        self.data = self.data[:offset] + data
        self.ended = self.ended or end

    def told(self):
        return [json.loads(line).get("text") for line in self.data.splitlines()]


@pytest.fixture
def yard():
    return Yard()


@pytest.mark.anyio
async def test_what_was_put_there_by_who_was_killed_before_it_rang_is_rung_for(yard):
    one = steer(yard)
    yard.data += CommandAgent().message_line(message(5, "a"))
    yard.rings = 0
    two = steer(yard)
    assert (yard.rings, two.has(message(5))) == (1, True)
    two.close()
    yard.rings = 0
    steer(yard)
    assert (yard.rings, yard.ended, one.kept) == (1, True, two.kept)


def steer(yard):
    kept = KeptAttempt(run_id=1, epoch=1, home="h", nonce="n", boot="b", executor="process")
    return InputWriter(yard, kept, CommandAgent())


def message(number, text="x"):
    return ThreadMessage(
        id=number, thread="cli:default", sender="ann", body=text,
        at=datetime(2026, 3, 1, tzinfo=UTC), state=MessageState.PENDING, reader_run_id=2, run_id=None,
        epoch=None, read_at=None,
    )  # fmt: skip


@pytest.mark.anyio
async def test_a_message_is_put_there_once_whoever_puts_it(yard):
    assert await steer(yard).put(message(5, "a")) == 1
    later = steer(yard)
    assert await later.put(message(5, "a")) == 1
    assert await later.put(message(7, "b")) == 2
    assert yard.told() == ["go", "a", "b"]


@pytest.mark.anyio
@pytest.mark.parametrize("bytes_left", [0, 1, 20, -1])
async def test_a_line_that_was_torn_by_a_death_is_made_whole(yard, bytes_left):
    line = CommandAgent().message_line(message(5, "a"))
    yard.data += line[:bytes_left]
    later = steer(yard)
    assert await later.put(message(5, "a")) == 1
    assert await later.put(message(6, "b")) == 2
    assert yard.told() == ["go", "a", "b"]


@pytest.mark.anyio
async def test_nothing_is_put_behind_a_torn_line_that_nobody_can_make_whole(yard):
    yard.data += b'{"rota": "message", "id": 4'
    assert await steer(yard).put(message(5)) is None
    assert yard.data.endswith(b"4")


@pytest.mark.anyio
async def test_a_full_disk_gives_nothing_and_a_later_look_does(yard):
    yard.full = True
    one = steer(yard)
    assert await one.put(message(5, "a")) is None
    yard.full = False
    assert await one.put(message(5, "a")) == 1
    assert yard.told() == ["go", "a"]


@pytest.mark.anyio
async def test_the_input_ends_only_when_all_of_it_was_taken(yard):
    one = steer(yard)
    await one.put(message(5))
    one.close_unless_more()
    assert not yard.ended
    one.taken = one.upto(5)
    one.close_unless_more()
    assert yard.ended
    assert await one.put(message(6)) is None
    assert await steer(yard).put(message(6)) is None


@pytest.mark.anyio
async def test_the_input_of_one_that_takes_nothing_more_ends_whatever_lies_there(yard):
    one = steer(yard)
    await one.put(message(5))
    one.close()
    assert yard.ended


@pytest.mark.anyio
async def test_a_line_that_is_wanted_is_put_there_once_whoever_puts_it(yard):
    line = '{"type": "get_state"}\n'
    one = steer(yard)
    one.want(line)
    one.want(line)
    later = steer(yard)
    later.want(line)
    await later.put(message(5))
    assert yard.data.count(line.encode()) == 1


@pytest.mark.anyio
async def test_a_line_that_is_wanted_waits_until_a_torn_one_is_whole(yard):
    whole = CommandAgent().message_line(message(5, "a"))
    yard.data += whole[:20]
    one = steer(yard)
    one.want('{"text": "how is it?"}\n')
    assert yard.data.endswith(whole[:20])
    await one.put(message(5, "a"))
    assert yard.told() == ["go", "a", "how is it?"]


@pytest.mark.anyio
async def test_a_program_takes_only_what_it_was_given(yard):
    one = steer(yard)
    await one.put(message(5))
    assert [one.upto(number) for number in (4, 5, 99)] == [0, 5, 5]


BEFORE = [
    {"type": "response", "id": "session", "data": {"sessionId": "7f3a"}},
    {"type": "response", "id": "prompt", "success": True},
    {"type": "agent_start"},
]
ANSWER = {"type": "message_end", "message": {
    "role": "assistant", "content": [{"type": "text", "text": "done"}], "stopReason": "stop"}}  # fmt: skip


@pytest.mark.anyio
async def test_an_agent_that_is_over_is_closed_though_a_message_came_too_late(yard):
    kept = KeptAttempt(run_id=1, epoch=1, home="h", nonce="n", boot="b", executor="process")
    offering, steer = MessageDelivery(None, None, yard), InputWriter(yard, kept, PiAgent())
    offering._steered[kept.run_id] = steer
    hearing = OutputParser(
        PiAgent().reader(AgentSpec(), AgentWorkspace(folder="/", cwd="/", home="/"))
    )

    async def hear(*records):
        for record in records:
            hearing.take(
                OutputStream.OUT, json.dumps(record, separators=(",", ":")).encode() + b"\n"
            )
            await offering.heard(kept, hearing)

    await hear(*BEFORE)
    assert yard.data.count(b'"rest-1"') == 1
    assert await steer.put(message(5)) == 1
    await hear(ANSWER)
    assert not yard.ended
    await hear({"type": "agent_end", "messages": []})
    assert yard.ended
    assert steer.taken == 0
