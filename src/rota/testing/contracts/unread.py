"""Messages whose reader has ended: they are told as unread, and are in nobody's way."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import Conflict
from rota.model.messages import MOST_PENDING, READER, MessageState, NewMessage, ThreadMessage
from rota.model.outcomes import Cancelled
from rota.model.tasks import Task
from rota.testing.bench import Bench

HERE = "cli:here"


class UnreadContract:
    """What becomes of what was said to a run that was cancelled."""

    async def _task(self, bench: Bench) -> Task:
        await bench.worker("w1", timedelta(days=2))
        return await bench.task(thread=HERE)

    async def _say(self, bench: Bench, task: Task, text: str) -> ThreadMessage:
        reader = bench.batch(task, [dict(READER)], lane=HERE, thread=HERE)
        return await bench.store.say(NewMessage(task.space_id, HERE, "ann", text), reader)

    async def _states(self, bench: Bench) -> list[MessageState]:
        found = await bench.store.list_messages(HERE, None, 1 << 62, 200)
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
        given = await bench.store.give_messages(lease.run_id, lease.epoch, "w1")
        assert [message.body for message in given] == ["one", "two"]

    async def test_what_nobody_will_read_keeps_nobody_from_saying_more(self, bench: Bench) -> None:
        task = await self._task(bench)
        for number in range(MOST_PENDING):
            said = await self._say(bench, task, str(number))
        with pytest.raises(Conflict):
            await self._say(bench, task, "too many")
        await self._cancel(bench, said)
        await self._say(bench, task, "at last")
        lease = await bench.claim_one()
        given = await bench.store.give_messages(lease.run_id, lease.epoch, "w1")
        assert [given[0].body, given[-1].body] == ["1", "at last"]
        assert len(given) == MOST_PENDING
        assert (await self._states(bench))[0] is MessageState.UNREAD

    async def test_what_stayed_unread_leaves_with_retention_and_what_waits_stays(
        self, bench: Bench
    ) -> None:
        task = await self._task(bench)
        await self._cancel(bench, await self._say(bench, task, "one"))
        bench.clock.advance(timedelta(days=1))
        await bench.store.prune(bench.store.now(), 100)
        assert await self._states(bench) == []
        await self._say(bench, task, "two")
        bench.clock.advance(timedelta(days=1))
        await bench.store.prune(bench.store.now(), 100)
        assert await self._states(bench) == [MessageState.PENDING]
