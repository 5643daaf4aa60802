"""Threads: registered, listed, asked for by a word, and looked at as a whole."""

from __future__ import annotations

import json

import pytest

from rota.errors import Conflict, NotFound
from rota.flow.define.threads import cancel_thread
from rota.model.runs import OpenRun, RunState
from rota.model.tasks import NewTask, Task, TaskKind
from rota.model.threads import (
    MAX_PASSING,
    MAX_PENDING,
    READER,
    MessageState,
    NewMessage,
    NewThread,
    Thread,
    ThreadMessage,
)
from rota.rules.permissions import LOCAL
from rota.store.settlement import disable_task
from rota.store.tasks import put_task
from rota.store.threads import (
    acknowledge_messages,
    add_message,
    assign_messages,
    get_thread,
    list_messages,
    list_open_runs_in_thread,
    pending_messages,
    put_thread,
)
from rota.testing.fakes import FixedChance
from tests.contract.store.conversing import HERE, talk
from tests.tools.store_bench import Bench

PENDING, GIVEN, TAKEN, PASSED, UNREAD = MessageState


async def agent(bench: Bench, name: str, thread: str | None = None, space: str = "main") -> Task:
    """Return an agent that answers in its thread."""
    owner = await bench.space(space)
    spec: dict[str, object] = {"instructions": "Talk.", "context": "group", "answers": True}
    wanted = NewTask(
        space_id=owner.id, name=name, kind=TaskKind.AGENT, route="agent", spec=spec, thread=thread
    )
    return await bench.store.write(put_task, wanted, None)


async def say(
    bench: Bench, task: Task, *texts: str, asks: bool = True, follow_up: bool = False
) -> list[ThreadMessage]:
    """Say something in the thread, with a reader or without."""
    reader = bench.batch(task, [dict(READER)], lane=HERE, thread=HERE) if asks else None
    said = [NewMessage(task.space_id, HERE, "ann", text, follow_up) for text in texts]
    return [await bench.store.write(add_message, message, reader) for message in said]


async def states(bench: Bench) -> list[tuple[str, MessageState]]:
    """Return what was said, and who has it."""
    found = await bench.store.read(list_messages, HERE, None, 1 << 62, 1_000)
    return [(message.body, message.state) for message in reversed(found)]


