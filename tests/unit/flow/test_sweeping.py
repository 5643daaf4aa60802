"""An attempt is over when nothing of it is left, also not what an engine runs for it."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.flow.kept_yard import FakeYard, assignment, work_on

from rota.errors import Unavailable
from rota.flow.execute import listening
from rota.flow.settle import settle_attempts
from rota.model.outcomes import Lost, Succeeded


class Clinging(FakeYard):
    """A yard whose engine lets go of an attempt only when it is asked often enough."""

    def __init__(self, times):
        super().__init__()
        self.times = times
        self.forgotten = []

    async def sweep(self, kept):
        await super().sweep(kept)
        if len(self.swept) <= self.times:
            raise Unavailable("the engine keeps a container")

    async def forget(self, kept):
        self.forgotten.append(kept.run_id)

    def promise(self, seconds):
        """Nobody keeps it here."""

    async def tidy(self, known):
        """Nothing lies about here."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(listening, "LOOK_SECONDS", 0.0)


async def test_an_attempt_is_over_only_when_nothing_of_it_is_left(desk, chance):
    yard = Clinging(2)
    given = await assignment(desk)
    yard.end(b"two\n")
    report = await work_on(desk.store, yard, chance).run(given)
    assert report.outcome == Succeeded(result='"two"')
    assert len(yard.swept) == 3


async def test_what_cannot_be_ended_is_lost_and_not_taken_for_done(desk, chance, monkeypatch):
    monkeypatch.setattr(listening, "SWEEP_SECONDS", -1.0)
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
    await work.renew()
    assert (yard.forgotten, len(await desk.store.kept_of(yard.home))) == ([], 1)
    await work.renew()
    assert (yard.forgotten, await desk.store.kept_of(yard.home)) == ([given.lease.run_id], [])
