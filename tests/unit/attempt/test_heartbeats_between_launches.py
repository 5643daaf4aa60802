"""Signs of life between two programs of an attempt: it waits, or is looked at, and is no less alive."""

from __future__ import annotations

import asyncio

from rota.model.attempts import Succeeded
from tests.unit.attempt.keeper_home_fake import assignment, work_on
from tests.unit.attempt.programs_fake import Counting, ManyYard
from tests.unit.attempt.test_checks import Eyes
from tests.unit.attempt.test_relaunch import DONE, OVERLOAD, House, Trial, agent_run, said


async def test_an_attempt_that_waits_between_two_tries_is_told_of(desk):
    seen = []

    class Looking(House):
        async def sleep(self, seconds):
            seen.extend(await self.work.take_samples())
            await super().sleep(seconds)

    given = await agent_run(desk)
    house = Looking(desk, Trial(said(OVERLOAD, code=1), said(DONE)))
    assert await house.run(given) == Succeeded(result='"done"')
    ((run_id, epoch, state, alive),) = [(s.run_id, s.epoch, s.state, s.alive) for s in seen]
    assert (run_id, epoch) == (given.lease.run_id, given.lease.epoch)
    assert (state, alive) == ("resting", True)


async def test_an_attempt_whose_checks_take_long_is_told_of(desk):
    eyes = Eyes(page=None)
    given = await assignment(desk, checks=[{"url": "http://example.org/"}])
    work = work_on(desk.store, ManyYard({"out": b"done\n"}), Counting(), probes=eyes)
    running = asyncio.ensure_future(work.run(given))
    await eyes.waiting.wait()
    assert [(sign.run_id, sign.state) for sign in await work.take_samples()] == [
        (given.lease.run_id, "concluding")
    ]
    running.cancel()
    await asyncio.wait([running])
    assert await work.take_samples() == []
