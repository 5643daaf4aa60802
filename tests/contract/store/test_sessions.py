"""Sessions that threads go on in, and messages that are read once, in order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rota.errors import Conflict, NotFound
from rota.flow.define.runs import answer_question
from rota.model.attempts import (
    AgentSessionRef,
    Cancelled,
    KeptAttempt,
    NewEvent,
    OutputChunk,
    OutputStream,
    Relaunch,
)
from rota.model.events import EventName
from rota.model.runs import Lease, RunState
from rota.model.sessions import AgentSession, SessionFilter
from rota.model.tasks import Task
from rota.model.threads import (
    MAX_MESSAGE,
    MAX_PENDING,
    READER,
    MessageState,
    NewMessage,
    ThreadMessage,
)
from rota.rules.permissions import LOCAL
from rota.store.attempts import (
    list_kept_attempts,
    record_launch,
    record_output,
    renew_home_lease,
    schedule_relaunch,
)
from rota.store.sessions import (
    archive_session,
    clear_session,
    find_session,
    get_session,
    list_sessions,
    resume_session,
    search_sessions,
    session_history,
)
from rota.store.threads import (
    acknowledge_messages,
    add_message,
    assign_messages,
    find_mailbox_message,
    find_thread_space,
    list_messages,
    pending_messages,
    record_mailbox_number,
    requeue_reader,
)
from rota.store.views import list_workers
from rota.store.workers import prune_runs
from tests.tools.store_bench import Bench, failed, micros

HOME, HERE = "/home", "talk:here"
LONG = timedelta(days=40)
FIRST = AgentSessionRef("codex", "s-1", 11, 7)
PENDING, GIVEN, TAKEN, PASSED, _ = MessageState
EVERY = SessionFilter()


class _Talk:
    """A task in a thread, whose runs are under keepers."""

    def __init__(self, bench: Bench, task: Task) -> None:
        self.bench, self.store, self.task = bench, bench.store, task
        self.at: dict[int, int] = {}

    async def begin(self, said: str = "Look.", agent: str = "codex") -> Lease:
        """Begin a run in the thread's lane."""
        await self.bench.queue(self.task, lane=self.task.thread, thread=self.task.thread)
        return await self.keep(await self.bench.claim_one(), said, agent)

    async def keep(self, lease: Lease, said: str = "Look.", agent: str = "codex") -> Lease:
        kept = KeptAttempt(
            run_id=lease.run_id, epoch=lease.epoch, home=HOME, nonce="n", boot="b",
            executor="process", agent=agent, prompt_text=said,
        )  # fmt: skip
        assert await self.store.write(record_launch, kept, "w1")
        self.at[lease.run_id] = 0
        return lease

    async def tell(self, lease: Lease, session: AgentSessionRef) -> None:
        """Let an agent say which session it is in."""
        at = self.at[lease.run_id]
        self.at[lease.run_id] = at + 1
        heard = [OutputChunk(OutputStream.OUT, at, at + 1)]
        assert await self.store.write(
            record_output, lease.run_id, lease.epoch, "w1", heard, session
        )

    async def current(self, lease: Lease, agent: str = "codex") -> AgentSessionRef | None:
        """Return what a run would go on in as part of its thread."""
        return await self.store.read(find_session, lease.run_id, agent, shared=True, own=False)

    async def listed(self, wanted: SessionFilter = EVERY) -> list[AgentSession]:
        return await self.store.read(list_sessions, wanted)


async def talk(bench: Bench, thread: str | None = HERE, name: str = "job") -> _Talk:
    """Return a task in a thread, with a worker."""
    if not await bench.store.read(list_workers):
        await bench.worker("w1", LONG)
        await bench.store.write(renew_home_lease, HOME, "here", bench.store.now() + micros(LONG))
    return _Talk(bench, await bench.task(name, thread=thread))


