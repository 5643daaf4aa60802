"""Group commit: callers that come together share a write, and nobody's fault is another's."""

import asyncio

import pytest

from rota.errors import Unavailable
from rota.store.transactions import WORTH_SHARING, GroupCommit


class Disk:
    """Notes each batch, and writes it when it is told to."""

    def __init__(self):
        self.batches = []
        self.most_at_once = 0
        self.flying = 0
        self.go = asyncio.Event()

    async def write(self, items):
        self.batches.append(list(items))
        self.flying += 1
        self.most_at_once = max(self.most_at_once, self.flying)
        try:
            await self.go.wait()
            await asyncio.sleep(0)
        finally:
            self.flying -= 1
        for item in items:
            if isinstance(item, Exception):
                raise item
        return [f"wrote {item}" for item in items]


async def settle_down():
    for _ in range(20):
        await asyncio.sleep(0)


async def put_all(joiner, items):
    callers = [asyncio.ensure_future(joiner.put([item])) for item in items]
    await settle_down()
    return callers


async def test_who_waits_while_one_writes_shares_the_next_write():
    disk = Disk()
    joiner = GroupCommit(disk.write, 100)
    callers = await put_all(joiner, range(40))
    disk.go.set()
    assert await asyncio.gather(*callers) == [[f"wrote {n}"] for n in range(40)]
    assert disk.batches == [[0], list(range(1, 40))]
    assert disk.most_at_once == 1


async def test_two_writers_share_what_waits():
    disk = Disk()
    joiner = GroupCommit(disk.write, 100, writers=2)
    first = await put_all(joiner, [0])
    rest = [asyncio.ensure_future(joiner.put([n])) for n in range(1, 2 * WORTH_SHARING + 1)]
    await asyncio.sleep(0)
    disk.go.set()
    await settle_down()
    assert await asyncio.gather(*first, *rest) == [[f"wrote {n}"] for n in range(len(rest) + 1)]
    assert [len(batch) for batch in disk.batches] == [1, WORTH_SHARING, WORTH_SHARING]
    assert disk.most_at_once == 2


async def test_few_do_not_call_a_second_writer():
    disk = Disk()
    joiner = GroupCommit(disk.write, 100, writers=2)
    callers = await put_all(joiner, range(2 * WORTH_SHARING))
    disk.go.set()
    await asyncio.gather(*callers)
    assert [len(batch) for batch in disk.batches] == [1, 2 * WORTH_SHARING - 1]


async def test_the_fault_of_one_is_not_that_of_the_others():
    disk = Disk()
    joiner = GroupCommit(disk.write, 100)
    callers = await put_all(joiner, [0, 1, ValueError("bad"), 3])
    disk.go.set()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, list, ValueError, list]


async def test_nothing_is_written_twice_when_the_database_was_lost():
    disk = Disk()
    joiner = GroupCommit(disk.write, 100)
    callers = await put_all(joiner, [0, 1, Unavailable("gone"), 3])
    disk.go.set()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, Unavailable, Unavailable, Unavailable]
    assert len(disk.batches) == 2


@pytest.mark.parametrize("writers", [1, 2])
async def test_closing_waits_for_everything_that_was_put(writers):
    disk = Disk()
    joiner = GroupCommit(disk.write, 10, writers=writers)
    callers = await put_all(joiner, range(100))
    closing = asyncio.ensure_future(joiner.close())
    disk.go.set()
    await asyncio.gather(*callers)
    await closing
    assert sorted(n for batch in disk.batches for n in batch) == list(range(100))
    assert disk.flying == 0


async def test_a_caller_that_gives_up_takes_nobody_with_it():
    disk = Disk()
    joiner = GroupCommit(disk.write, 100)
    callers = await put_all(joiner, range(4))
    callers[2].cancel()
    disk.go.set()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(answer) for answer in answers[:2]] == [list, list]
    assert isinstance(answers[2], asyncio.CancelledError)
    assert answers[3] == ["wrote 3"]
