"""Time in which no process was there is no time of an attempt that is carried on."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.model.attempts import KeptAttempt, Succeeded
from rota.model.tasks import Policy
from rota.store.attempts import record_launch
from tests.unit.attempt.keeper_home_fake import assignment, work_on
from tests.unit.attempt.programs_fake import Counting, ManyYard

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("facts", "away", "left"),
    [
        ({}, 65, 15.0),  # killed between writing it down and starting its program
        ({"tries": 1, "until": 5}, 60, 10.0),  # killed while it waited for its next try
    ],
)
async def test_what_is_carried_on_later_has_all_the_time_that_is_left(
    desk, clock, facts, away, left
):
    given = await assignment(desk, policy=Policy(timeout=timedelta(seconds=15)))
    yard, began = ManyYard({"out": b"done\n"}), desk.store.now()
    told = dict(facts)
    if "until" in told:
        told["until"] = began + told["until"] * SECOND
    kept = KeptAttempt(
        run_id=given.lease.run_id, epoch=given.lease.epoch, home=yard.home, nonce="n",
        boot=yard.boot, executor="process", began=began, **told,
    )  # fmt: skip
    assert await desk.store.write(record_launch, kept, "w1")
    clock.advance(timedelta(seconds=65))
    report = await work_on(desk.store, yard, Counting()).run(given._replace(kept=kept))
    assert report.outcome == Succeeded(result='"done"')
    assert (report.away, yard.bounds.hard_seconds) == (away * SECOND, left)