class TestSessions:
    """What holds for the sessions of threads."""

    async def test_a_session_is_kept_with_what_was_heard(self, bench: Bench) -> None:
        here = await talk(bench)
        lease = await here.begin("Look at the\n  inbox.")
        gap = [OutputChunk(OutputStream.OUT, 3, 4)]
        assert not await here.store.write(
            record_output, lease.run_id, lease.epoch, "w1", gap, FIRST
        )
        assert await here.current(lease) is None
        await here.tell(lease, FIRST)
        assert await here.current(lease) == FIRST
        assert await here.current(lease, "claude") is None
        await here.tell(lease, FIRST._replace(input=20))
        (found,) = await here.listed()
        assert (found.thread, found.task, found.agent, found.name) == (HERE, None, "codex", "s-1")
        assert (found.title, found.input, found.runs) == ("Look at the inbox.", 20, 1)

    async def test_every_task_of_a_thread_goes_on_in_one_session(self, bench: Bench) -> None:
        here = await talk(bench)
        lease = await here.begin()
        await here.tell(lease, FIRST)
        await bench.end(lease)
        beside = await talk(bench, name="beside")
        assert await here.current(await beside.begin()) == FIRST
        for thread in ("talk:there", None):
            elsewhere = await talk(bench, thread, "elsewhere")
            assert await here.current(await elsewhere.begin()) is None

    async def test_a_task_without_a_thread_has_sessions_of_its_own(self, bench: Bench) -> None:
        alone, other = await talk(bench, None, "alone"), await talk(bench, None, "other")
        lease = await alone.begin()
        await alone.tell(lease, FIRST)
        await bench.end(lease)
        assert await other.current(await other.begin()) is None
        assert await alone.current(await alone.begin()) == FIRST
        (found,) = await alone.listed()
        assert (found.thread, found.task) == (None, "alone")

    async def test_a_new_session_takes_the_place_of_the_old_one(self, bench: Bench) -> None:
        here = await talk(bench)
        lease = await here.begin()
        await here.tell(lease, FIRST)
        await here.tell(lease, FIRST._replace(id="s-2"))
        newest, oldest = await here.listed()
        assert (newest.name, newest.archived_at, oldest.name) == ("s-2", None, "s-1")
        assert oldest.archived_at is not None

    async def test_a_session_that_is_called_otherwise_now_is_the_same(self, bench: Bench) -> None:
        here = await talk(bench)
        lease = await here.begin()
        await here.tell(lease, FIRST)
        await here.tell(lease, FIRST._replace(id="s-2", was="s-1"))
        (found,) = await here.listed()
        assert (found.name, found.archived_at) == ("s-2", None)

    async def test_an_isolated_one_is_kept_for_its_own_run_alone(self, bench: Bench) -> None:
        here = await talk(bench)
        lease = await here.begin()
        await here.tell(lease, FIRST._replace(shared=False))
        assert await here.current(lease) is None
        own = await here.store.read(find_session, lease.run_id, "codex", shared=False, own=True)
        assert own == FIRST._replace(shared=False)
        assert (
            await here.store.read(find_session, lease.run_id, "claude", shared=False, own=True)
            is None
        )

    async def test_one_that_was_put_aside_meanwhile_stays_aside(self, bench: Bench) -> None:
        here = await talk(bench)
        lease = await here.begin()
        await here.tell(lease, FIRST)
        (first,) = await here.listed()
        assert await here.store.write(archive_session, first.id, None)
        await here.tell(lease, FIRST._replace(input=99))
        assert await here.current(lease) is None
        await here.tell(lease, FIRST._replace(id="s-2"))
        (second, _) = await here.listed()
        assert await here.store.write(clear_session, second.id)
        await here.tell(lease, FIRST._replace(id="s-2", input=99))
        assert await here.current(lease) is None
        assert [(one.name, one.input) for one in await here.listed()] == [("s-1", 99)]

    async def test_a_lost_session_is_put_aside_with_the_try(self, bench: Bench) -> None:
        here = await talk(bench)
        lease = await here.begin()
        await here.tell(lease, FIRST)
        (kept,) = await here.store.read(list_kept_attempts, HOME)
        assert (kept.agent, kept.prompt_text) == ("codex", "Look.")
        paused = replace(kept, relaunch_at=here.store.now())
        why = NewEvent(EventName.AGENT_ERROR, {"kind": "session_lost"})
        assert await here.store.write(schedule_relaunch, Relaunch(paused, why, FIRST), "w1")
        assert await here.current(lease) is None

    async def test_an_archived_one_can_be_resumed(self, bench: Bench) -> None:
        here = await talk(bench)
        lease = await here.begin()
        await here.tell(lease, FIRST)
        await here.tell(lease, FIRST._replace(id="s-2"))
        second, first = await here.listed()
        assert await here.store.write(resume_session, first.id, "The second")
        assert await here.current(lease) == FIRST
        archived = await here.listed(SessionFilter(archived=True))
        assert [(one.id, one.title) for one in archived] == [(second.id, "The second")]
        assert await here.store.write(archive_session, first.id, "The first")
        assert await here.current(lease) is None
        assert await here.store.write(resume_session, first.id, None)
        assert await here.store.write(resume_session, first.id, None)
        (current,) = await here.listed(SessionFilter(archived=False))
        assert current.title == "The first"

    async def test_what_was_cleared_is_gone(self, bench: Bench) -> None:
        here, store = await talk(bench), bench.store
        lease = await here.begin("Find the kestrel.")
        await here.tell(lease, FIRST)
        (found,) = await here.listed()
        assert await store.write(clear_session, found.id)
        assert not await store.write(clear_session, found.id)
        assert not await store.write(archive_session, found.id, None)
        assert not await store.write(resume_session, found.id, None)
        assert await store.read(get_session, found.id) is None
        assert await here.listed() == []
        assert await store.read(session_history, found.id, 1 << 62, 10) == []
        assert await store.read(search_sessions, None, None, "kestrel", 10) == []

    async def test_what_was_said_can_be_read_and_found(self, bench: Bench) -> None:
        here, store = await talk(bench), bench.store
        first = await here.begin("Find the 100% Kestrel_nest.")
        await here.tell(first, FIRST)
        await bench.end(first)
        second = await here.begin("And now?")
        await here.tell(second, FIRST)
        (found,) = await here.listed(SessionFilter(space="main"))
        history = await store.read(session_history, found.id, 1 << 62, 10)
        assert [(one.run_id, one.prompt) for one in history] == [
            (second.run_id, "And now?"),
            (first.run_id, "Find the 100% Kestrel_nest."),
        ]
        assert [one.state for one in history] == ["running", "succeeded"]
        for words in ("kestrel_nest", "100%", "the"):
            assert [
                e.run_id for e in await store.read(search_sessions, "main", HERE, words, 9)
            ] == [first.run_id]
        assert await store.read(search_sessions, "main", None, "K%nest", 9) == []
        assert await store.read(search_sessions, "main", "talk:there", "kestrel", 9) == []
        assert await store.read(search_sessions, "other", None, "kestrel", 9) == []

    async def test_old_sessions_leave_with_their_runs(self, bench: Bench) -> None:
        here, store = await talk(bench), bench.store
        lease = await here.begin()
        await here.tell(lease, FIRST)
        await here.tell(lease, FIRST._replace(id="s-2"))
        await bench.end(lease)
        bench.clock.advance(timedelta(days=31))
        for _ in range(2):
            await store.write(prune_runs, store.now() - micros(timedelta(days=30)), 100)
        assert [(one.name, one.runs) for one in await here.listed()] == [("s-2", 0)]


