"""Programs on a machine that refuses for a moment: none is set free, and none is ended for it."""

from __future__ import annotations

import asyncio
import itertools
from errno import EMFILE, ENOSPC

import pytest

from rota.flow.attempt import programs as minding_module
from rota.flow.attempt.programs import ASKED_MICROS, GONE_ON, HAS_ASKED
from rota.flow.attempt.runner import UNHEARD
from rota.model.attempts import Cancelled, Succeeded
from rota.model.budgets import BudgetCaps, BudgetScope
from rota.store.attempt_requests import defer_operations
from rota.store.budgets import set_budget
from tests.tools.attempt_bench import Talk
from tests.unit.attempt.keeper_home_fake import (
    FakeYard,
    a_few_turns,
    assignment,
    leave,
    texts,
    work_on,
)


class Full(FakeYard):
    """A yard whose disk is full for the first so many wishes."""

    def __init__(self, times=2):
        super().__init__()
        self.times = times
        self.refused = []

    def cancel(self, kept, grace_seconds, why):
        if len(self.refused) < self.times:
            self.refused.append(why)
            raise OSError(ENOSPC, "No space left on device")
        super().cancel(kept, grace_seconds, why)


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def heard(desk, chance, yard, given=None):
    """Return kept work, an attempt of it, and the task in which that is heard."""
    given = given or await assignment(desk)
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    await until(lambda: yard.looks)
    return work, given, running


async def left_alone(desk, chance, yard):
    """Return kept work with an attempt whose run has gone on without it, and which lives."""
    work, given, running = await heard(desk, chance, yard)
    await leave(work, given, running)
    await desk.end_open(given.lease.run_id, Succeeded())
    return work, given


async def test_who_cannot_be_asked_to_end_is_asked_until_it_has(desk, chance):
    yard = Full()
    _, _, running = await heard(desk, chance, yard)
    running.cancel()
    await until(running.done)
    assert isinstance(running.result().outcome, Cancelled)
    assert (yard.refused, yard.cancelled) == (["cancelled"] * 2, ["cancelled"])


async def test_who_has_ended_without_being_asked_is_asked_no_more(desk, chance):
    yard = Full(times=1_000)
    _, _, running = await heard(desk, chance, yard)
    running.cancel()
    await until(lambda: len(yard.refused) > 1)
    yard.end(b"done\n")
    await until(running.done)
    assert isinstance(running.result().outcome, Cancelled)
    asked = len(yard.refused)
    await a_few_turns()
    assert len(yard.refused) == asked


async def test_a_home_that_is_let_go_asks_nobody_any_more(desk, chance, monkeypatch):
    monkeypatch.setattr(minding_module, "RETRY_SECONDS", 0.01)
    yard = Full(times=1_000)
    yard.close = lambda: None
    work, given, running = await heard(desk, chance, yard)
    running.cancel()
    await until(lambda: yard.refused)
    await leave(work, given, running)
    await work.close()
    assert work._minding._unasked == {}


async def test_a_full_disk_keeps_no_home_from_being_renewed(desk, chance):
    yard = Full()
    work, given = await left_alone(desk, chance, yard)
    _, (row,) = await work.renew()
    assert (row.run_id, list(yard.known)) == (given.lease.run_id, [row])
    await until(lambda: yard.cancelled == [GONE_ON])


async def test_a_full_disk_leaves_nobody_going_on_who_has_asked(desk, chance):
    yard = Full()
    work, given, running = await heard(desk, chance, yard)
    talk = Talk(desk, given.task)
    await desk.store.write(defer_operations, await talk.speaker(given.lease), [talk.question()])
    desk.clock.advance(seconds=ASKED_MICROS // 1_000_000 + 1)
    await work.renew()
    await until(running.done)
    assert yard.cancelled == [HAS_ASKED]


async def test_a_full_disk_leaves_nobody_going_on_at_its_budget(desk, chance):
    yard = Full()
    given = await assignment(desk)
    cap = BudgetCaps(seconds=1)
    await desk.store.write(set_budget, BudgetScope.RUN, given.lease.task_id, cap, "me")
    _, _, running = await heard(desk, chance, yard, given)
    desk.clock.advance(seconds=2)
    await until(running.done)
    assert [why.split(":")[0] for why in yard.cancelled] == ["budget"]


class Unreadable(FakeYard):
    """A yard where, after so many looks into files, the next so many find no descriptor."""

    def __init__(self, after=0, times=0):
        super().__init__()
        self.after, self.times = after, times

    def _open(self):
        if self.after > 0:
            self.after -= 1
        elif self.times > 0:
            self.times -= 1
            raise OSError(EMFILE, "Too many open files")

    def read_output(self, kept, stream, offset, most):
        self._open()
        return super().read_output(kept, stream, offset, most)

    def read_result(self, assignment):
        self._open()
        return super().read_result(assignment)


async def test_a_moment_without_descriptors_costs_no_program_its_life(desk, chance):
    yard = Unreadable()
    _, given, running = await heard(desk, chance, yard)
    yard.out, yard.times = b"news\n", 3
    yard.bell.set()
    await until(lambda: yard.times == 0)
    yard.end(b"done\n")
    report = await running
    assert (report.outcome, yard.cancelled) == (Succeeded(result='"done"'), [])
    assert await texts(desk, given.lease.run_id) == ["news", "done"]


@pytest.mark.parametrize("after", range(6))
async def test_a_moment_without_descriptors_costs_no_word_of_what_has_ended(desk, chance, after):
    yard = Unreadable(after, times=1)
    given = await assignment(desk)
    yard.left, yard.err = b'{"paid": 3}', b"last words\n"
    yard.end(b"done\n")
    report = await work_on(desk.store, yard, chance).run(given)
    assert report.outcome == Succeeded(result='{"paid": 3}')
    assert await texts(desk, given.lease.run_id) == ["done", "last words"]
    assert yard.times == 0


async def test_what_can_be_read_no_more_is_given_up_once_its_program_has_ended(desk, chance):
    yard = Unreadable()
    _, _, running = await heard(desk, chance, yard)
    yard.boot_time, yard.times = itertools.count(step=10.0).__next__, 1_000_000
    yard.bell.set()
    await until(lambda: yard.boot_time() > 10 * minding_module.READ_SECONDS)
    assert (running.done(), yard.cancelled) == (False, [])
    yard.end(b"done\n")
    await until(running.done)
    assert "cannot be read" in running.result().outcome.message
    assert (yard.cancelled, yard.swept) == ([], [1])


async def test_what_cannot_be_heard_is_swept_before_it_is_given_up(desk, chance, monkeypatch):
    yard = FakeYard()
    given = await assignment(desk)

    def broken(*_):
        raise RuntimeError

    monkeypatch.setattr(yard, "read_output", broken)
    with pytest.raises(RuntimeError):
        await work_on(desk.store, yard, chance).run(given)
    assert (yard.cancelled, yard.swept) == ([UNHEARD], [given.lease.run_id])
