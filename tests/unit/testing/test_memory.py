"""An in-memory Rota whose time a test moves."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from rota import Limit, LimitScope, Retry, Rota
from rota.errors import Conflict
from rota.model.runs import RunState
from rota.ports.channel import ChannelRefused
from rota.testing import MemoryRota, RecordingChannel

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


async def test_time_stands_still_until_it_is_advanced():
    async with MemoryRota() as rota:
        before = rota.clock.now()
        await rota.work(until_idle=True)
        assert rota.clock.now() == before == NOON
        assert await rota.advance(hours=1, minutes=5) == NOON + timedelta(minutes=65)
        assert await rota.advance(timedelta(days=1)) == rota.clock.now()


async def test_a_test_chooses_where_time_begins():
    start = datetime(2026, 12, 31, 23, 59, tzinfo=UTC)
    async with MemoryRota(start=start) as rota:
        assert await rota.advance(minutes=1) == datetime(2027, 1, 1, tzinfo=UTC)


async def test_every_slot_runs_at_its_instant():
    rota, seen = MemoryRota(), []

    @rota.task("report")
    async def report(run):
        seen.append((run.slot_at, rota.clock.now()))

    async with rota:
        await rota.schedule("report", cron="0 7 * * *", timezone="Europe/Berlin")
        await rota.advance(days=30)
    assert len(seen) == 30
    assert all(slot == now for slot, now in seen)
    assert {slot.hour for slot, _ in seen} == {6, 5}, "summer time begins on the 29th"


async def test_slots_of_several_schedules_run_in_the_order_of_their_instants():
    rota, seen = MemoryRota(), []

    @rota.task("quick")
    async def quick(run):
        seen.append("quick")

    @rota.task("slow")
    async def slow(run):
        seen.append("slow")

    async with rota:
        await rota.schedule("quick", every="20m")
        await rota.schedule("slow", every="50m")
        await rota.advance(hours=1)
    assert seen == ["quick", "quick", "slow", "quick"]


async def test_a_delayed_run_begins_when_its_delay_is_over():
    rota, begun = MemoryRota(), []

    @rota.task("job")
    async def job(run):
        begun.append(rota.clock.now())

    async with rota:
        await rota.enqueue("job", delay=timedelta(minutes=10))
        await rota.advance(minutes=9)
        assert begun == []
        await rota.advance(hours=1)
    assert begun == [NOON + timedelta(minutes=10)]


async def test_retries_come_after_their_pauses_without_chance():
    rota, tries = MemoryRota(), []

    @rota.task("job", retry=Retry(attempts=3, base=timedelta(seconds=10)))
    async def job(run):
        tries.append((rota.clock.now() - NOON).total_seconds())
        raise ConnectionError("not yet")

    async with rota:
        run = await rota.enqueue("job")
        await rota.advance(minutes=5)
        assert (await rota.run(run)).state is RunState.FAILED
    assert tries == [0, 10, 30]


async def test_runs_under_a_rate_begin_as_the_rate_allows():
    limit = Limit(scope=LimitScope.GROUP, key="api", rate=1, period=timedelta(minutes=1))
    rota, begun = MemoryRota(limits=[limit]), []

    @rota.task("call", group="api")
    async def call(run):
        begun.append(rota.clock.now())

    async with rota:
        await rota.enqueue_many("call", range(3))
        await rota.work(until_idle=True)
        assert begun == [NOON]
        await rota.advance(minutes=10)
    passed = [round((at - NOON).total_seconds(), 3) for at in begun]
    assert passed == [0, 60, 120]


async def test_a_question_that_nobody_answers_gets_its_default():
    rota = MemoryRota()

    @rota.task("deploy")
    async def deploy(run):
        return await run.ask("Deploy?", expires_in=timedelta(hours=1), default="no")

    async with rota:
        run = await rota.enqueue("deploy")
        await rota.advance(minutes=59)
        assert (await rota.run(run)).state is RunState.WAITING
        await rota.advance(minutes=1)
        assert json.loads((await rota.run(run)).result) == "no"


async def test_a_refused_message_is_sent_again_later():
    channel = RecordingChannel("chat", errors=[ChannelRefused("busy")])
    rota = MemoryRota(channels=[channel])

    @rota.task("tell", deliver_to="chat:ann")
    async def tell(run):
        return "hello"

    async with rota:
        await rota.enqueue("tell")
        await rota.work(until_idle=True)
        assert (len(channel.attempts), channel.sent) == (1, [])
        await rota.advance(hours=1)
    assert [delivery.target for delivery in channel.sent] == ["ann"]


async def test_the_tasks_of_a_program_are_there():
    program = Rota("sqlite:////nonexistent/rota.db")

    @program.task("add", retry=2, title="Sum")
    def add(run):
        a, b = run.payload
        return a + b

    async with MemoryRota(program) as rota:
        run = await rota.enqueue("add", [2, 3])
        await rota.work(until_idle=True)
        assert (await rota.run(run)).result == "5"


async def test_a_name_of_the_program_is_taken():
    program = Rota()
    program.task("job")(print)
    with pytest.raises(Conflict):
        MemoryRota(program).task("job")(print)


async def test_two_of_them_share_nothing():
    program = Rota()
    program.task("job")(print)
    async with MemoryRota(program) as one, MemoryRota(program) as two:
        await one.enqueue("job")
        await one.advance(hours=1)
        assert two.clock.now() == NOON
        assert await two.enqueue("job") == 1


def test_it_works_in_a_program_without_an_event_loop():
    rota = MemoryRota()

    @rota.task("add")
    def add(run):
        return sum(run.payload)

    with rota.blocking() as blocking:
        run = blocking.enqueue("add", [2, 3])
        blocking.work(until_idle=True)
        assert blocking.run(run).result == "5"


async def test_work_that_goes_on_is_woken_by_what_is_queued():
    rota, done = MemoryRota(), asyncio.Event()

    @rota.task("job")
    async def job(run):
        done.set()

    async with rota:
        working = asyncio.create_task(rota.work())
        await rota.enqueue("job")
        await asyncio.wait_for(done.wait(), 10)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
