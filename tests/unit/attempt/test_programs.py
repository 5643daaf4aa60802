"""Programs of attempts: started, ended and cleaned up on a machine that may refuse."""

from __future__ import annotations

import asyncio
import itertools
import json
from datetime import timedelta
from errno import EMFILE, ENOSPC
from random import Random

import pytest

from rota.errors import Unavailable
from rota.flow.attempt import programs
from rota.flow.attempt import programs as minding_module
from rota.flow.attempt.programs import ASKED_MICROS, GONE_ON, HAS_ASKED
from rota.flow.attempt.runner import UNHEARD
from rota.flow.claim import make_assignments
from rota.flow.settle import settle_attempts
from rota.model.attempts import Cancelled, Lost, Succeeded
from rota.model.budgets import BudgetCaps, BudgetScope
from rota.model.runs import RunState
from rota.model.tasks import TaskKind
from rota.store.attempt_requests import defer_operations
from rota.store.attempts import list_kept_attempts
from rota.store.budgets import set_budget
from rota.store.views import list_questions
from tests.tools.attempt_bench import Talk
from tests.unit.attempt.keeper_home_fake import (
    Counting,
    FakeYard,
    a_few_turns,
    assignment,
    leave,
    texts,
    work_on,
)

# a machine that refuses for a moment


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


# what is left of an attempt


class Clinging(FakeYard):
    """A yard whose engine lets go of an attempt only when it is asked often enough."""

    def __init__(self, times):
        super().__init__()
        self.times = times
        self.forgotten = []

    async def clean_up(self, kept):
        await super().clean_up(kept)
        if len(self.swept) <= self.times:
            raise Unavailable("the engine keeps a container")

    async def delete(self, kept):
        self.forgotten.append(kept.run_id)

    def extend_lease(self, seconds):
        """Nobody keeps it here."""

    async def delete_old(self, known):
        """Nothing lies about here."""


class Hanging(FakeYard):
    """A yard whose engine does not answer, once it hangs, until it is let."""

    def __init__(self):
        super().__init__()
        self.hangs = False
        self.hanging = 0
        self.answers = asyncio.Event()

    def close(self):
        """Nobody has it here."""

    async def clean_up(self, kept):
        if self.hangs:
            self.hanging += 1
            await self.answers.wait()
            self.hanging -= 1


async def renewed(work):
    """Renew a home, and wait for what that has begun."""
    await work.renew()
    await asyncio.gather(*work._discarding._going.values())


async def test_an_attempt_is_over_only_when_nothing_of_it_is_left(desk, chance):
    yard = Clinging(2)
    given = await assignment(desk)
    yard.end(b"two\n")
    report = await work_on(desk.store, yard, chance).run(given)
    assert report.outcome == Succeeded(result='"two"')
    assert len(yard.swept) == 3


async def test_what_cannot_be_ended_is_lost_and_not_taken_for_done(desk, chance, monkeypatch):
    monkeypatch.setattr(programs, "SWEEP_SECONDS", -1.0)
    yard = Clinging(1_000)
    given = await assignment(desk)
    yard.end(b"two\n")
    report = await work_on(desk.store, yard, chance).run(given)
    assert isinstance(report.outcome, Lost)
    assert "the engine keeps a container" in report.outcome.reason
    assert "could not be proven" in report.outcome.reason


async def test_an_attempt_of_which_something_is_left_is_not_forgotten(desk, chance):
    yard = Clinging(0)
    given = await assignment(desk)
    yard.end(b"two\n")
    work = work_on(desk.store, yard, chance)
    report = await work.run(given)
    await settle_attempts(desk.store, [(given, report)], Random(1))
    yard.times = len(yard.swept) + 1
    await renewed(work)
    assert (yard.forgotten, len(await desk.store.read(list_kept_attempts, yard.home))) == ([], 1)
    await renewed(work)
    assert (yard.forgotten, await desk.store.read(list_kept_attempts, yard.home)) == (
        [given.lease.run_id],
        [],
    )


async def test_an_engine_that_hangs_holds_nobody_up_who_is_to_be_carried_on(desk, chance):
    yard = Hanging()
    first = work_on(desk.store, yard, Counting())
    given = await assignment(desk)
    await desk.queue(given.task)
    for one in (given, *make_assignments(await desk.claimed(1), desk.store.database.incarnation)):
        yard.end(b"done\n")
        await settle_attempts(desk.store, [(one, await first.run(one))], Random(1))
    yard.hangs = True
    work = work_on(desk.store, yard, chance)
    async with asyncio.timeout(5):
        for _ in range(3):
            _, rows = await work.renew()
            await asyncio.sleep(0)
    assert len(rows) == 2
    assert (yard.hanging, yard.forgotten) == (1, [])
    yard.answers.set()
    await renewed(work)
    assert (sorted(yard.forgotten), await desk.store.read(list_kept_attempts, yard.home)) == (
        [1, 2],
        [],
    )


async def test_what_is_being_discarded_is_left_to_the_next_process_of_the_home(desk, chance):
    yard = Hanging()
    given = await assignment(desk)
    work = work_on(desk.store, yard, chance)
    yard.end(b"done\n")
    await settle_attempts(desk.store, [(given, await work.run(given))], Random(1))
    yard.hangs = True
    await work.renew()
    async with asyncio.timeout(5):
        await work.close()
    yard.answers.set()
    await asyncio.sleep(0)
    assert (yard.forgotten, len(await desk.store.read(list_kept_attempts, yard.home))) == ([], 1)


