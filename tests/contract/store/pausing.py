"""Pausing everything: nothing new is claimed, slots are skipped, and going on begins now."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.model.schedules import Pause, paused_since
from rota.rules.plans import plan_schedule
from rota.store.plans import apply_plans, get_pauses, list_due_schedules, pause_all, resume_all
from rota.store.views import list_events
from rota.store.workers import get_open_runs
from tests.tools.store_bench import MINUTE, Bench

HOUR = timedelta(hours=1)


class PauseContract:
    """A pause is one fact, seen by every claim and every plan."""

    async def test_nothing_is_claimed_while_everything_is_paused(self, bench: Bench) -> None:
        (run_id,) = await bench.queue(await bench.task())
        (pause,) = await bench.store.write(pause_all, "ann")
        assert pause == Pause(bench.store.now(), None)
        assert await bench.claim() == []
        await bench.queue(await bench.task())
        assert await bench.claim() == []
        await bench.store.write(resume_all, "ann")
        assert run_id in await bench.claim_ids()

    async def test_what_runs_goes_on(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        await bench.store.write(pause_all, "ann")
        assert await bench.end(lease)

    async def test_pausing_and_resuming_twice_is_doing_it_once(self, bench: Bench) -> None:
        heard: list[str] = []
        bench.store.subscribe(heard.append)
        assert await bench.store.write(resume_all, "ann") == ()
        first = await bench.store.write(pause_all, "ann")
        bench.clock.advance(MINUTE)
        assert await bench.store.write(pause_all, "bob") == first
        (ended,) = await bench.store.write(resume_all, "bob")
        assert (ended.since, ended.until) == (first[0].since, bench.store.now())
        bench.clock.advance(MINUTE)
        assert await bench.store.write(resume_all, "ann") == (ended,)
        names = [event.name.value for event in await bench.store.read(list_events, 0, 10)]
        assert names == ["store.paused", "store.resumed"]
        assert {"runs", "schedules", "events"} <= set(heard)

    async def test_slots_of_a_pause_are_one_ledger_row_and_not_caught_up(
        self, bench: Bench
    ) -> None:
        task = await bench.task()
        await bench.planned(task, every="10m")
        await bench.store.write(pause_all, "ann")
        bench.clock.advance(HOUR)
        await bench.plan()
        assert await bench.ledger(task) == [("paused", 6)]
        bench.clock.advance(HOUR - MINUTE)
        await bench.store.write(resume_all, "ann")
        await bench.plan()  # half of the pause nobody has planned yet
        assert await bench.ledger(task) == [("paused", 11)]
        assert await bench.slots(task) == []
        bench.clock.advance(MINUTE)
        await bench.plan()
        assert len(await bench.slots(task)) == 1

    async def test_a_pause_that_no_planner_saw_counts_all_the_same(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.planned(task, every="10m")
        for _ in range(3):
            bench.clock.advance(5 * MINUTE)
            await bench.store.write(pause_all, "ann")
            bench.clock.advance(10 * MINUTE)
            await bench.store.write(resume_all, "ann")
        bench.clock.advance(5 * MINUTE)
        await bench.plan()
        # Slots at 10, 20, …, 50; paused from 5 to 15, 20 to 30, 35 to 45.
        assert [row for row in await bench.ledger(task) if row[0] == "paused"] == [
            ("paused", 2),
            ("paused", 1),
        ]
        assert len(await bench.slots(task)) == 2

    async def test_a_slot_that_was_due_before_the_pause_runs_after_it(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.planned(task, every="10m")
        bench.clock.advance(10 * MINUTE)
        bench.clock.advance(seconds=1)
        await bench.store.write(pause_all, "ann")
        await bench.plan()
        (run,) = await bench.slots(task)
        assert await bench.claim() == []
        await bench.store.write(resume_all, "ann")
        assert await bench.claim_ids() == [run.id]

    async def test_a_plan_made_before_the_pause_does_not_apply_after_it(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.planned(task, every="10m")
        bench.clock.advance(10 * MINUTE)
        (due,) = await bench.store.read(list_due_schedules, 10)
        await bench.store.write(pause_all, "ann")
        assert await bench.store.write(apply_plans, [plan_schedule(due, bench.store.now())]) == [
            False
        ]
        (due,) = await bench.store.read(list_due_schedules, 10)
        old = plan_schedule(due, bench.store.now())
        await bench.store.write(resume_all, "ann")
        assert await bench.store.write(apply_plans, [old]) == [False]
        assert await bench.slots(task) == []

    async def test_old_pauses_are_forgotten_once_everything_behind_them_is_planned(
        self, bench: Bench
    ) -> None:
        task = await bench.task()
        await bench.planned(task, every="10m")
        for _ in range(3):
            await bench.store.write(pause_all, "ann")
            bench.clock.advance(10 * MINUTE)
            await bench.store.write(resume_all, "ann")
            bench.clock.advance(10 * MINUTE)
            await bench.plan()
        assert len(await bench.store.read(get_pauses)) == 1

    async def test_claims_beside_a_pause_give_out_nothing_after_it(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 40)
        order: list[str] = []

        async def claim() -> None:
            for _ in range(10):
                order.extend("claimed" for _ in await bench.claim(1))

        async def pause() -> None:
            await bench.claim(1)
            await bench.store.write(pause_all, "ann")
            order.append("paused")

        await asyncio.gather(claim(), claim(), pause())
        assert await bench.claim() == []
        assert paused_since(await bench.store.read(get_pauses)) is not None
        running = [
            r
            for r in await bench.store.read(get_open_runs, list(range(1, 41)))
            if r.state == "running"
        ]
        assert len(running) == order.count("claimed") + 1
