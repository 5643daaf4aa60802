"""Kept work that is stopped, let go, cut off or carried on."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from rota.model.attempts import Cancelled, Drained, Failed, Succeeded
from rota.model.tasks import TaskKind
from rota.runtime.worker import AttemptStop, Worker
from rota.store.attempts import list_kept_attempts, record_launch, record_output, renew_home_lease
from rota.store.tasks import find_space
from tests.tools.interception import intercept
from tests.unit.attempt.keeper_home_fake import (
    FakeYard,
    a_few_turns,
    assignment,
    leave,
    texts,
    work_on,
)


@pytest.fixture
def yard():
    return FakeYard()


async def test_a_cancelled_one_is_stopped_and_waited_for(desk, chance, yard):
    given = await assignment(desk)
    running = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    async with asyncio.timeout(5):
        while not yard.started:
            await asyncio.sleep(0)
    running.cancel()
    report = await running
    assert isinstance(report.outcome, Cancelled)
    assert json.loads(report.ending)["reason"] == "cancelled"
    assert yard.cancelled == ["cancelled"]


async def begun(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize("left", [False, True])
async def test_nobody_leaves_while_a_program_is_being_started(desk, chance, yard, left):
    given = await assignment(desk)
    yard.starting.clear()
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    async with asyncio.timeout(5):
        while not await desk.store.read(list_kept_attempts, yard.home):
            await asyncio.sleep(0)
    await begun(lambda: work._going)
    await a_few_turns()
    if left:
        work.detach(given.lease.run_id)
    running.cancel()
    await a_few_turns()
    assert not running.done()
    yard.starting.set()
    await asyncio.wait([running])
    assert running.cancelled() == left
    assert len(yard.started) == 1
    assert yard.cancelled == ([] if left else ["cancelled"])


@pytest.mark.parametrize(
    ("why", "told"),
    [(AttemptStop.DRAIN, []), (AttemptStop.FENCED, []), (AttemptStop.CANCEL, ["cancelled"])],
)
async def test_what_is_stopped_before_its_first_step_ends_only_if_it_was_cancelled(
    desk, chance, yard, why, told
):
    given = await assignment(desk)
    first = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(first.run(given))
    await begun(lambda: yard.started)
    await leave(first, given, running)
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    work = work_on(desk.store, yard, chance)
    await work.open()
    worker = Worker(desk.store, [work], "w1", desk.clock, chance, slots=5)
    worker.adopt(given._replace(kept=kept))
    worker.stop_run(given.lease.run_id, why)
    await begun(lambda: not worker._attempts)
    assert yard.cancelled == told


async def test_an_answer_in_the_way_of_letting_go_holds_nobody_up(desk, chance, yard):
    given = await assignment(desk)
    asked = asyncio.Event()

    async def answers_all_the_same(*_):
        asked.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return False

    intercept(desk.store, record_launch, answers_all_the_same)
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    await asked.wait()
    work.detach(given.lease.run_id)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(5):
            await running
    assert yard.started == []


async def test_who_is_stopped_while_it_records_has_an_end(desk, chance, yard):
    given = await assignment(desk)
    yard.out = b"one\n"
    recording, go = asyncio.Event(), asyncio.Event()

    async def slow(proceed, *args):
        recording.set()
        await go.wait()
        return await proceed(*args)

    intercept(desk.store, record_output, slow)
    running = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    await recording.wait()
    running.cancel()
    await asyncio.sleep(0)
    go.set()
    async with asyncio.timeout(5):
        assert isinstance((await running).outcome, Cancelled)
    assert await texts(desk, given.lease.run_id) == ["one"]


async def test_what_was_recorded_after_the_last_look_is_not_recorded_again(desk, chance, yard):
    given = await assignment(desk)
    yard.out = b"one\ntwo\n"
    first = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    async with asyncio.timeout(5):
        while await texts(desk, given.lease.run_id) != ["one", "two"]:
            await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    yard.ending = None
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    yard.end(b"three\n")
    stale = dataclasses.replace(kept, out_at=4)
    async with asyncio.timeout(5):
        report = await work_on(desk.store, yard, chance).run(given._replace(kept=stale))
    assert report.outcome == Succeeded(result='"three"')
    assert await texts(desk, given.lease.run_id) == ["one", "two", "three"]


async def test_what_cannot_be_carried_on_is_ended_before_it_is_refused(desk, chance, yard):
    given = await assignment(desk, kind=TaskKind.AGENT, instructions="Look.", agent="command")
    running = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    await begun(lambda: yard.started)
    work = work_on(desk.store, yard, chance)
    work.detach(given.lease.run_id)
    running.cancel()
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    kept = dataclasses.replace(kept, agent="oracle")
    yard.cancelled.clear()
    yard.ending = None
    report = await work.run(given._replace(kept=kept))
    assert isinstance(report.outcome, Failed)
    assert yard.cancelled != []


async def test_what_has_been_gone_on_without_is_ended_and_forgotten(desk, chance, yard):
    given = await assignment(desk)
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    await begun(lambda: yard.started)
    await leave(work, given, running)
    await desk.end_open(given.lease.run_id, Succeeded())
    await work.renew()
    await begun(lambda: yard.cancelled == ["its run continued without it"])
    assert yard.forgotten == []
    await work.renew()
    await begun(lambda: yard.forgotten == [given.lease.run_id])
    await work._discarding.close()
    assert await desk.store.read(list_kept_attempts, yard.home) == []


async def test_a_promise_counts_from_before_the_store_was_asked(desk, chance, yard):
    slept = 0.0

    async def slow(proceed, *args):
        nonlocal slept
        slept = 500.0
        await proceed(*args)

    intercept(desk.store, renew_home_lease, slow)
    yard.boot_time = lambda: slept
    await work_on(desk.store, yard, chance).renew()
    assert yard.promised == 15 * 60.0


async def test_one_that_was_let_go_is_left_alone(desk, chance, yard):
    given = await assignment(desk)
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    async with asyncio.timeout(5):
        while not yard.started:
            await asyncio.sleep(0)
    work.detach(given.lease.run_id)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert yard.cancelled == []


async def test_one_that_was_let_go_before_it_was_written_down_is_given_back(desk, chance, yard):
    given = await assignment(desk)
    asked = asyncio.Event()

    async def never(*_):
        asked.set()
        await asyncio.get_running_loop().create_future()

    intercept(desk.store, find_space, never)
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    await asked.wait()
    work.detach(given.lease.run_id)
    running.cancel()
    assert (await running).outcome == Drained()
    assert yard.started == []
