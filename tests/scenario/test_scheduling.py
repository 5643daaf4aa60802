"""Schedules and slots: each slot runs once, at its instant, or the ledger says why not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from rota.errors import Invalid, Stale
from rota.flow.define.schedules import ScheduleSpec, drop_schedule, prepare_schedule, put_schedule
from rota.flow.define.tasks import delete_task, disable_task
from rota.flow.plan import plan
from rota.model.runs import RunState
from rota.model.schedules import ScheduleState
from rota.model.tasks import CatchUp, CatchUpMode, Overlap
from rota.rules.permissions import LOCAL
from rota.rules.plans import plan_schedule
from rota.store import tasks as store_tasks
from rota.store.plans import apply_plans, list_due_schedules, next_due
from rota.store.tasks import list_schedules
from rota.store.tasks import put_schedule as write_schedule
from rota.store.views import count_runs, list_events, view_queue
from tests.scenario.builders import accounted
from tests.tools.power_cut import cut_at_every_query
from tests.tools.store_bench import MINUTE, Bench, failed


async def test_the_planner_sleeps_exactly_until_the_next_slot(desk):
    """G2-W03: A 60 s poll made everything up to 60 s late, and an insert woke nobody."""
    task = await desk.task()
    heard = []
    desk.store.subscribe(heard.append)
    await desk.planned(task, every="7m")
    assert "schedules" in heard
    planned = await plan(desk.store)
    assert planned.rest_micros == 7 * 60 * 1_000_000
    desk.clock.advance(minutes=7)
    heard.clear()
    await plan(desk.store)
    assert "runs" in heard


async def test_instants_are_compared_as_instants(desk):
    """G2-W04: Next runs were compared as text: a value with an offset came in the wrong order."""
    early, late = await desk.task("early"), await desk.task("late")
    await desk.planned(late, at="2026-03-02T14:00:00+00:00")
    await desk.planned(early, at="2026-03-02T15:30:00+02:00")
    due = await desk.store.read(next_due)
    assert due == int(datetime(2026, 3, 2, 13, 30, tzinfo=UTC).timestamp() * 1_000_000)
    desk.clock.set(datetime(2026, 3, 2, 13, 45, tzinfo=UTC))
    await desk.plan()
    assert len(await desk.slots(early)) == 1
    assert await desk.slots(late) == []


async def test_a_schedule_fires_by_its_own_zone(desk):
    """G2-W05: The zone was read but the cron was computed in naive local time."""
    task = await desk.task()
    desk.clock.set(datetime(2026, 3, 28, 0, 0, tzinfo=UTC))
    await desk.planned(task, cron="0 7 * * *", timezone="Europe/Berlin")
    fired = []
    for _ in range(3):
        next_at = await desk.store.read(next_due)
        desk.clock.set(datetime.fromtimestamp(next_at / 1_000_000, tz=UTC))
        await desk.plan()
    fired = [run.slot_at for run in await desk.slots(task)]
    assert fired == [
        datetime(2026, 3, 28, 6, 0, tzinfo=UTC),
        datetime(2026, 3, 29, 5, 0, tzinfo=UTC),
        datetime(2026, 3, 30, 5, 0, tzinfo=UTC),
    ]


async def test_an_interval_does_not_drift_with_its_runs(desk):
    """G2-W06: The interval was anchored on completion, so every run pushed the next one back."""
    task = await desk.task()
    begun = desk.clock.now()
    await desk.planned(task, every="10m")
    for _ in range(5):
        desk.clock.advance(minutes=10, seconds=3)
        await desk.plan()
        lease = await desk.claim_one()
        desk.clock.advance(minutes=2)
        await desk.end(lease)
        desk.clock.set(desk.clock.now() - timedelta(minutes=2, seconds=3))
    fired = [run.slot_at for run in await desk.slots(task)]
    assert fired == [begun + n * timedelta(minutes=10) for n in range(1, 6)]


async def test_slots_missed_during_a_run_are_not_silently_lost(desk):
    """G2-W06: Cron was computed at completion: slots that passed meanwhile vanished without a trace."""
    task = await desk.task(catch_up=CatchUp(mode=CatchUpMode.LATEST))
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    lease = await desk.claim_one()
    desk.clock.advance(minutes=5)
    await desk.plan()
    await desk.end(lease)
    runs, ledger = await desk.slots(task), await desk.ledger(task)
    assert len(runs) + sum(count for _, count in ledger) == 6


async def test_the_slot_and_its_cursor_move_in_one_step(desk):
    """G2-W12: Two cursors were committed one after the other: a crash in between doubled or lost work."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    before = await desk.store.read(next_due)
    (due,) = await desk.store.read(list_due_schedules, 1)

    async def nothing_happened():
        assert await desk.slots(task) == []
        assert await desk.store.read(next_due) == before

    plans = [plan_schedule(due, desk.store.now())]
    cuts = await cut_at_every_query(desk.store, apply_plans, plans, check=nothing_happened)
    assert cuts >= 3
    assert len(await desk.slots(task)) == 1
    assert await desk.store.read(next_due) == before + 60_000_000