async def test_a_minute_of_an_engine_that_hangs_is_a_minute(desk, chance):
    yard = Clinging(1_000)
    yard.boot_time = lambda: 30.0 * len(yard.swept)
    given = await assignment(desk)
    yard.end(b"two\n")
    report = await work_on(desk.store, yard, chance).run(given)
    assert isinstance(report.outcome, Lost)
    assert len(yard.swept) == 2


class Remembering(Clinging):
    """A yard that knows which of its attempts are not swept, whatever the record says."""

    def __init__(self, times):
        super().__init__(times)
        self.dirty = {}

    async def start(self, kept, *rest):
        self.dirty[kept.epoch] = kept
        await super().start(kept, *rest)

    async def clean_up(self, kept):
        await super().clean_up(kept)
        self.dirty.pop(kept.epoch, None)

    async def find_uncleaned(self, known):
        told = {(kept.run_id, kept.epoch) for kept in known}
        return [kept for kept in self.dirty.values() if (kept.run_id, kept.epoch) not in told]


async def test_what_could_not_be_swept_still_is_when_a_later_attempt_has_its_place(
    desk, chance, monkeypatch
):
    monkeypatch.setattr(programs, "SWEEP_SECONDS", -1.0)
    yard = Remembering(1)
    given = await assignment(desk)
    work = work_on(desk.store, yard, chance)
    yard.end(b"one\n")
    report = await work.run(given)
    assert isinstance(report.outcome, Lost)
    await settle_attempts(desk.store, [(given, report)], Random(1))
    (again,) = make_assignments(
        await desk.claimed(1, routes=["script"]), desk.store.database.incarnation
    )
    await settle_attempts(desk.store, [(again, await work.run(again))], Random(1))
    assert list(yard.dirty) == [1]
    await renewed(work)
    assert (yard.dirty, await desk.store.read(list_kept_attempts, yard.home)) == ({}, [])


async def test_what_cannot_be_discarded_is_logged_and_tried_again(desk, chance, caplog):
    yard = FakeYard()
    given = await assignment(desk)
    work = work_on(desk.store, yard, chance)
    yard.end(b"done\n")
    await settle_attempts(desk.store, [(given, await work.run(given))], Random(1))
    forget, faults = yard.delete, [OSError("no descriptor")]

    async def once(kept):
        if faults:
            raise faults.pop()
        await forget(kept)

    yard.delete = once
    with pytest.raises(OSError, match="no descriptor"):
        await renewed(work)
    assert "attempt.discard_failed" in caplog.text
    await renewed(work)
    assert (yard.forgotten, await desk.store.read(list_kept_attempts, yard.home)) == (
        [given.lease.run_id],
        [],
    )


# programs that wait for an answer

OVERLOAD = b'{"rota": "error", "class": "overload", "message": "529 Overloaded"}\n'


async def asks(desk, given):
    talk = Talk(desk, given.task)
    await desk.store.write(defer_operations, await talk.speaker(given.lease), [talk.question()])


async def test_a_program_that_has_asked_and_goes_on_is_ended_and_its_run_waits(desk, chance):
    yard = FakeYard()
    given = await assignment(desk)
    work = work_on(desk.store, yard, chance)
    await work.open()
    going = asyncio.ensure_future(work.run(given))
    while not yard.started:
        await asyncio.sleep(0)
    await work.renew()
    await asks(desk, given)
    desk.clock.advance(timedelta(microseconds=ASKED_MICROS))
    await work.renew()
    assert yard.cancelled == []
    desk.clock.advance(seconds=1)
    await work.renew()
    assert yard.cancelled == [HAS_ASKED]
    report = await going
    assert all(await settle_attempts(desk.store, [(given, report)], chance))
    assert await desk.state(given.lease.run_id) is RunState.WAITING
    (question,) = await desk.store.read(list_questions, [given.lease.run_id])
    assert question.question == "Shall I?"


async def test_a_program_that_ends_its_turn_is_not_disturbed(desk, chance):
    yard = FakeYard()
    given = await assignment(desk)
    await asks(desk, given)
    yard.end(b"I have asked.\n")
    report = await work_on(desk.store, yard, chance).run(given)
    assert report.outcome == Succeeded(result='"I have asked."')
    assert all(await settle_attempts(desk.store, [(given, report)], chance))
    run = await desk.run(given.lease.run_id)
    assert (run.state, run.result) == (RunState.WAITING, None)


async def test_what_has_asked_is_not_tried_again_when_its_provider_refuses(desk, chance):
    yard = FakeYard()
    words = {"instructions": "Look.", "agent": "command", "output": "lines"}
    given = await assignment(desk, ("think",), kind=TaskKind.AGENT, **words)
    await asks(desk, given)
    yard.end(OVERLOAD, code=1)
    report = await work_on(desk.store, yard, chance).run(given)
    assert len(yard.started) == 1
    assert json.loads(report.exit)["code"] == 1
    assert all(await settle_attempts(desk.store, [(given, report)], chance))
    assert await desk.state(given.lease.run_id) is RunState.WAITING