class ThreadContract:
    """What holds for conversations."""

    async def _put(self, bench: Bench, space: str = "main", **changes: object) -> Thread:
        owner = await bench.space(space)
        return await bench.store.write(put_thread, NewThread(owner.id, HERE, changes))

    async def test_g2_49_a_thread_is_registered_before_anybody_speaks(self, bench: Bench) -> None:
        assert await bench.store.read(get_thread, HERE) is None
        facts = {"members": 12, "odd": 'a "word" \u2028'}
        found = await self._put(bench, title="Family", trigger="@rota", facts=facts)
        assert (found.space, found.key, found.title) == ("main", HERE, "Family")
        assert (found.trigger, found.facts) == ("@rota", facts)
        assert (found.task, found.said_at, found.pending) == (None, None, 0)
        assert await bench.store.read(get_thread, HERE) == found

    async def test_what_is_not_said_of_a_thread_stays(self, bench: Bench) -> None:
        task = await agent(bench, "desk")
        first = await self._put(bench, title="Family", trigger="@rota", task_id=task.id)
        assert await self._put(bench) == first
        second = await self._put(bench, title="Home")
        assert (second.title, second.trigger, second.task) == ("Home", "@rota", "desk")
        third = await self._put(bench, trigger=None, task_id=None)
        assert (third.title, third.trigger, third.task) == ("Home", None, None)

    async def test_a_thread_of_another_space_cannot_be_taken(self, bench: Bench) -> None:
        first = await self._put(bench, title="Family")
        with pytest.raises(NotFound):
            await self._put(bench, "ann", title="Mine")
        assert await bench.store.read(get_thread, HERE) == first

    async def test_who_answers_is_the_registered_task_or_the_oldest_that_wants_to(
        self, bench: Bench
    ) -> None:
        oldest = await agent(bench, "oldest", HERE)
        await agent(bench, "younger", HERE)
        elsewhere = await agent(bench, "elsewhere", "talk:there")
        strange = await agent(bench, "strange", space="ann")
        assert (await self._put(bench)).task_id == oldest.id
        assert (await self._put(bench, task_id=elsewhere.id)).task == "elsewhere"
        assert (await self._put(bench, task_id=strange.id)).task == "oldest"
        await bench.store.write(disable_task, oldest, "tired", None, [])
        assert (await self._put(bench)).task == "younger"

    async def test_a_thread_tells_of_what_nobody_has_read(self, bench: Bench) -> None:
        here = await talk(bench)
        await say(bench, here.task, "one", "two")
        (found,) = [await bench.store.read(get_thread, HERE)]
        assert found is not None
        assert (found.pending, found.said_at) == (2, bench.clock.now())
        lease = await bench.claim_one()
        await bench.store.write(assign_messages, lease.run_id, lease.epoch, "w1")
        found = await bench.store.read(get_thread, HERE)
        assert found is not None
        assert found.pending == 0

    async def test_g2_08_what_asks_for_nobody_is_read_with_what_does(self, bench: Bench) -> None:
        here = await talk(bench)
        quiet = await say(bench, here.task, "one", "two", asks=False)
        assert [(one.reader, one.state) for one in quiet] == [(None, PENDING)] * 2
        assert (await bench.claimed()).leases == []
        assert await bench.store.read(pending_messages, HERE, "box", 10) == []
        await say(bench, here.task, "three")
        await say(bench, here.task, "four", asks=False)
        lease = await bench.claim_one()
        given = await bench.store.write(assign_messages, lease.run_id, lease.epoch, "w1")
        assert [one.body for one in given] == ["one", "two", "three", "four"]
        assert (await say(bench, here.task, "five", asks=False))[0].reader is None

    async def test_what_asks_for_nobody_is_passed_over_where_there_is_much(
        self, bench: Bench
    ) -> None:
        here = await talk(bench)
        words = [str(number) for number in range(MAX_PASSING + 2)]
        await say(bench, here.task, *words, asks=False)
        found = dict(await states(bench))
        assert [word for word in words if found[word] is PASSED] == ["0", "1"]
        await say(bench, here.task, *words[: MAX_PENDING - MAX_PASSING])
        with pytest.raises(Conflict):
            await say(bench, here.task, "one too many")
        (last,) = await say(bench, here.task, "chatter", asks=False)
        assert (last.reader, last.state) == (None, PASSED)

    async def test_jagc_43_a_follow_up_is_left_to_the_next_run(self, bench: Bench) -> None:
        here = await talk(bench)
        lease = await here.begin()
        (later,) = await say(bench, here.task, "later", follow_up=True)
        (now,) = await say(bench, here.task, "now")
        offered = await bench.store.read(pending_messages, HERE, "box", 10)
        assert [one.body for one in offered] == ["now"]
        assert await bench.store.write(acknowledge_messages, lease.run_id, lease.epoch, now.id) == 1
        assert await states(bench) == [("later", PENDING), ("now", TAKEN)]
        await bench.end(lease)
        following = await bench.claim_one()
        assert following.run_id == later.reader
        given = await bench.store.write(assign_messages, following.run_id, following.epoch, "w1")
        assert [one.body for one in given] == ["later"]

    async def _open(self, bench: Bench) -> list[OpenRun]:
        owner = await bench.space()
        return await bench.store.read(list_open_runs_in_thread, owner.id, HERE, 100)

    async def test_jagc_43_a_conversation_is_cancelled_as_a_whole(self, bench: Bench) -> None:
        here = await talk(bench)
        await bench.queue(here.task, lane=HERE, thread=HERE)
        waiting = await bench.claim_one()
        await bench.ask(waiting)
        running = await here.begin()
        (message,) = await say(bench, here.task, "one")
        there = await talk(bench, "talk:there", "there")
        (elsewhere,) = await bench.queue(there.task, lane="talk:there", thread="talk:there")
        thread = await bench.store.read(get_thread, HERE)
        assert thread is not None
        assert len(await self._open(bench)) == 3
        assert await cancel_thread(bench.store, LOCAL, thread, FixedChance()) == (2, 1)
        assert message.reader is not None
        for run_id in (message.reader, waiting.run_id):
            assert await bench.state(run_id) is RunState.CANCELLED
        asked = await bench.run(running.run_id)
        assert (asked.state, asked.cancel_requested_at is None) == (RunState.RUNNING, False)
        assert await bench.state(elsewhere) is RunState.QUEUED
        assert await cancel_thread(bench.store, LOCAL, thread, FixedChance()) == (0, 1)
        assert await states(bench) == [("one", UNREAD)]
        assert json.loads((await bench.run(message.reader)).payload) == READER