class TestMessages:
    """What holds for messages in a thread."""

    async def _say(self, here: _Talk, *texts: str) -> list[ThreadMessage]:
        reader = here.bench.batch(here.task, [dict(READER)], lane=HERE, thread=HERE)
        return [
            await here.store.write(
                add_message, NewMessage(here.task.space_id, HERE, "ann", text), reader
            )
            for text in texts
        ]

    async def _states(self, here: _Talk) -> list[tuple[str, MessageState]]:
        found = await here.store.read(list_messages, HERE, None, 1 << 62, 100)
        return [(message.body, message.state) for message in reversed(found)]

    async def _given(self, here: _Talk, lease: Lease) -> list[str]:
        given = await here.store.write(assign_messages, lease.run_id, lease.epoch, "w1")
        return [message.body for message in given]

    async def test_messages_have_one_reader_and_keep_their_order(self, bench: Bench) -> None:
        here = await talk(bench)
        one, two = await self._say(here, "one", "two")
        assert (one.state, one.reader_run_id) == (PENDING, two.reader_run_id)
        lease = await bench.claim_one()
        assert (lease.run_id, lease.thread) == (one.reader_run_id, HERE)
        assert await self._given(here, lease) == ["one", "two"]
        assert await self._states(here) == [("one", GIVEN), ("two", GIVEN)]

    async def test_a_later_attempt_is_given_the_same_and_what_came_since(
        self, bench: Bench
    ) -> None:
        here = await talk(bench)
        await self._say(here, "one")
        first = await bench.claim_one()
        assert await self._given(here, first) == ["one"]
        await answer_question(bench.store, LOCAL, await bench.ask(first), "yes")
        (two,) = await self._say(here, "two")
        assert two.reader_run_id == first.run_id
        again = await bench.claim_one()
        assert await self._given(here, first) == []
        assert await self._given(here, again) == ["one", "two"]

    async def test_what_is_said_while_its_reader_runs_has_another_reader(
        self, bench: Bench
    ) -> None:
        here = await talk(bench)
        (one,) = await self._say(here, "one")
        lease = await bench.claim_one()
        assert await self._given(here, lease) == ["one"]
        (two,) = await self._say(here, "two")
        assert two.reader_run_id != one.reader_run_id
        assert (await bench.claimed()).leases == []
        await bench.end(lease)
        assert await self._given(here, await bench.claim_one()) == ["two"]

    async def test_whoever_is_claimed_and_has_not_asked_leaves_it_to_the_next(
        self, bench: Bench
    ) -> None:
        here = await talk(bench)
        await self._say(here, "one")
        lease = await bench.claim_one()
        await self._say(here, "two")
        assert await self._given(here, lease) == []
        await bench.end(lease, Cancelled(reason="nothing to read"))
        assert await self._given(here, await bench.claim_one()) == ["one", "two"]

    async def test_a_run_that_goes_on_takes_them_and_nobody_reads_them_again(
        self, bench: Bench
    ) -> None:
        here = await talk(bench)
        lease = await here.begin()
        one, two, three = await self._say(here, "one", "two", "three")
        assert await here.store.write(acknowledge_messages, lease.run_id, lease.epoch, two.id) == 2
        assert await here.store.write(acknowledge_messages, lease.run_id, lease.epoch, two.id) == 0
        assert await self._states(here) == [("one", TAKEN), ("two", TAKEN), ("three", PENDING)]
        left = await here.store.read(pending_messages, HERE, "box", 10)
        assert [message.id for message in left] == [three.id]
        await here.store.write(record_mailbox_number, three.id, "box", 7)
        assert await here.store.read(pending_messages, HERE, "box", 10) == []
        assert await here.store.read(pending_messages, HERE, "another", 10) == left
        assert await here.store.read(find_mailbox_message, "box", 7) == three.id
        assert await here.store.read(find_mailbox_message, "another", 7) is None
        assert await bench.state(one.reader_run_id or 0) is RunState.QUEUED
        assert (
            await here.store.write(acknowledge_messages, lease.run_id, lease.epoch, three.id) == 1
        )
        assert await bench.state(one.reader_run_id or 0) is RunState.CANCELLED
        await bench.end(lease)
        assert (await bench.claimed()).leases == []

    async def test_only_a_run_of_the_thread_that_goes_on_takes_them(self, bench: Bench) -> None:
        here = await talk(bench)
        lease = await here.begin()
        there = await talk(bench, "talk:there", "there")
        stranger, alone = await there.begin(), await (await talk(bench, None, "alone")).begin()
        (one,) = await self._say(here, "one")
        for run_id, epoch in (
            (stranger.run_id, stranger.epoch),
            (alone.run_id, alone.epoch),
            (lease.run_id, lease.epoch + 1),
        ):
            assert await here.store.write(acknowledge_messages, run_id, epoch, one.id) is None
        assert (
            await here.store.write(acknowledge_messages, lease.run_id, lease.epoch, one.id + 1)
            is None
        )
        await bench.end(lease)
        assert (
            await here.store.write(acknowledge_messages, lease.run_id, lease.epoch, one.id) is None
        )
        assert await self._states(here) == [("one", PENDING)]
        assert await self._given(here, await bench.claim_one()) == ["one"]

    async def test_one_whose_reader_failed_or_was_cancelled_is_read_with_the_next(
        self, bench: Bench
    ) -> None:
        here = await talk(bench)
        (one,) = await self._say(here, "one")
        lease = await bench.claim_one()
        await bench.end(lease, failed("agent_unavailable", "no such program"))
        (two,) = await self._say(here, "two")
        assert two.reader_run_id != one.reader_run_id
        assert await self._given(here, await bench.claim_one()) == ["one", "two"]

    async def test_a_run_that_does_it_again_reads_the_same(self, bench: Bench) -> None:
        here = await talk(bench)
        (one,) = await self._say(here, "one")
        lease = await bench.claim_one()
        await self._given(here, lease)
        await bench.end(lease, failed("other", "no answer"))
        batch = bench.batch(here.task, [dict(READER)])
        again = await here.store.write(requeue_reader, one.reader_run_id or 0, batch)
        assert again is not None
        assert await here.store.write(requeue_reader, one.reader_run_id or 0, batch) is None
        (two,) = await self._say(here, "two")
        assert two.reader_run_id == again
        lease = await bench.claim_one()
        assert (lease.run_id, lease.thread) == (again, HERE)
        assert await self._given(here, lease) == ["one", "two"]

    async def test_a_thread_of_another_space_is_not_there(self, bench: Bench) -> None:
        here = await talk(bench)
        await self._say(here, "one")
        other = await bench.task("other", space="ann")
        reader = bench.batch(other, [dict(READER)], lane=HERE, thread=HERE)
        with pytest.raises(NotFound):
            await bench.store.write(
                add_message, NewMessage(other.space_id, HERE, "eve", "two"), reader
            )
        assert await bench.store.read(find_thread_space, HERE) == here.task.space_id
        assert await bench.store.read(list_messages, HERE, "ann", 1 << 62, 9) == []
        assert await self._states(here) == [("one", PENDING)]

    async def test_no_more_waits_than_one_run_can_read(self, bench: Bench) -> None:
        here = await talk(bench)
        await self._say(here, *["x" * MAX_MESSAGE] * 8)
        with pytest.raises(Conflict, match="wait"):
            await self._say(here, "x" * MAX_MESSAGE)
        lease = await bench.claim_one()
        assert len(await self._given(here, lease)) == 8
        await self._say(here, *["x"] * MAX_PENDING)
        with pytest.raises(Conflict, match="wait"):
            await self._say(here, "x")

    async def test_what_was_read_leaves_in_time(self, bench: Bench) -> None:
        here, store = await talk(bench), bench.store
        await self._say(here, "one")
        await self._given(here, await bench.claim_one())
        await self._say(here, "two")
        bench.clock.advance(timedelta(days=31))
        await store.write(prune_runs, store.now() - micros(timedelta(days=30)), 100)
        assert await self._states(here) == [("two", PENDING)]