async def test_a_crash_while_planning_leaves_nothing_or_all_of_it(desk):
    """ZUB-21: Planning is one transaction: the run, the ledger, the cancelled ones and the cursor."""
    policy = {"catch_up": CatchUp(mode=CatchUpMode.LATEST), "overlap": Overlap.CANCEL_OTHER}
    task = await desk.task(**policy)
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    await desk.claim_one()
    desk.clock.advance(minutes=5)
    (due,) = await desk.store.read(list_due_schedules, 1)
    now = desk.store.now()
    before = (await desk.slots(task), await desk.ledger(task), await desk.store.read(next_due))

    async def nothing_happened():
        after = (await desk.slots(task), await desk.ledger(task), await desk.store.read(next_due))
        assert after == before

    plans = [plan_schedule(due, now)]
    assert plans[0].cancel_running
    assert plans[0].ledger
    assert await cut_at_every_query(desk.store, apply_plans, plans, check=nothing_happened) >= 6
    assert len(await desk.slots(task)) > 1
    assert await desk.ledger(task) == [("coalesced", 2), ("coalesced", 1)]


async def test_a_failing_run_does_not_end_its_schedule(desk):
    """GEN-W03: The next trigger was made only after a good start: one failure silenced the schedule."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    for _ in range(4):
        desk.clock.advance(MINUTE)
        await desk.plan()
        await desk.end(await desk.claim_one(), failed())
    assert len(await desk.slots(task)) == 4
    assert await desk.store.read(next_due) == desk.store.now() + 60_000_000


async def test_a_slot_nobody_can_run_does_not_end_its_schedule(desk):
    """GEN-W03: A route that nobody served broke the chain as well."""
    task = await desk.task(route="python:unknown")
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert await desk.claim(routes=["python:other"]) == []
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert await desk.store.read(next_due) == desk.store.now() + 60_000_000


async def test_a_finite_rule_ends_quietly_and_stops_nobody(desk):
    """JAGC-W01: A finite RRULE threw while advancing: the tick died, and the process with it, in a loop."""
    finite, other = await desk.task("finite"), await desk.task("other")
    await desk.planned(finite, rrule="FREQ=MINUTELY;COUNT=3")
    await desk.planned(other, every="1m")
    for _ in range(6):
        desk.clock.advance(MINUTE)
        await desk.plan()
        for lease in await desk.claim():
            await desk.end(lease)
    (stored,) = await desk.store.read(list_schedules, [finite.id])
    assert (stored.state, stored.next_at) == (ScheduleState.ENDED, None)
    assert len(await desk.slots(other)) == 6
    assert 0 < len(await desk.slots(finite)) <= 3
    names = [event.name.value for event in await desk.store.read(list_events, 0, 1_000)]
    assert names.count("schedule.ended") == 1


async def test_a_poison_rule_is_set_aside_alone(desk):
    """JAGC-W01: One rule that could not be evaluated aborted the tick before all later tasks."""
    healthy = await desk.task("healthy")
    poisoned = await desk.task("poisoned")
    records = ["not json", "5", "[]", "{}", '{"kind": "cron", "expression": "99 99 * * *"}', "null"]
    for number, rule in enumerate(records):
        await desk.store.write(
            write_schedule,
            {
                "task_id": poisoned.id,
                "name": f"s{number}",
                "rule": rule,
                "generation": 1,
                "cursor": desk.store.now(),
                "next_at": desk.store.now() + 1,
            },
        )
    await desk.planned(healthy, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert len(await desk.slots(healthy)) == 1
    stored = await desk.store.read(list_schedules, [poisoned.id])
    assert {s.state for s in stored} == {ScheduleState.QUARANTINED}
    assert all("could not be evaluated" in s.note for s in stored)
    assert (await desk.store.read(view_queue)).quarantined == len(records)
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert len(await desk.slots(healthy)) == 2


async def test_a_task_deleted_while_it_is_planned_disturbs_nobody(desk):
    """JAGC-W02: A store error for one occurrence aborted the whole tick."""
    from rota.rules.plans import plan_schedule

    gone, other = await desk.task("gone"), await desk.task("other")
    await desk.planned(gone, every="1m")
    await desk.planned(other, every="1m")
    desk.clock.advance(MINUTE)
    due = await desk.store.read(list_due_schedules, 10)
    await delete_task(desk.store, LOCAL, "gone")
    plans = [plan_schedule(schedule, desk.store.now()) for schedule in due]
    verdicts = dict(
        zip((p.schedule_id for p in plans), await desk.store.write(apply_plans, plans), strict=True)
    )
    assert sorted(verdicts.values()) == [False, True]
    assert [run.state for run in await desk.slots(gone)] == [RunState.CANCELLED]
    assert len(await desk.slots(other)) == 1


async def test_an_instant_in_the_past_is_refused(desk):
    """JAGC-W10: An instant in the past was accepted and fired at once."""
    task = await desk.task()
    with pytest.raises(Invalid, match="past"):
        await desk.planned(task, at="2026-03-02T11:00:00Z")
    assert await desk.store.read(list_schedules, [task.id]) == []
    await desk.planned(task, at="2026-03-02T11:00:00Z", allow_past=True)
    await desk.plan()
    assert len(await desk.slots(task)) == 1


async def test_two_servers_on_one_file_plan_each_slot_once(tmp_path, clock, opened_file):
    """JAGC-W17: Two servers dispatched everything twice."""
    path = str(tmp_path / "rota.db")
    benches = [Bench(await opened_file(path), clock) for _ in range(2)]
    tasks = [await benches[0].task(f"t{n}") for n in range(10)]
    for task in tasks:
        await benches[0].planned(task, every="1m")
    for _ in range(10):
        clock.advance(MINUTE)
        await asyncio.gather(*(plan(bench.store) for bench in benches))
        for bench in benches:
            bench.routes = benches[0].routes
            for lease in await bench.claim():
                await bench.end(lease)
    for task in tasks:
        assert len({run.slot_key for run in await benches[1].slots(task)}) == 10
        assert await benches[1].store.read(count_runs, task.id) == {"succeeded": 10}


async def test_a_new_schedule_does_not_fire_for_a_time_already_passed(desk):
    """IST-W22: A briefing that had never run fired at once if today's slot had passed."""
    desk.clock.set(datetime(2026, 3, 2, 9, 0, tzinfo=UTC))
    task = await desk.task()
    await desk.planned(task, times="07:00,08:30")
    desk.clock.advance(hours=2)
    await desk.plan()
    assert await desk.slots(task) == []
    assert (await desk.store.read(next_due)) == int(
        datetime(2026, 3, 3, 7, 0, tzinfo=UTC).timestamp() * 1_000_000
    )


