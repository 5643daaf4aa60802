"""A program that has asked is to end its turn: Rota waits a while, then ends it politely."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

from rota.flow.attempt.programs import ASKED_MICROS, HAS_ASKED
from rota.flow.settle import settle_attempts
from rota.model.attempts import Succeeded
from rota.model.runs import RunState
from rota.model.tasks import TaskKind
from rota.store.attempt_requests import defer_operations
from rota.store.views import list_questions
from tests.tools.attempt_bench import Talk
from tests.unit.attempt.keeper_home_fake import FakeYard, assignment, work_on

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
    assert json.loads(report.ending)["code"] == 1
    assert all(await settle_attempts(desk.store, [(given, report)], chance))
    assert await desk.state(given.lease.run_id) is RunState.WAITING
