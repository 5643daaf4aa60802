"""Threads and their messages: registered, listed, unread, with files."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta

import pytest

from rota.errors import Conflict, NotFound
from rota.flow.define.threads import cancel_thread
from rota.flow.settle import running
from rota.model.attempts import Cancelled
from rota.model.runs import Lease, OpenRun, RunState
from rota.model.tasks import NewTask, Retry, Task, TaskKind
from rota.model.threads import (
    MAX_FILES_BYTES,
    MAX_PASSING,
    MAX_PASSING_BYTES,
    MAX_PENDING,
    MAX_PENDING_BYTES,
    READER,
    MessageFile,
    MessageState,
    NewFile,
    NewMessage,
    NewThread,
    Thread,
    ThreadMessage,
)
from rota.rules.permissions import LOCAL
from rota.store.plans import promote_delayed
from rota.store.settlement import disable_task, request_cancel, settle
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
    read_message_file,
)
from rota.store.workers import MOST_PRUNED_BYTES, prune_runs
from rota.testing.fakes import FixedChance
from tests.contract.store.test_sessions import HERE, talk
from tests.tools.store_bench import Bench, failed

# threads

PENDING, GIVEN, TAKEN, PASSED, UNREAD = MessageState


async def agent(bench: Bench, name: str, thread: str | None = None, space: str = "main") -> Task:
    """Return an agent that answers in its thread."""
    owner = await bench.space(space)
    spec: dict[str, object] = {"instructions": "Talk.", "session": "shared", "answers": True}
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


class TestThreads:
    """What holds for conversations."""

    async def _put(self, bench: Bench, space: str = "main", **changes: object) -> Thread:
        owner = await bench.space(space)
        return await bench.store.write(put_thread, NewThread(owner.id, HERE, changes))

    async def test_g2_49_a_thread_is_registered_before_anybody_speaks(self, bench: Bench) -> None:
        assert await bench.store.read(get_thread, HERE) is None
        facts = {"members": 12, "odd": 'a "word" \u2028'}
        found = await self._put(bench, title="Family", trigger="@rota", metadata=facts)
        assert (found.space, found.key, found.title) == ("main", HERE, "Family")
        assert (found.trigger, found.metadata) == ("@rota", facts)
        assert (found.task, found.last_message_at, found.pending) == (None, None, 0)
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
        assert (found.pending, found.last_message_at) == (2, bench.clock.now())
        lease = await bench.claim_one()
        await bench.store.write(assign_messages, lease.run_id, lease.epoch, "w1")
        found = await bench.store.read(get_thread, HERE)
        assert found is not None
        assert found.pending == 0

    async def test_g2_08_what_asks_for_nobody_is_read_with_what_does(self, bench: Bench) -> None:
        here = await talk(bench)
        quiet = await say(bench, here.task, "one", "two", asks=False)
        assert [(one.reader_run_id, one.state) for one in quiet] == [(None, PENDING)] * 2
        assert (await bench.claimed()).leases == []
        assert await bench.store.read(pending_messages, HERE, "box", 10) == []
        await say(bench, here.task, "three")
        await say(bench, here.task, "four", asks=False)
        lease = await bench.claim_one()
        given = await bench.store.write(assign_messages, lease.run_id, lease.epoch, "w1")
        assert [one.body for one in given] == ["one", "two", "three", "four"]
        assert (await say(bench, here.task, "five", asks=False))[0].reader_run_id is None

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
        assert (last.reader_run_id, last.state) == (None, PASSED)

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
        assert following.run_id == later.reader_run_id
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
        assert message.reader_run_id is not None
        for run_id in (message.reader_run_id, waiting.run_id):
            assert await bench.state(run_id) is RunState.CANCELLED
        asked = await bench.run(running.run_id)
        assert (asked.state, asked.cancel_requested_at is None) == (RunState.RUNNING, False)
        assert await bench.state(elsewhere) is RunState.QUEUED
        assert await cancel_thread(bench.store, LOCAL, thread, FixedChance()) == (0, 1)
        assert await states(bench) == [("one", UNREAD)]
        assert json.loads((await bench.run(message.reader_run_id)).payload) == READER


# unread messages

CLI_HERE = "cli:here"


class TestUnread:
    """What becomes of what was said to a run that was cancelled."""

    async def _task(self, bench: Bench, retries: int = 0) -> Task:
        await bench.worker("w1", timedelta(days=2))
        return await bench.task(thread=CLI_HERE, retry=Retry(attempts=1 + retries))

    async def _say(self, bench: Bench, task: Task, text: str) -> ThreadMessage:
        reader = bench.batch(task, [dict(READER)], lane=CLI_HERE, thread=CLI_HERE)
        return await bench.store.write(
            add_message, NewMessage(task.space_id, CLI_HERE, "ann", text), reader
        )

    async def _states(self, bench: Bench) -> list[MessageState]:
        found = await bench.store.read(list_messages, CLI_HERE, None, 1 << 62, 200)
        return [message.state for message in reversed(found)]

    async def _cancel(self, bench: Bench, message: ThreadMessage) -> None:
        assert message.reader_run_id is not None
        assert await bench.end_open(message.reader_run_id, Cancelled(reason="never mind"))

    async def test_a_message_whose_reader_was_cancelled_is_told_as_unread(
        self, bench: Bench
    ) -> None:
        said = await self._say(bench, await self._task(bench), "one")
        assert await self._states(bench) == [MessageState.PENDING]
        await self._cancel(bench, said)
        assert await self._states(bench) == [MessageState.UNREAD]
        assert await bench.claim(1) == []

    async def test_it_goes_to_the_next_reader_of_the_thread(self, bench: Bench) -> None:
        task = await self._task(bench)
        await self._cancel(bench, await self._say(bench, task, "one"))
        await self._say(bench, task, "two")
        lease = await bench.claim_one()
        given = await bench.store.write(assign_messages, lease.run_id, lease.epoch, "w1")
        assert [message.body for message in given] == ["one", "two"]

    async def _given(self, bench: Bench) -> tuple[Lease, list[str]]:
        lease = await bench.claim_one()
        given = await bench.store.write(assign_messages, lease.run_id, lease.epoch, "w1")
        return lease, [message.body for message in given]

    async def test_what_a_run_was_given_that_never_began_goes_to_the_next_reader(
        self, bench: Bench
    ) -> None:
        task = await self._task(bench)
        await self._say(bench, task, "one")
        lease, _ = await self._given(bench)
        assert await bench.end(lease, failed(), unbegun=True)
        (message,) = await bench.store.read(list_messages, CLI_HERE, None, 1 << 62, 10)
        assert (message.state, message.run_id, message.read_at) == (
            MessageState.UNREAD,
            None,
            None,
        )
        await self._say(bench, task, "two")
        lease, bodies = await self._given(bench)
        assert bodies == ["one", "two"]
        assert await bench.end(lease, failed())
        assert await self._states(bench) == [MessageState.ASSIGNED] * 2

    async def test_it_goes_to_a_reader_that_waits_already(self, bench: Bench) -> None:
        task = await self._task(bench)
        await self._say(bench, task, "one")
        lease, _ = await self._given(bench)
        waiting = await self._say(bench, task, "two")
        assert await bench.end(lease, failed(), unbegun=True)
        assert await self._states(bench) == [MessageState.PENDING] * 2
        lease, bodies = await self._given(bench)
        assert (lease.run_id, bodies) == (waiting.reader_run_id, ["one", "two"])

    async def test_a_retry_is_told_it_and_what_began_is_not_told_to_others(
        self, bench: Bench
    ) -> None:
        task = await self._task(bench, retries=3)
        await self._say(bench, task, "one")
        for unbegun in (True, False):
            lease, bodies = await self._given(bench)
            assert bodies == ["one"]
            assert await bench.end(lease, failed(), unbegun=unbegun)
            bench.clock.advance(timedelta(minutes=30))
            await bench.store.write(promote_delayed, 10)
        await self._say(bench, task, "two")
        lease, bodies = await self._given(bench)
        assert bodies == ["one", "two"]
        assert await bench.end(lease, failed(retryable=False), unbegun=True)
        states = [MessageState.ASSIGNED, MessageState.UNREAD]
        assert await self._states(bench) == states, "an earlier attempt has read the first one"

    async def test_it_is_unread_too_where_the_run_was_to_be_stopped_meanwhile(
        self, bench: Bench
    ) -> None:
        await self._say(bench, await self._task(bench, retries=3), "one")
        lease, _ = await self._given(bench)
        settlement = await bench.decide(running(lease), failed(), unbegun=True)
        await bench.store.write(request_cancel, [lease.run_id], "cancelled by ann")
        assert await bench.store.write(settle, [settlement]) == [True]
        assert await bench.state(lease.run_id) is RunState.CANCELLED
        assert await self._states(bench) == [MessageState.UNREAD]

    async def test_what_nobody_will_read_keeps_nobody_from_saying_more(self, bench: Bench) -> None:
        task = await self._task(bench)
        for number in range(MAX_PENDING):
            said = await self._say(bench, task, str(number))
        with pytest.raises(Conflict):
            await self._say(bench, task, "too many")
        await self._cancel(bench, said)
        await self._say(bench, task, "at last")
        lease = await bench.claim_one()
        given = await bench.store.write(assign_messages, lease.run_id, lease.epoch, "w1")
        assert [given[0].body, given[-1].body] == ["1", "at last"]
        assert len(given) == MAX_PENDING
        assert (await self._states(bench))[0] is MessageState.UNREAD

    async def test_what_stayed_unread_leaves_with_retention_and_what_waits_stays(
        self, bench: Bench
    ) -> None:
        task = await self._task(bench)
        await self._cancel(bench, await self._say(bench, task, "one"))
        bench.clock.advance(timedelta(days=1))
        await bench.store.write(prune_runs, bench.store.now(), 100)
        assert await self._states(bench) == []
        await self._say(bench, task, "two")
        bench.clock.advance(timedelta(days=1))
        await bench.store.write(prune_runs, bench.store.now(), 100)
        assert await self._states(bench) == [MessageState.PENDING]


# files of messages

ODD = bytes(range(256)) + b"\x00\xff'\\"


def file_of(content: bytes, name: str = "a.bin", mimetype: str = "image/png") -> NewFile:
    """Return a file that somebody sends."""
    digest = hashlib.sha256(content).hexdigest()
    return NewFile(MessageFile(name, mimetype, len(content), digest), content)


class TestMessageFiles:
    """What becomes of what people send beside their words."""

    async def _task(self, bench: Bench) -> Task:
        await bench.worker("w1", timedelta(days=2))
        return await bench.task(thread=CLI_HERE)

    async def _say(
        self, bench: Bench, task: Task, *files: NewFile, text: str = "", asks: bool = True
    ) -> ThreadMessage:
        reader = bench.batch(task, [dict(READER)], lane=CLI_HERE, thread=CLI_HERE) if asks else None
        message = NewMessage(task.space_id, CLI_HERE, "ann", text, files=files)
        return await bench.store.write(add_message, message, reader)

    async def _all(self, bench: Bench) -> list[ThreadMessage]:
        return list(reversed(await bench.store.read(list_messages, CLI_HERE, None, 1 << 62, 200)))

    async def test_files_are_listed_in_their_order_and_read_as_they_were_sent(
        self, bench: Bench
    ) -> None:
        task = await self._task(bench)
        sent = (file_of(ODD, "b.png"), file_of(b"", "a é \u202f'\".txt", "text/plain"))
        said = await self._say(bench, task, *sent, text="look")
        plain = await self._say(bench, task, text="and more")
        assert said.files == tuple(file.metadata for file in sent)
        assert [message.files for message in await self._all(bench)] == [said.files, ()]
        store = bench.store
        assert [await store.read(read_message_file, said.id, at) for at in range(3)] == [
            ODD,
            b"",
            None,
        ]
        assert await store.read(read_message_file, plain.id, 0) is None

    async def test_who_reads_is_told_of_them_and_again_at_a_later_attempt(
        self, bench: Bench
    ) -> None:
        said = await self._say(bench, await self._task(bench), file_of(ODD))
        pending = await bench.store.read(pending_messages, CLI_HERE, "box", 10)
        lease = await bench.claim_one()
        for _ in range(2):
            given = await bench.store.write(assign_messages, lease.run_id, lease.epoch, "w1")
            assert [message.files for message in [*given, *pending]] == [said.files] * 2

    async def test_what_is_long_and_listed_in_one_step_keeps_its_files(self, bench: Bench) -> None:
        task = await self._task(bench)
        for number in range(40):
            await self._say(bench, task, file_of(b"%d" % number, f"{number}.txt"))
        for _ in range(2):
            found = await self._all(bench)
            assert [message.files[0].name for message in found] == [f"{n}.txt" for n in range(40)]

    async def test_so_many_bytes_wait_in_a_thread_and_no_more(self, bench: Bench) -> None:
        task = await self._task(bench)
        full = file_of(bytes(MAX_FILES_BYTES))
        for _ in range(MAX_PENDING_BYTES // MAX_FILES_BYTES):
            said = await self._say(bench, task, full)
        with pytest.raises(Conflict, match="wait in cli:here to be read"):
            await self._say(bench, task, file_of(b"x"))
        await self._say(bench, task, text="words are welcome")
        assert said.reader_run_id is not None
        assert await bench.end_open(said.reader_run_id, Cancelled(reason="never mind"))
        await self._say(bench, task, file_of(b"x"), text="at last")
        lease = await bench.claim_one()
        given = await bench.store.write(assign_messages, lease.run_id, lease.epoch, "w1")
        assert sum(file.size for message in given for file in message.files) <= MAX_PENDING_BYTES
        assert [message.body for message in given[-2:]] == ["words are welcome", "at last"]

    async def test_of_what_is_passed_over_only_what_it_was_is_kept(self, bench: Bench) -> None:
        task = await self._task(bench)
        half = file_of(bytes(MAX_PASSING_BYTES // 2))
        first = await self._say(bench, task, half, asks=False)
        last = [await self._say(bench, task, half, asks=False) for _ in range(2)]
        states = [message.state for message in await self._all(bench)]
        assert states == [MessageState.SKIPPED, MessageState.PENDING, MessageState.PENDING]
        assert await bench.store.read(read_message_file, first.id, 0) is None
        assert await bench.store.read(read_message_file, last[1].id, 0) == half.content
        assert (await self._all(bench))[0].files == (half.metadata,)

    async def test_one_that_finds_no_room_and_asks_for_nobody_leaves_no_content(
        self, bench: Bench
    ) -> None:
        task = await self._task(bench)
        full = file_of(bytes(MAX_FILES_BYTES))
        for _ in range(MAX_PENDING_BYTES // MAX_FILES_BYTES):
            await self._say(bench, task, full)
        said = await self._say(bench, task, file_of(b"x"), asks=False)
        assert said.state is MessageState.SKIPPED
        assert await bench.store.read(read_message_file, said.id, 0) is None

    async def test_they_leave_with_their_message(self, bench: Bench) -> None:
        task = await self._task(bench)
        said = await self._say(bench, task, file_of(ODD))
        assert said.reader_run_id is not None
        assert await bench.end_open(said.reader_run_id, Cancelled(reason="never mind"))
        bench.clock.advance(timedelta(days=1))
        await bench.store.write(prune_runs, bench.store.now(), 100)
        assert await self._all(bench) == []
        assert await bench.store.read(read_message_file, said.id, 0) is None

    async def test_so_many_bytes_leave_at_once_that_nobody_waits_long(self, bench: Bench) -> None:
        task = await self._task(bench)
        full, known = file_of(bytes(MAX_FILES_BYTES)), MOST_PRUNED_BYTES // MAX_FILES_BYTES
        for _ in range(known + 1):
            said = await self._say(bench, task, full)
            assert said.reader_run_id is not None
            assert await bench.end_open(said.reader_run_id, Cancelled(reason="never mind"))
        bench.clock.advance(timedelta(days=1))
        for left in (1, 0):
            await bench.store.write(prune_runs, bench.store.now(), 100)
            assert len(await self._all(bench)) == left
