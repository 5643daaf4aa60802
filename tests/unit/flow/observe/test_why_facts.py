from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

from rota.flow.define.schedules import ScheduleSpec
from rota.flow.define.tasks import disable_task, enable_task, put_task
from rota.flow.observe.views import list_tasks, next_fires, view_task
from rota.flow.observe.why import explain
from rota.flow.observe.why_facts import load_facts, load_run_facts
from rota.flow.plan import plan
from rota.model.spaces import SpaceRole
from rota.rules.permissions import LOCAL
from rota.store.settlement import request_cancel
from rota.store.sqlite.database import MemoryDatabase
from rota.store.tasks import add_space
from rota.testing.fakes import VirtualClock
from tests.tools.store_bench import Bench

HOURLY = ScheduleSpec(cron="0 * * * *")


async def opened():
    clock = VirtualClock()
    store = MemoryDatabase(clock)
    await store.open()
    await store.write(add_space, "main", SpaceRole.MAIN, "UTC")
    return clock, store


async def verdicts(store, name="x"):
    task = (await view_task(store, LOCAL, name)).task
    why = explain(await load_facts(store, task, None), ZoneInfo("UTC"))
    return [(story.verdict, story.count) for story in why.stories], why


async def test_the_story_of_a_day_is_read_from_the_store():
    clock, store = await opened()
    await put_task(store, LOCAL, "x", route="python", wish=HOURLY)
    clock.advance(timedelta(hours=1))
    await plan(store)
    await disable_task(store, LOCAL, "x")
    clock.advance(timedelta(hours=3))
    await plan(store)
    await enable_task(store, LOCAL, "x")
    told, _ = await verdicts(store)
    assert told[-3:] == [("cancelled", 1), ("skipped", 3), ("planned", 1)]
    assert {verdict for verdict, _ in told[:-3]} == {"no_slot"}
    await store.close()


async def test_a_run_that_is_being_stopped_tells_who_wanted_it():
    clock, store = await opened()
    bench = Bench(store, clock)
    task = await bench.task("x")
    await bench.queue(task)
    lease = await bench.claim_one()
    await store.write(request_cancel, [lease.run_id], "cancelled by ann")
    for facts in (
        await load_facts(store, task, None),
        await load_run_facts(store, task, await bench.run(lease.run_id)),
    ):
        (story,) = explain(facts, ZoneInfo("UTC")).stories
        assert "asked to stop (cancelled by ann)" in story.sentence
    await store.close()


async def test_a_rule_that_cannot_be_read_does_not_stop_the_answer():
    clock, store = await opened()
    await put_task(store, LOCAL, "x", route="python", wish=HOURLY)
    broken = "update schedules set rule = json_set(rule, '$.expression', 'nonsense')"
    store._connection.execute(broken)
    clock.advance(timedelta(hours=2))
    await plan(store)
    told, why = await verdicts(store)
    assert told == []
    assert "was quarantined" in why.notes[0]
    ((_, schedules),) = await list_tasks(store, LOCAL, None)
    assert next_fires(schedules[0], clock.now(), 3) == []
    await store.close()
