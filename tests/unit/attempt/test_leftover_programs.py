"""An attempt is over when nothing of it is left, also not what an engine runs for it."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from rota.errors import Unavailable
from rota.flow.attempt import programs
from rota.flow.claim import make_assignments
from rota.flow.settle import settle_attempts
from rota.model.attempts import Lost, Succeeded
from rota.store.attempts import list_kept_attempts
from tests.unit.attempt.keeper_home_fake import FakeYard, assignment, work_on
from tests.unit.attempt.programs_fake import Counting


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

    def promise(self, seconds):
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
    assert "run.undiscarded" in caplog.text
    await renewed(work)
    assert (yard.forgotten, await desk.store.read(list_kept_attempts, yard.home)) == (
        [given.lease.run_id],
        [],
    )
