"""Reads that are asked for at the same time are made once, and never from before they were asked."""

import asyncio

import pytest

from rota.api.routes import RequestCoalescer


class Looker:
    """Looks when told to, and counts."""

    def __init__(self):
        self.begun = 0
        self.gate = asyncio.Event()
        self.fault = None

    async def look(self):
        self.begun += 1
        number = self.begun
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return number


async def soon():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_comes_meanwhile_shares_the_next_look():
    sharing, looker = RequestCoalescer(), Looker()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(sharing.ask("q", looker.look))
        await soon()
        others = [group.create_task(sharing.ask("q", looker.look)) for _ in range(10)]
        await soon()
        assert looker.begun == 1
        looker.gate.set()
    assert first.result() == 1
    assert {task.result() for task in others} == {2}
    assert looker.begun == 2


async def test_other_questions_are_looked_at_for_themselves():
    sharing, looker = RequestCoalescer(), Looker()
    looker.gate.set()
    assert [await sharing.ask(q, looker.look) for q in "abba"] == [1, 2, 3, 4]


async def test_a_fault_is_everybodys_and_the_next_look_is_a_new_one():
    sharing, looker = RequestCoalescer(), Looker()
    first = asyncio.ensure_future(sharing.ask("q", looker.look))
    await soon()
    second = asyncio.ensure_future(sharing.ask("q", looker.look))
    await soon()
    looker.fault = ValueError("no")
    looker.gate.set()
    for task in (first, second):
        with pytest.raises(ValueError, match="no"):
            await task
    looker.fault = None
    assert await sharing.ask("q", looker.look) == 3


async def test_a_caller_that_hangs_up_takes_nobody_with_it():
    sharing, looker = RequestCoalescer(), Looker()
    first = asyncio.ensure_future(sharing.ask("q", looker.look))
    await soon()
    waiting = [asyncio.ensure_future(sharing.ask("q", looker.look)) for _ in range(2)]
    await soon()
    first.cancel()
    waiting[0].cancel()
    looker.gate.set()
    assert await waiting[1] == 2
    assert sharing._waiting == {}
