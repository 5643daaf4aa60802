"""Plans: slots exist once, the cursor moves with them, and the ledger has the rest."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rota.flow.define.tasks import disable_task
from rota.model.attempts import Cancelled
from rota.model.instants import to_micros
from rota.model.runs import RunBatch, RunSource, RunState
from rota.model.schedules import (
    DueSchedule,
    LedgerEntry,
    LedgerReason,
    Pause,
    PlanStep,
    ScheduleCursor,
    SchedulePlan,
    ScheduleState,
    paused_since,
)
from rota.model.tasks import Overlap, Policy
from rota.rules.permissions import LOCAL
from rota.rules.plans import plan_schedule
from rota.rules.queue import new_run
from rota.store import settlement as store_settlement
from rota.store.plans import (
    apply_plans,
    get_pauses,
    list_due_schedules,
    next_due,
    pause_all,
    plan_due,
    promote_delayed,
    resume_all,
)
from rota.store.settlement import delete_task
from rota.store.tasks import (
    align_schedules,
    drop_schedule,
    enable_task,
    get_tasks,
    list_schedules,
    list_waiting_schedules,
)
from rota.store.views import count_runs, list_events, list_ledger_rows, list_slot_runs
from rota.store.workers import get_open_runs, renew_worker
from tests.tools.store_bench import MINUTE, Bench

# plans and the ledger

FAR = 1 << 60


def run_of(due: DueSchedule, key: str, at: int) -> RunBatch:
    """Return a run of a slot."""
    run = new_run(due.task_id, due.space_id, due.route, due.policy, RunSource.SLOT, at)
    return RunBatch(
        template=run._replace(schedule_id=due.id, slot_key=key, slot_at=at), payloads=["null"]
    )


def plan_of(due: DueSchedule, *, minutes: int = 1, **parts: Any) -> SchedulePlan:
    """Return a plan that moves a schedule by so many minutes."""
    cursor = due.cursor + minutes * 60_000_000
    plan = SchedulePlan(
        schedule_id=due.id,
        version=due.version,
        was=due.cursor,
        cursor=cursor,
        next_at=cursor + 60_000_000,
    )
    return replace(plan, **parts)


def _entry(due: DueSchedule, first: int, last: int, reason: LedgerReason) -> LedgerEntry:
    return LedgerEntry(
        reason=reason,
        first_key=f"k{first}",
        last_key=f"k{last}",
        first_at=due.cursor + first * 60_000_000,
        last_at=due.cursor + last * 60_000_000,
        count=last - first + 1,
    )


async def due_schedule(bench: Bench, **policy: Any) -> DueSchedule:
    """Return a schedule whose first slot has come."""
    task = await bench.task(**policy)
    await bench.schedule(task, bench.every(MINUTE))
    bench.clock.advance(MINUTE)
    (due,) = await bench.store.read(list_due_schedules, 10)
    return due


class TestPlans:
    """How plans are found and applied."""

    async def test_a_schedule_is_due_when_its_next_slot_has_come(self, bench: Bench) -> None:
        task = await bench.task()
        begun = bench.store.now()
        stored = await bench.schedule(task, bench.every(MINUTE))
        bench.clock.advance(seconds=59)
        assert await bench.store.read(list_due_schedules, 10) == []
        bench.clock.advance(seconds=1)
        (due,) = await bench.store.read(list_due_schedules, 10)
        assert (due.id, due.task_id, due.space_id) == (stored.id, task.id, task.space_id)
        assert (due.cursor, due.next_at) == (begun, begun + 60_000_000)
        assert (due.generation, due.route, due.rule) == (1, task.route, stored.rule)
        assert (due.policy, due.enabled, due.paused_until) == (task.policy, True, None)
        assert due.stagger == "main/job/default"

    async def test_the_earliest_are_due_first_and_no_more_than_asked(self, bench: Bench) -> None:
        task = await bench.task()
        for minutes in (3, 1, 2):
            rule = bench.every(timedelta(minutes=minutes))
            await bench.schedule(task, rule, name=f"every{minutes}")
        bench.clock.advance(minutes=5)
        found = await bench.store.read(list_due_schedules, 2)
        assert [due.stagger for due in found] == ["main/job/every1", "main/job/every2"]

    async def test_the_next_slot_is_what_planning_waits_for(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.schedule(task, bench.every("1h"), name="slow")
        await bench.schedule(task, bench.every("10m"), name="quick")
        assert await bench.store.read(next_due) == bench.store.now() + 600_000_000

    async def test_a_plan_makes_the_run_and_moves_the_cursor(self, bench: Bench) -> None:
        due = await due_schedule(bench)
        plan = plan_of(due, runs=(run_of(due, "g1:1", due.next_at),))
        assert await bench.store.write(apply_plans, [plan]) == [True]
        assert await bench.store.read(list_due_schedules, 10) == []
        (lease,) = await bench.claim()
        assert (lease.slot_key, lease.slot_micros) == ("g1:1", due.next_at)
        run = await bench.run(lease.run_id)
        assert (run.source, run.schedule_id) == (RunSource.SLOT, due.id)
        (stored,) = await bench.store.read(list_schedules, [due.task_id])
        assert to_micros(stored.cursor) == plan.cursor
        assert stored.next_at is not None
        assert to_micros(stored.next_at) == plan.next_at

    async def test_a_plan_applies_once(self, bench: Bench) -> None:
        due = await due_schedule(bench)
        plan = plan_of(due, runs=(run_of(due, "g1:1", due.next_at),))
        assert await bench.store.write(apply_plans, [plan]) == [True]
        assert await bench.store.write(apply_plans, [plan]) == [False]
        assert await bench.store.read(count_runs, due.task_id) == {"queued": 1}

    async def test_two_planners_at_once_make_one_run(self, bench: Bench) -> None:
        due = await due_schedule(bench)
        plan = plan_of(due, runs=(run_of(due, "g1:1", due.next_at),))
        verdicts = await asyncio.gather(*(bench.store.write(apply_plans, [plan]) for _ in range(5)))
        assert sorted(v for (v,) in verdicts) == [False] * 4 + [True]
        assert await bench.store.read(count_runs, due.task_id) == {"queued": 1}

    async def test_a_plan_for_another_version_changes_nothing(self, bench: Bench) -> None:
        due = await due_schedule(bench)
        stale = replace(
            plan_of(due, runs=(run_of(due, "x", due.next_at),)), version=due.version + 1
        )
        assert await bench.store.write(apply_plans, [stale]) == [False]
        assert await bench.store.read(count_runs, due.task_id) == {}
        assert len(await bench.store.read(list_due_schedules, 10)) == 1

    async def test_a_plan_made_before_a_change_does_not_apply(self, bench: Bench) -> None:
        (task,) = await bench.store.read(get_tasks, [(await due_schedule(bench)).task_id])
        soon = bench.store.now() + 1
        for change in (
            bench.task(task.name, priority=7),
            bench.schedule(task, bench.every(MINUTE)),
            bench.store.write(store_settlement.disable_task, task, "off", None, []),
            bench.store.write(store_settlement.disable_task, task, "paused", soon, []),
            bench.store.write(enable_task, task),
        ):
            bench.clock.advance(MINUTE)
            (due,) = await bench.store.read(list_due_schedules, 10)
            await change
            plan = plan_of(due, runs=(run_of(due, "x", due.next_at),))
            assert await bench.store.write(apply_plans, [plan]) == [False]
        assert await bench.store.read(count_runs, task.id) == {}

    async def test_a_task_is_not_disabled_over_a_slot_that_was_just_planned(
        self, bench: Bench
    ) -> None:
        due = await due_schedule(bench)
        (task,) = await bench.store.read(get_tasks, [due.task_id])
        await bench.store.write(apply_plans, [plan_of(due, runs=(run_of(due, "x", due.next_at),))])
        assert not await bench.store.write(store_settlement.disable_task, task, "x", None, [])
        assert not await bench.store.write(delete_task, task, [], [])
        assert (await bench.task_of(task)).enabled
        await disable_task(bench.store, LOCAL, task.name)
        assert await bench.store.read(count_runs, task.id) == {"cancelled": 1}

    async def test_a_slot_is_unique_even_if_it_is_planned_again(self, bench: Bench) -> None:
        due = await due_schedule(bench)
        await bench.store.write(
            apply_plans, [plan_of(due, runs=(run_of(due, "same", due.next_at),))]
        )
        bench.clock.advance(minutes=2)
        (due,) = await bench.store.read(list_due_schedules, 10)
        plan = plan_of(
            due, runs=(run_of(due, "same", due.next_at), run_of(due, "new", due.next_at))
        )
        assert await bench.store.write(apply_plans, [plan]) == [True]
        keys = [run.slot_key for run in await bench.store.read(list_slot_runs, due.task_id, 0, FAR)]
        assert sorted(str(key) for key in keys) == ["new", "same"]

    async def test_some_of_several_plans_apply(self, bench: Bench) -> None:
        due = await due_schedule(bench)
        task = await bench.task("other")
        await bench.schedule(task, bench.every(MINUTE))
        bench.clock.advance(MINUTE)
        dues = await bench.store.read(list_due_schedules, 10)
        plans = [plan_of(d) for d in dues]
        stale = replace(plans[0], was=due.cursor - 1)
        assert await bench.store.write(apply_plans, [stale, plans[1]]) == [False, True]

    async def test_a_dropped_or_deleted_schedule_is_not_planned(self, bench: Bench) -> None:
        due = await due_schedule(bench)
        (stored,) = await bench.store.read(list_schedules, [due.task_id])
        await bench.store.write(drop_schedule, stored)
        assert await bench.store.write(apply_plans, [plan_of(due)]) == [False]
        assert await bench.store.read(list_due_schedules, 10) == []
        assert await bench.store.read(next_due) is None

    async def test_a_schedule_can_end_or_be_set_aside(self, bench: Bench) -> None:
        for state, event in (
            (ScheduleState.ENDED, "schedule.ended"),
            (ScheduleState.QUARANTINED, "schedule.quarantined"),
        ):
            due = await due_schedule(bench)
            await bench.store.write(
                apply_plans, [plan_of(due, next_at=None, state=state, note="why")]
            )
            (stored,) = await bench.store.read(list_schedules, [due.task_id])
            assert (stored.state, stored.note, stored.next_at) == (state, "why", None)
            assert await bench.store.read(list_due_schedules, 10) == []
            last = (await bench.store.read(list_events, 0, 1_000))[-1]
            assert (last.name.value, last.task_id) == (event, due.task_id)
            await bench.store.write(drop_schedule, stored)

    async def test_active_runs_of_the_tasks_lane_come_with_it(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.schedule(task, bench.every(MINUTE))
        bench.clock.advance(MINUTE)
        (due,) = await bench.store.read(list_due_schedules, 10)
        await bench.store.write(apply_plans, [plan_of(due, runs=(run_of(due, "a", due.next_at),))])
        waiting = await bench.claim_one()
        await bench.ask(waiting)
        bench.clock.advance(MINUTE)
        (due,) = await bench.store.read(list_due_schedules, 10)
        await bench.store.write(apply_plans, [plan_of(due, runs=(run_of(due, "b", due.next_at),))])
        running = await bench.claim_one()
        lane = f"task:{task.id}"
        (asked_for,) = await bench.queue(task, lane=lane)
        (backfilled,) = [
            o.run_id
            for o in (
                await bench.enqueue(
                    bench.batch(
                        task, source=RunSource.BACKFILL, lane=lane, schedule_id=due.id, slot_key="c"
                    )
                )
            )[0]
        ]
        bench.clock.advance(MINUTE)
        (due,) = await bench.store.read(list_due_schedules, 10)
        found = {run.run_id: (RunState(run.state), run.planned) for run in due.active}
        assert found == {
            waiting.run_id: (RunState.WAITING, True),
            running.run_id: (RunState.RUNNING, True),
            asked_for: (RunState.QUEUED, False),
            backfilled: (RunState.QUEUED, False),
        }

    async def test_active_runs_of_a_task_with_a_lane_of_its_own_come_with_it(
        self, bench: Bench
    ) -> None:
        task = await bench.task(lane="printer")
        other = await bench.task("other", lane="printer")
        await bench.schedule(task, bench.every(MINUTE))
        (mine,) = await bench.queue(task, lane="printer")
        (before,) = await bench.queue(task, lane=f"task:{task.id}")
        await bench.queue(other, lane="printer")
        bench.clock.advance(MINUTE)
        (due,) = await bench.store.read(list_due_schedules, 10)
        assert {run.run_id for run in due.active} == {mine, before}

    async def test_a_plan_can_cancel_and_stop_runs(self, bench: Bench) -> None:
        due = await due_schedule(bench)
        task = await bench.task()
        await bench.worker("w1")
        running, queued = await bench.queue(task, 2, lane="L")
        await bench.claim()
        (facts,) = await bench.store.read(get_open_runs, [queued])
        cancel = await bench.decide(facts, Cancelled(reason="newer"))
        plan = plan_of(due, cancels=(cancel,), cancel_running=(running,))
        assert await bench.store.write(apply_plans, [plan]) == [True]
        assert await bench.state(queued) is RunState.CANCELLED
        assert (await bench.run(running)).cancel_requested_at is not None
        assert (await bench.store.write(renew_worker, "w1", FAR)).cancels == (running,)

    async def test_a_plan_that_no_longer_fits_cancels_nothing(self, bench: Bench) -> None:
        due = await due_schedule(bench)
        (queued,) = await bench.queue(await bench.task())
        (facts,) = await bench.store.read(get_open_runs, [queued])
        cancel = await bench.decide(facts, Cancelled(reason="newer"))
        stale = replace(plan_of(due, cancels=(cancel,)), was=due.cursor + 1)
        assert await bench.store.write(apply_plans, [stale]) == [False]
        assert await bench.state(queued) is RunState.QUEUED

    async def test_a_tasks_switches_come_with_the_due_schedule(self, bench: Bench) -> None:
        due = await due_schedule(bench, priority=3)
        assert due.policy == Policy(priority=3)
        task = (await bench.store.read(get_tasks, [due.task_id]))[0]
        until = bench.store.now() + 60_000_000
        await bench.store.write(store_settlement.disable_task, task, "break", until, [])
        assert (await bench.store.read(list_due_schedules, 1))[0].paused_until == until
        await bench.store.write(store_settlement.disable_task, task, "off", None, [])
        assert not (await bench.store.read(list_due_schedules, 1))[0].enabled
        bench.clock.advance(seconds=5)
        await bench.store.write(enable_task, task)
        (due,) = await bench.store.read(list_due_schedules, 1)
        assert (due.enabled, due.paused_until) == (True, None)
        assert due.enabled_since == bench.store.now()


class TestLedger:
    """What is written about slots that did not run."""

    async def _plans(
        self, bench: Bench, *ledgers: tuple[tuple[int, int, LedgerReason], ...]
    ) -> int:
        """Apply one plan after the other; entries count slots from the first cursor."""
        task = await bench.task()
        await bench.schedule(task, bench.every(MINUTE))
        origin = bench.store.now()
        for ledger in ledgers:
            bench.clock.advance(hours=1)
            (due,) = await bench.store.read(list_due_schedules, 1)
            base = replace(due, cursor=origin)
            entries = tuple(_entry(base, *item) for item in ledger)
            cursor = entries[-1].last_at
            plan = replace(plan_of(due, ledger=entries), cursor=cursor, next_at=cursor + 60_000_000)
            assert await bench.store.write(apply_plans, [plan]) == [True]
        return task.id

    async def _rows(self, bench: Bench, task_id: int) -> list[tuple[str, str, str, int]]:
        rows = await bench.store.read(list_ledger_rows, task_id, 0, FAR)
        return [(r.reason.value, r.first_key, r.last_key, r.count) for r in rows]

    async def test_an_entry_becomes_a_row(self, bench: Bench) -> None:
        begun = bench.clock.now()
        task_id = await self._plans(bench, ((1, 5, LedgerReason.DISABLED),))
        (row,) = await bench.store.read(list_ledger_rows, task_id, 0, FAR)
        assert (row.reason, row.schedule) == (LedgerReason.DISABLED, "default")
        assert (row.first_key, row.last_key, row.count) == ("k1", "k5", 5)
        assert (row.first_at, row.last_at) == (begun + MINUTE, begun + 5 * MINUTE)
        assert row.noted_at == bench.clock.now()

    async def test_consecutive_slots_with_one_reason_share_a_row(self, bench: Bench) -> None:
        off = LedgerReason.DISABLED
        task_id = await self._plans(bench, ((1, 5, off),), ((6, 6, off),), ((7, 9, off),))
        assert await self._rows(bench, task_id) == [("disabled", "k1", "k9", 9)]

    async def test_another_reason_begins_another_row(self, bench: Bench) -> None:
        off, late = LedgerReason.DISABLED, LedgerReason.TOO_LATE
        task_id = await self._plans(bench, ((1, 2, off),), ((3, 4, late), (5, 5, off)))
        assert await self._rows(bench, task_id) == [
            ("disabled", "k1", "k2", 2),
            ("too_late", "k3", "k4", 2),
            ("disabled", "k5", "k5", 1),
        ]

    async def test_a_slot_that_ran_in_between_begins_another_row(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.schedule(task, bench.every(MINUTE))
        for number in (1, 2, 3):
            bench.clock.advance(MINUTE)
            (due,) = await bench.store.read(list_due_schedules, 1)
            if number == 2:
                plan = plan_of(due, runs=(run_of(due, "ran", due.next_at),))
            else:
                plan = plan_of(due, ledger=(_entry(due, 1, 1, LedgerReason.OVERLAP),))
            await bench.store.write(apply_plans, [plan])
        assert len(await bench.store.read(list_ledger_rows, task.id, 0, FAR)) == 2

    async def test_a_slot_that_ran_first_in_the_same_plan_does_too(self, bench: Bench) -> None:
        task = await bench.task(overlap=Overlap.SKIP)
        await bench.planned(task, every="10s")
        bench.clock.advance(seconds=30)
        await bench.plan()
        bench.clock.advance(seconds=10)
        await bench.end(await bench.claim_one())
        bench.clock.advance(seconds=30)
        await bench.plan()
        assert await bench.ledger(task) == [("overlap", 2), ("overlap", 3)]
        assert [run.slot_key for run in await bench.slots(task)] == ["g1:1", "g1:4"]

    async def test_rows_are_found_by_the_span_they_touch(self, bench: Bench) -> None:
        off, late = LedgerReason.DISABLED, LedgerReason.TOO_LATE
        origin = bench.store.now()
        task_id = await self._plans(bench, ((1, 10, off), (11, 20, late)))

        async def reasons(start: int, end: int) -> list[str]:
            at = [origin + minute * 60_000_000 for minute in (start, end)]
            return [r.reason.value for r in await bench.store.read(list_ledger_rows, task_id, *at)]

        assert await reasons(5, 6) == ["disabled"]
        assert await reasons(10, 11) == ["disabled", "too_late"]
        assert await reasons(21, 30) == []


# steps of a planner


def _planned(due: DueSchedule, _: int) -> SchedulePlan:
    return plan_of(due, runs=(run_of(due, f"g1:{due.next_at}", due.next_at),))


class TestPlanSteps:
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


# alignment with zone data

MARK = "1:data"


class TestAlignment:
    """What aligning reads, and the mark it leaves."""

    async def _standing(self, bench: Bench) -> ScheduleCursor:
        (standing,) = await bench.store.read(list_waiting_schedules, MARK, 0, 10)
        return standing

    async def test_a_new_schedule_stands_at_no_slot(self, bench: Bench) -> None:
        task = await bench.task()
        stored = await bench.schedule(task, bench.every(MINUTE))
        now = bench.store.now()
        assert await self._standing(bench) == ScheduleCursor(
            id=stored.id,
            version=1,
            generation=1,
            rule=stored.rule,
            stagger="main/job/default",
            cursor=now,
            next_at=now + 60_000_000,
            slot_key=None,
        )

    async def test_a_schedule_stands_at_the_slot_that_was_decided_last(self, bench: Bench) -> None:
        task = await bench.task(overlap=Overlap.SKIP)
        await bench.schedule(task, bench.every(MINUTE))
        found = []
        for _ in range(3):
            bench.clock.advance(MINUTE)
            await bench.plan()
            found.append((await self._standing(bench)).slot_key)
        assert found == ["g1:1", "g1:2", "g1:3"]
        assert await bench.ledger(task) == [("overlap", 2)]

    async def test_a_changed_schedule_stands_at_no_slot_of_its_old_rule(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.planned(task, every="1m")
        bench.clock.advance(MINUTE)
        await bench.plan()
        bench.clock.advance(seconds=1)
        await bench.planned(task, every="2m")
        assert (await self._standing(bench)).slot_key is None

    async def test_only_those_that_wait_stand_somewhere(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.planned(task, at=bench.clock.now() + MINUTE)
        bench.clock.advance(MINUTE)
        await bench.plan()
        assert await bench.store.read(list_waiting_schedules, MARK, 0, 10) == []

    async def test_they_come_in_pages_by_id(self, bench: Bench) -> None:
        task = await bench.task()
        names = [f"every{n}" for n in range(5)]
        ids = [(await bench.schedule(task, bench.every(MINUTE), name=n)).id for n in names]
        page = await bench.store.read(list_waiting_schedules, MARK, 0, 3)
        rest = await bench.store.read(list_waiting_schedules, MARK, page[-1].id, 3)
        assert [schedule.id for schedule in (*page, *rest)] == ids
        assert (len(page), len(rest)) == (3, 2)

    async def test_what_is_aligned_with_a_mark_is_not_aligned_again(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.schedule(task, bench.every(MINUTE))
        for mark in (MARK, "1:other", MARK):
            assert await bench.store.read(list_waiting_schedules, mark, 0, 10)
            assert await bench.store.write(align_schedules, [], mark) == []
            assert await bench.store.read(list_waiting_schedules, mark, 0, 10) == []

    async def test_a_schedule_is_moved_if_it_stands_where_it_stood(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.schedule(task, bench.every(MINUTE))
        standing = await self._standing(bench)
        now = bench.store.now()
        plan = SchedulePlan(
            schedule_id=standing.id,
            version=standing.version,
            was=standing.cursor,
            cursor=now + 5,
            next_at=now + 7,
        )
        assert await bench.store.write(align_schedules, [replace(plan, was=now - 1)], None) == [
            False
        ]
        assert await bench.store.write(align_schedules, [replace(plan, version=9)], None) == [False]
        assert await self._standing(bench) == standing
        assert await bench.store.write(align_schedules, [plan], None) == [True]
        assert await self._standing(bench) == replace(
            standing, version=standing.version + 1, cursor=now + 5, next_at=now + 7
        )
        (stored,) = await bench.store.read(list_schedules, [task.id])
        assert to_micros(stored.updated_at) == now + 5
        assert await bench.store.write(align_schedules, [plan], None) == [False]


# pauses

HOUR = timedelta(hours=1)


class TestPauses:
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