async def test_an_edited_schedule_does_not_fire_at_once(desk):
    """ZUB-W20: An edit reset the cursor, so the schedule could fire immediately."""
    task = await desk.task()
    await desk.planned(task, every="1h")
    desk.clock.advance(minutes=50)
    edited = await desk.planned(task, every="30m")
    assert edited.cursor == desk.clock.now()
    await desk.plan()
    assert await desk.slots(task) == []
    assert edited.next_at == datetime(2026, 3, 2, 13, 0, tzinfo=UTC)


async def test_a_change_of_a_schedule_swallows_no_slot_that_was_due(desk):
    """Found by the simulation."""
    changes = {
        "changed": lambda: put_schedule(desk.store, LOCAL, "changed", ScheduleSpec(every="7m")),
        "dropped": lambda: drop_schedule(desk.store, LOCAL, "dropped"),
        "disabled": lambda: disable_task(desk.store, LOCAL, "disabled"),
        "deleted": lambda: delete_task(desk.store, LOCAL, "deleted"),
    }
    for name, change in changes.items():
        task = await desk.task(name)
        await desk.planned(task, every="1m")
        desk.clock.advance(3 * MINUTE)  # the planner is away
        await change()
        assert sum(await accounted(desk, task)) == 3, name


async def test_two_changes_at_once_never_share_a_generation(desk):
    """Found by the simulation."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    wishes = [ScheduleSpec(every="2m"), ScheduleSpec(every="3m")]
    space = await desk.space()
    records = [
        await prepare_schedule(desk.store, space, "job", task, wish, "default") for wish in wishes
    ]
    await desk.store.write(store_tasks.put_schedule, records[0])
    with pytest.raises(Stale):
        await desk.store.write(store_tasks.put_schedule, records[1])
    made = await put_schedule(desk.store, LOCAL, "job", wishes[1])
    assert made.generation == 3


async def test_a_plan_that_is_overtaken_by_a_planner_is_made_again(desk):
    """Found by the simulation."""
    task = await desk.task()
    schedule = await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    with pytest.raises(Stale):
        await desk.store.write(store_tasks.drop_schedule, schedule)
    await drop_schedule(desk.store, LOCAL, "job")
    assert await accounted(desk, task) == (1, 0)
