"""Steps of a planner: what is due is decided and applied in one transaction."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.model.schedules import DueSchedule, PlanStep, SchedulePlan
from rota.model.tasks import Overlap
from rota.store.plans import list_due_schedules, plan_due, promote_delayed
from rota.store.tasks import get_tasks
from rota.store.views import count_runs
from tests.contract.store.plan import due_schedule, plan_of, run_of
from tests.tools.store_bench import MINUTE, Bench


def _planned(due: DueSchedule, _: int) -> SchedulePlan:
    return plan_of(due, runs=(run_of(due, f"g1:{due.next_at}", due.next_at),))


class PlanStepContract:
    """How a planner takes a step."""

    async def test_what_is_due_is_decided_and_applied_in_one_step(self, bench: Bench) -> None:
        due = await due_schedule(bench)
        seen: list[tuple[DueSchedule, int]] = []

        def decide(schedule: DueSchedule, now: int) -> SchedulePlan:
            seen.append((schedule, now))
            return _planned(schedule, now)

        step = await bench.store.write(plan_due, decide, 10)
        assert seen == [(due, bench.store.now())]
        assert step == PlanStep(schedules=1, slot_at=due.next_at + 60_000_000, later_at=None)
        (lease,) = await bench.claim()
        assert lease.slot_micros == due.next_at

    async def test_a_step_with_nothing_due_tells_what_it_waits_for(self, bench: Bench) -> None:
        task, now = await bench.task(), bench.store.now()
        assert await bench.store.write(plan_due, _planned, 10) == PlanStep(
            schedules=0, slot_at=None, later_at=None
        )
        await bench.schedule(task, bench.every("10m"))
        await bench.queue(task, at=bench.clock.now() + 2 * MINUTE)
        assert await bench.store.write(plan_due, _planned, 10) == PlanStep(
            schedules=0, slot_at=now + 600_000_000, later_at=now + 120_000_000
        )

    async def test_a_step_takes_the_earliest_and_no_more_than_asked(self, bench: Bench) -> None:
        task = await bench.task(overlap=Overlap.ALLOW)
        for minutes in (3, 1, 2):
            rule = bench.every(timedelta(minutes=minutes))
            await bench.schedule(task, rule, name=f"every{minutes}")
        bench.clock.advance(minutes=3)
        step = await bench.store.write(plan_due, _planned, 2)
        assert step.schedules == 2
        assert step.slot_at == bench.store.now() - 60_000_000
        assert await bench.store.read(count_runs, task.id) == {"queued": 2}

    async def test_steps_at_once_make_one_run(self, bench: Bench) -> None:
        due = await due_schedule(bench)
        steps = await asyncio.gather(*(bench.store.write(plan_due, _planned, 10) for _ in range(5)))
        assert {step.slot_at for step in steps} == {due.next_at + 60_000_000}
        assert await bench.store.read(count_runs, due.task_id) == {"queued": 1}

    async def test_what_is_claimed_beside_a_step_begins_after_it(self, bench: Bench) -> None:
        await due_schedule(bench)

        def decide(schedule: DueSchedule, now: int) -> SchedulePlan:
            bench.clock.advance(seconds=1)
            return _planned(schedule, now)

        _, beside = await asyncio.gather(bench.store.write(plan_due, decide, 10), bench.claim())
        (lease,) = beside or await bench.claim()
        run = await bench.run(lease.run_id)
        assert run.started_at == run.created_at + timedelta(seconds=1)

    async def test_a_step_whose_decision_fails_changes_nothing(self, bench: Bench) -> None:
        due = await due_schedule(bench)

        def fail(schedule: DueSchedule, now: int) -> SchedulePlan:
            message = f"{schedule.id} at {now}"
            raise ArithmeticError(message)

        with pytest.raises(ArithmeticError):
            await bench.store.write(plan_due, fail, 10)
        assert await bench.store.read(count_runs, due.task_id) == {}
        assert await bench.store.read(list_due_schedules, 10) == [due]

    async def test_a_step_decides_nothing_while_it_waits_for_delayed_runs(
        self, bench: Bench
    ) -> None:
        due = await due_schedule(bench, overlap=Overlap.ALLOW)
        (task,) = await bench.store.read(get_tasks, [due.task_id])
        await bench.queue(task, at=bench.clock.now() + MINUTE)
        bench.clock.advance(MINUTE)
        step = await bench.store.write(plan_due, _planned, 10, waits=True)
        assert (step.schedules, step.later_at) == (0, bench.store.now())
        assert (await bench.store.write(plan_due, _planned, 10)).schedules == 1
        assert await bench.store.write(promote_delayed, 10) == 1
        assert (await bench.store.write(plan_due, _planned, 10, waits=True)).schedules == 1

    async def test_a_step_is_cut_when_deciding_takes_long(self, bench: Bench) -> None:
        task = await bench.task(overlap=Overlap.ALLOW)
        for number in range(3):
            await bench.schedule(task, bench.every("1h"), name=f"s{number}")
        bench.clock.advance(hours=1)

        def slowly(schedule: DueSchedule, now: int) -> SchedulePlan:
            bench.clock.advance(seconds=1)
            return _planned(schedule, now)

        step = await bench.store.write(plan_due, slowly, 10)
        assert (step.schedules, step.cut) == (1, True)
        step = await bench.store.write(plan_due, _planned, 10)
        assert (step.schedules, step.cut) == (3, False)
