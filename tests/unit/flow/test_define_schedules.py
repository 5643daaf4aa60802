"""Schedules: declare, replace, drop."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.errors import Invalid, NotFound
from rota.flow.define.schedules import drop_schedule
from rota.flow.observe.verification import verify
from rota.flow.plan import plan
from rota.rules.permissions import LOCAL
from rota.store.sqlite.database import MemoryDatabase
from rota.store.tasks import list_schedules, set_space
from rota.store.views import list_events
from rota.testing.fakes import VirtualClock
from tests.tools.store_bench import MINUTE, Bench


@pytest.fixture
def opened_memory(runner):
    """Open memory stores inside a test, and close them when it has ended."""
    stores = []

    async def open_memory(clock):
        stores.append(MemoryDatabase(clock))
        await stores[-1].open()
        return stores[-1]

    yield open_memory
    for made in stores:
        runner.run(made.close())


@pytest.fixture
def task(desk, runner):
    return runner.run(desk.task())


@pytest.mark.parametrize(
    "wish",
    [
        {"cron": "0 7 * * mon-fri", "timezone": "Europe/Berlin"},
        {"every": "90s"},
        {"rrule": "FREQ=DAILY;COUNT=5"},
        {"at": "2026-03-05T10:00:00Z"},
        {"times": ("07:00", "17:30"), "weekdays": "mon-fri"},
    ],
    ids=lambda wish: next(iter(wish)),
)
async def test_declaring_again_changes_nothing(desk, task, wish):
    first = await desk.planned(task, **wish)
    events = await desk.store.read(list_events, 0, 100)
    desk.clock.advance(minutes=7)
    assert await desk.planned(task, **wish) == first
    assert await desk.store.read(list_events, 0, 100) == events


class TickingClock(VirtualClock):
    """Time that passes between two looks at it, as it does outside of tests."""

    def now(self):
        return self.advance(seconds=0.001)


@pytest.mark.parametrize(
    "wish", [{"every": "1h"}, {"rrule": "FREQ=HOURLY"}], ids=["every", "rrule"]
)
async def test_declaring_again_changes_nothing_though_writing_takes_time(opened_memory, wish):
    clock = TickingClock()
    desk = Bench(await opened_memory(clock), clock)
    task = await desk.task()
    first = await desk.planned(task, **wish)
    assert await desk.planned(task, **wish) == first


async def test_a_past_once_that_was_declared_in_time_may_be_declared_again(desk, task):
    first = await desk.planned(task, at="2026-03-02T12:30:00Z")
    desk.clock.advance(hours=1)
    assert await desk.planned(task, at="2026-03-02T12:30:00Z") == first


@pytest.mark.parametrize(
    ("before", "after", "rises"),
    [
        ({"every": "1m"}, {"every": "2m"}, True),
        ({"every": "1m"}, {"cron": "* * * * *"}, True),
        ({"cron": "0 7 * * *"}, {"cron": "0 7 * * *", "timezone": "Asia/Tokyo"}, True),
        ({"cron": "0 7 * * *"}, {"cron": "0 7 * * *", "options": {"jitter": "5m"}}, False),
        ({"every": "1m"}, {"every": "1m", "options": {"jitter": "5s"}}, False),
        (
            {"every": "1m"},
            {"every": "1m", "anchor": datetime(2026, 1, 1, tzinfo=UTC)},
            True,
        ),
    ],
)
async def test_the_generation_rises_only_with_the_identity(desk, task, before, after, rises):
    first = await desk.planned(task, **before)
    desk.clock.advance(seconds=10)
    second = await desk.planned(task, **after)
    assert second.id == first.id
    assert second.generation == first.generation + rises
    assert second.cursor == desk.clock.now()


async def test_a_changed_rule_begins_where_the_earlier_one_was_planned_to(desk, task):
    """A planner came between reading the clock and writing: one instant was planned twice."""
    first = await desk.planned(task, every="1s")
    late, early = desk.clock.now() + timedelta(seconds=5.5), desk.clock.now() + timedelta(seconds=4)
    desk.clock.set(late)
    await plan(desk.store)
    desk.clock.set(early)
    second = await desk.planned(task, every="2s")
    assert second.generation == first.generation + 1
    assert second.cursor == late.replace(microsecond=0)
    desk.clock.set(late + timedelta(seconds=60))
    await plan(desk.store)
    assert (await verify(desk.store)).violations == ()


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({}, "exactly one"),
        ({"cron": "* * * * *", "every": "1m"}, "exactly one"),
        ({"cron": "99 * * * *"}, "cron"),
        ({"every": "soon"}, "every"),
        ({"every": "1ms"}, 'every "1ms": at most once a second: use "1s" or longer'),
        ({"every": timedelta(seconds=0.9)}, "at most once a second"),
        ({"words": "every 200ms"}, "at most once a second"),
        ({"rrule": "FREQ=NEVER"}, "rrule"),
        ({"times": "25:00"}, "times"),
        ({"cron": "* * * * *", "timezone": "Mars/Base"}, "timezone"),
        ({"cron": "* * * * *", "weekdays": "mon"}, "weekdays"),
        ({"at": "2026-03-02T11:59:00Z"}, "past"),
    ],
)
async def test_a_bad_wish_is_refused_and_changes_nothing(desk, task, wish, words):
    with pytest.raises(Invalid, match=words):
        await desk.planned(task, **wish)
    assert await desk.store.read(list_schedules, [task.id]) == []


async def test_a_bad_change_leaves_the_schedule_as_it_was(desk, task):
    first = await desk.planned(task, every="1m")
    with pytest.raises(Invalid):
        await desk.planned(task, cron="nonsense")
    assert await desk.store.read(list_schedules, [task.id]) == [first]


async def test_a_past_instant_that_was_asked_for_fires_once(desk, task):
    await desk.planned(task, at="2026-02-01T00:00:00Z", allow_past=True)
    await desk.plan()
    await desk.plan()
    (run,) = await desk.slots(task)
    assert run.slot_at == datetime(2026, 2, 1, tzinfo=UTC)
    assert await desk.ledger(task) == []


async def test_a_task_has_any_number_of_schedules(desk, task):
    for number in range(5):
        await desk.planned(task, every=timedelta(minutes=number + 1), name=f"s{number}")
    assert len(await desk.store.read(list_schedules, [task.id])) == 5


async def test_a_schedule_takes_its_spaces_zone(desk, task):
    await desk.store.write(set_space, "main", "Asia/Tokyo")
    stored = await desk.planned(task, cron="0 7 * * *")
    assert stored.next_at == datetime(2026, 3, 2, 22, 0, tzinfo=UTC)


async def test_a_dropped_schedule_fires_no_more_and_keeps_its_history(desk, task):
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    await drop_schedule(desk.store, LOCAL, "job")
    desk.clock.advance(hours=1)
    await desk.plan()
    assert len(await desk.slots(task)) == 1
    with pytest.raises(NotFound, match="default"):
        await drop_schedule(desk.store, LOCAL, "job")


async def test_the_same_interval_after_a_detour_has_new_slots(desk, task):
    """A key of an older generation never blocks a newer one."""
    for _ in range(3):
        await desk.planned(task, every="1m")
        desk.clock.advance(MINUTE)
        await desk.plan()
        await desk.planned(task, every="5m")
    keys = [run.slot_key for run in await desk.slots(task)]
    assert len(keys) == len(set(keys)) == 3


@pytest.mark.parametrize("words", ["in 20 minutes", "In 20m", "in 1200 s"])
async def test_gen_40_once_may_be_said_as_a_delay(desk, task, words):
    first = await desk.planned(task, at=words)
    assert first.next_at == desk.clock.now() + timedelta(minutes=20)
    desk.clock.advance(minutes=5)
    assert await desk.planned(task, at=words) == first, "the same wish again changes nothing"


async def test_a_delay_that_is_no_instant_is_refused(desk, task):
    with pytest.raises(Invalid):
        await desk.planned(task, at="in a while")


async def test_an_interval_that_is_too_short_by_now_may_be_declared_again_and_is_left(desk, task):
    quick = {"every": "200ms"}
    first = await desk.planned(task, **quick, shortest=timedelta())
    assert await desk.planned(task, **quick) == first
