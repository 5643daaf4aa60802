"""Files of messages: there with their message or not at all, and gone with it."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import pytest

from rota.errors import Conflict
from rota.model.attempts import Cancelled
from rota.model.tasks import Task
from rota.model.threads import (
    MAX_FILES_BYTES,
    MAX_PASSING_BYTES,
    MAX_PENDING_BYTES,
    READER,
    MessageFile,
    MessageState,
    NewFile,
    NewMessage,
    ThreadMessage,
)
from rota.store.threads import (
    add_message,
    assign_messages,
    list_messages,
    pending_messages,
    read_message_file,
)
from rota.store.workers import MOST_PRUNED_BYTES, prune_runs
from tests.tools.store_bench import Bench

HERE = "cli:here"
ODD = bytes(range(256)) + b"\x00\xff'\\"


def file_of(content: bytes, name: str = "a.bin", mimetype: str = "image/png") -> NewFile:
    """Return a file that somebody sends."""
    digest = hashlib.sha256(content).hexdigest()
    return NewFile(MessageFile(name, mimetype, len(content), digest), content)


class MessageFilesContract:
    """What becomes of what people send beside their words."""

    async def _task(self, bench: Bench) -> Task:
        await bench.worker("w1", timedelta(days=2))
        return await bench.task(thread=HERE)

    async def _say(
        self, bench: Bench, task: Task, *files: NewFile, text: str = "", asks: bool = True
    ) -> ThreadMessage:
        reader = bench.batch(task, [dict(READER)], lane=HERE, thread=HERE) if asks else None
        message = NewMessage(task.space_id, HERE, "ann", text, files=files)
        return await bench.store.write(add_message, message, reader)

    async def _all(self, bench: Bench) -> list[ThreadMessage]:
        return list(reversed(await bench.store.read(list_messages, HERE, None, 1 << 62, 200)))

    async def test_files_are_listed_in_their_order_and_read_as_they_were_sent(
        self, bench: Bench
    ) -> None:
        task = await self._task(bench)
        sent = (file_of(ODD, "b.png"), file_of(b"", "a é \u202f'\".txt", "text/plain"))
        said = await self._say(bench, task, *sent, text="look")
        plain = await self._say(bench, task, text="and more")
        assert said.files == tuple(file.facts for file in sent)
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
        pending = await bench.store.read(pending_messages, HERE, "box", 10)
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
        assert said.reader is not None
        assert await bench.end_open(said.reader, Cancelled(reason="never mind"))
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
        assert states == [MessageState.PASSED, MessageState.PENDING, MessageState.PENDING]
        assert await bench.store.read(read_message_file, first.id, 0) is None
        assert await bench.store.read(read_message_file, last[1].id, 0) == half.content
        assert (await self._all(bench))[0].files == (half.facts,)

    async def test_one_that_finds_no_room_and_asks_for_nobody_leaves_no_content(
        self, bench: Bench
    ) -> None:
        task = await self._task(bench)
        full = file_of(bytes(MAX_FILES_BYTES))
        for _ in range(MAX_PENDING_BYTES // MAX_FILES_BYTES):
            await self._say(bench, task, full)
        said = await self._say(bench, task, file_of(b"x"), asks=False)
        assert said.state is MessageState.PASSED
        assert await bench.store.read(read_message_file, said.id, 0) is None

    async def test_they_leave_with_their_message(self, bench: Bench) -> None:
        task = await self._task(bench)
        said = await self._say(bench, task, file_of(ODD))
        assert said.reader is not None
        assert await bench.end_open(said.reader, Cancelled(reason="never mind"))
        bench.clock.advance(timedelta(days=1))
        await bench.store.write(prune_runs, bench.store.now(), 100)
        assert await self._all(bench) == []
        assert await bench.store.read(read_message_file, said.id, 0) is None

    async def test_so_many_bytes_leave_at_once_that_nobody_waits_long(self, bench: Bench) -> None:
        task = await self._task(bench)
        full, known = file_of(bytes(MAX_FILES_BYTES)), MOST_PRUNED_BYTES // MAX_FILES_BYTES
        for _ in range(known + 1):
            said = await self._say(bench, task, full)
            assert said.reader is not None
            assert await bench.end_open(said.reader, Cancelled(reason="never mind"))
        bench.clock.advance(timedelta(days=1))
        for left in (1, 0):
            await bench.store.write(prune_runs, bench.store.now(), 100)
            assert len(await self._all(bench)) == left
