"""Messages that nobody has read: told as unread where their reader has ended, in nobody's way."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import Conflict
from rota.flow.settle import running
from rota.model.attempts import Cancelled
from rota.model.runs import Lease, RunState
from rota.model.tasks import Retry, Task
from rota.model.threads import MAX_PENDING, READER, MessageState, NewMessage, ThreadMessage
from rota.store.plans import promote_delayed
from rota.store.settlement import request_cancel, settle
from rota.store.threads import add_message, assign_messages, list_messages
from rota.store.workers import prune_runs
from tests.tools.store_bench import Bench, failed

HERE = "cli:here"


class UnreadContract:
    """What becomes of what was said to a run that was cancelled."""

    async def _task(self, bench: Bench, retries: int = 0) -> Task:
        await bench.worker("w1", timedelta(days=2))
        return await bench.task(thread=HERE, retry=Retry(attempts=1 + retries))

    async def _say(self, bench: Bench, task: Task, text: str) -> ThreadMessage:
        reader = bench.batch(task, [dict(READER)], lane=HERE, thread=HERE)
        return await bench.store.write(
            add_message, NewMessage(task.space_id, HERE, "ann", text), reader
        )

    async def _states(self, bench: Bench) -> list[MessageState]:
        found = await bench.store.read(list_messages, HERE, None, 1 << 62, 200)
        return [message.state for message in reversed(found)]

    async def _cancel(self, bench: Bench, message: ThreadMessage) -> None:
        assert message.reader is not None
        assert await bench.end_open(message.reader, Cancelled(reason="never mind"))

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
        (message,) = await bench.store.read(list_messages, HERE, None, 1 << 62, 10)
        assert (message.state, message.run_id, message.read_at) == (
            MessageState.UNREAD,
            None,
            None,
        )
        await self._say(bench, task, "two")
        lease, bodies = await self._given(bench)
        assert bodies == ["one", "two"]
        assert await bench.end(lease, failed())
        assert await self._states(bench) == [MessageState.GIVEN] * 2

    async def test_it_goes_to_a_reader_that_waits_already(self, bench: Bench) -> None:
        task = await self._task(bench)
        await self._say(bench, task, "one")
        lease, _ = await self._given(bench)
        waiting = await self._say(bench, task, "two")
        assert await bench.end(lease, failed(), unbegun=True)
        assert await self._states(bench) == [MessageState.PENDING] * 2
        lease, bodies = await self._given(bench)
        assert (lease.run_id, bodies) == (waiting.reader, ["one", "two"])

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
        states = [MessageState.GIVEN, MessageState.UNREAD]
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
