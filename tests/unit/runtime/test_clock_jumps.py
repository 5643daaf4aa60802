"""A clock that is hours ahead for a while: what it passes over is told, and can be brought back."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from rota.errors import Invalid
from rota.flow.define.runs import backfill
from rota.flow.observe.status import WarningThresholds, view_status
from rota.flow.observe.time_text import parse_instant
from rota.flow.observe.why import explain
from rota.flow.observe.why_facts import WhySpan, load_facts
from rota.flow.plan import plan
from rota.model.events import EventName
from rota.model.runs import QueueState, RunSource
from rota.model.tasks import Overlap
from rota.rules.permissions import LOCAL
from rota.store.clock_jumps import get_clock_jumps, record_clock_jump
from rota.store.views import list_events
from tests.unit.runtime.conftest import Stage

TWO_HOURS = timedelta(hours=2)
LEAPS = ("clock_jumped", "clock_returned", "slots_passed_over")


class Life:
    """One life of a daemon that plans."""

    def __init__(self, bench, chance):
        self._bench = bench
        self._stage = Stage(bench, chance, roles=frozenset({"planner"}))
        self._working = self._stage.working()

    async def __aenter__(self):
        await self._working.__aenter__()
        return self

    async def __aexit__(self, *fault):
        return await self._working.__aexit__(*fault)

    async def hears(self, topic):
        """Let the planner look at the clock, and wait until something was written."""
        heard = asyncio.Event()
        leave = self._bench.store.subscribe(lambda said: heard.set() if said == topic else None)
        self._stage.crew.planner.wake()
        await heard.wait()
        leave()


async def announced(bench):
    names = {EventName.CLOCK_JUMPED, EventName.CLOCK_RETURNED}
    events = await bench.store.read(list_events, 0, 100)
    return [
        (e.name.value, e.data["from"][11:16], e.data["to"][11:16])
        for e in events
        if e.name in names
    ]


async def warned(bench, space_id=None):
    """Return what status says of leaps; it writes nothing."""
    status = await view_status(bench.store, WarningThresholds(), space_id)
    return [(w.code, w.sentence) for w in status.warnings if w.code in LEAPS]


async def codes(bench):
    return [code for code, _ in await warned(bench)]


def at(runs):
    return [f"{run.slot_at:%H:%M}" for run in runs]


async def is_ahead(bench, life):
    """Let the clock leap from 12:31 to 14:31, and be believed."""
    bench.clock.advance(minutes=30)
    await life.hears("runs")
    bench.clock.advance(minutes=1)
    bench.clock.set(bench.clock.now() + TWO_HOURS)
    await life.hears("events")
    bench.clock.advance(seconds=61)
    await life.hears("runs")


async def made(bench):
    task = await bench.task(overlap=Overlap.ALLOW)
    await bench.planned(task, cron="0,30 * * * *")
    return task


async def test_slots_that_a_clock_ahead_passed_over_are_told_and_brought_back(bench, chance):
    task = await made(bench)
    async with Life(bench, chance) as life:
        await is_ahead(bench, life)
        assert await announced(bench) == [("clock.jumped", "12:30", "14:31")]
        ((code, told),) = await warned(bench)
        assert code == "clock_jumped"
        assert "slots from 2026-03-02 12:30" in told
    async with Life(bench, chance) as life:  # nobody who lives has seen the leap
        bench.clock.advance(minutes=30)
        await life.hears("runs")
        assert at(await bench.slots(task)) == ["12:30", "14:30", "15:00"]
        bench.clock.set(bench.clock.now() - TWO_HOURS)
        await life.hears("events")
    assert await announced(bench) == [
        ("clock.jumped", "12:30", "14:31"),
        ("clock.returned", "12:30", "15:00"),
    ]
    assert await codes(bench) == ["clock_returned", "slots_passed_over"]
    (_, (_, told)) = await warned(bench)
    command = told.partition(": ")[2]
    assert told.startswith("3 slots of job skipped")
    why = explain(await load_facts(bench.store, task, None), ZoneInfo("UTC"))
    assert any(command in note for note in why.notes)
    words = command.split()
    assert words[:3] == ["rota", "backfill", "job"]
    start, end = (parse_instant(words[n], "UTC", bench.clock.now(), "at") for n in (4, 6))
    ids = await backfill(bench.store, LOCAL, "job", start, end)
    runs = [run for run in await bench.slots(task) if run.source is RunSource.BACKFILL]
    assert sorted(ids) == sorted(run.id for run in runs)
    assert [(f"{r.slot_at:%H:%M}", r.queue_state) for r in runs] == [
        ("13:00", QueueState.HELD if runs[0].lane else QueueState.READY),
        ("13:30", QueueState.DELAYED),
        ("14:00", QueueState.DELAYED),
    ]
    assert await backfill(bench.store, LOCAL, "job", start, end) == []
    assert await codes(bench) == ["clock_returned"]
    bench.clock.advance(hours=1)
    await plan(bench.store)
    assert [r.queue_state for r in await bench.slots(task)].count(QueueState.DELAYED) == 0
    bench.clock.advance(minutes=59)  # 15:01: the schedule fires by itself again
    assert await codes(bench) == []
    bench.clock.advance(minutes=30)
    await plan(bench.store)
    assert at(await bench.slots(task)) == [
        "12:30", "13:00", "13:30", "14:00", "14:30", "15:00", "15:30",
    ]  # fmt: skip


async def test_a_return_that_nobody_saw_is_told_from_the_database(bench, chance):
    task = await made(bench)
    async with Life(bench, chance) as life:
        await is_ahead(bench, life)
    bench.clock.set(bench.clock.now() - TWO_HOURS)
    assert await codes(bench) == ["clock_returned", "slots_passed_over"]
    assert len(await announced(bench)) == 1
    for _ in range(2):
        async with Life(bench, chance):
            pass
        assert await announced(bench) == [
            ("clock.jumped", "12:30", "14:31"),
            ("clock.returned", "12:30", "14:30"),
        ]
    assert await codes(bench) == ["clock_returned", "slots_passed_over"]
    space = await bench.space("other")
    assert [code for code, _ in await warned(bench, space.id)] == ["clock_returned"]
    bench.clock.advance(hours=3)
    assert await codes(bench) == ["slots_passed_over"]
    bench.clock.advance(days=1)
    assert await codes(bench) == []
    assert at(await bench.slots(task)) == ["12:30", "14:30"]


async def test_a_leap_that_is_taken_back_within_a_minute_passes_nothing_over(bench, chance):
    task = await made(bench)
    async with Life(bench, chance) as life:
        bench.clock.advance(minutes=30)
        await life.hears("runs")
        bench.clock.set(bench.clock.now() + TWO_HOURS)
        await life.hears("events")
        bench.clock.set(bench.clock.now() - TWO_HOURS)
        bench.clock.advance(minutes=30)
        await life.hears("runs")
    assert at(await bench.slots(task)) == ["12:30", "13:00"]
    assert (await codes(bench), len(await announced(bench))) == ([], 1)


async def test_a_clock_that_is_put_right_forward_is_told_once(bench, chance):
    await made(bench)
    async with Life(bench, chance) as life:
        await is_ahead(bench, life)
        leap = (await bench.store.read(get_clock_jumps)).forward
        assert not await bench.store.write(record_clock_jump, leap)
    bench.clock.advance(hours=2)
    assert await codes(bench) == ["clock_jumped"]
    bench.clock.advance(days=1)
    assert await codes(bench) == []
    assert await announced(bench) == [("clock.jumped", "12:30", "14:31")]


async def test_a_slot_that_does_not_fire_again_says_why(bench, chance):
    task = await made(bench)
    async with Life(bench, chance) as life:
        await is_ahead(bench, life)
    bench.clock.set(bench.clock.now() - TWO_HOURS)
    slot = bench.clock.now().replace(hour=13, minute=30, second=0)
    span = WhySpan(start=slot, end=slot + timedelta(seconds=59), instant=slot)
    why = explain(await load_facts(bench.store, task, span), ZoneInfo("UTC"))
    assert [(story.outcome, story.count) for story in why.stories] == [("coalesced", 3)]
    assert why.stories[0].sentence.endswith("the clock was ahead then")
    assert any("rota backfill job --from" in note for note in why.notes)


async def test_a_schedule_that_was_made_while_the_clock_was_ahead_says_why_it_waits(bench, chance):
    await made(bench)
    bench.clock.set(bench.clock.now() + TWO_HOURS)
    late = await bench.task("late", overlap=Overlap.ALLOW)
    await bench.planned(late, cron="0,30 * * * *")
    bench.clock.set(bench.clock.now() - TWO_HOURS)
    slot = bench.clock.now() + timedelta(hours=1)
    span = WhySpan(start=slot, end=slot + timedelta(seconds=59), instant=slot)
    why = explain(await load_facts(bench.store, late, span), ZoneInfo("UTC"))
    assert "the clock was ahead" in why.stories[0].sentence
    (run_id,) = await backfill(
        bench.store, LOCAL, "late", slot - timedelta(minutes=1), slot + timedelta(minutes=1)
    )
    (run,) = await bench.slots(late)
    assert (run.id, run.available_at) == (run_id, slot)


async def test_no_slot_to_come_is_backfilled_that_nobody_has_planned(bench):
    await made(bench)
    now = bench.clock.now()
    with pytest.raises(Invalid, match="future"):
        await backfill(bench.store, LOCAL, "job", now, now + timedelta(hours=1))
