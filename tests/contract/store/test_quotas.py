"""Quotas: what a member space may have only so many of, exact at every instant."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.errors import OverLimit
from rota.model.spaces import LimitScope, Quota
from rota.model.tasks import Overlap, Task
from rota.store.attempt_requests import defer_operations
from rota.store.tasks import drop_schedule, find_schedule
from rota.store.workers import list_queued_runs
from tests.tools.attempt_bench import Talk
from tests.tools.store_bench import Bench

QUEUED = Quota.QUEUED.value
SCHEDULES = Quota.SCHEDULES.value


async def count(bench: Bench, task: Task) -> int:
    """Return how many runs of a task are queued."""
    return len(await bench.store.read(list_queued_runs, task.id, planned_only=False))


class TestQuotas:
    """Queued runs and schedules of a space."""

    async def test_a_member_space_has_only_so_many_queued_runs(self, bench: Bench) -> None:
        of_ann = await bench.task(space="ann")
        of_bob = await bench.task(space="bob")
        await bench.limit(LimitScope.SPACE, QUEUED, cap=3)
        await bench.queue(of_ann, 2)
        with pytest.raises(OverLimit, match="limit_space_queued") as told:
            await bench.queue(of_ann, 2)
        assert "the space ann may have 3 queued runs" in str(told.value)
        assert await count(bench, of_ann) == 2, "all of a batch or nothing"
        await bench.queue(of_ann)
        with pytest.raises(OverLimit):
            await bench.queue(of_ann)
        await bench.queue(of_bob, 3)

    async def test_main_and_a_space_without_a_limit_may_have_any_number(self, bench: Bench) -> None:
        of_main, of_ann = await bench.task(), await bench.task(space="ann")
        await bench.queue(of_ann, 10)
        await bench.limit(LimitScope.SPACE, QUEUED, cap=3)
        await bench.queue(of_main, 10)
        await bench.queue(of_main, 10)

    async def test_a_space_may_have_a_quota_of_its_own(self, bench: Bench) -> None:
        of_ann, of_bob = await bench.task(space="ann"), await bench.task(space="bob")
        await bench.limit(LimitScope.SPACE, QUEUED, cap=1)
        await bench.limit(LimitScope.SPACE, f"{QUEUED}/{of_ann.space_id}", cap=5)
        await bench.queue(of_ann, 5)
        for task in (of_ann, of_bob):
            with pytest.raises(OverLimit):
                await bench.queue(task, 2)

    async def test_a_claimed_run_makes_room(self, bench: Bench) -> None:
        task = await bench.task(space="ann")
        await bench.limit(LimitScope.SPACE, QUEUED, cap=1)
        await bench.queue(task)
        await bench.claim_one()
        await bench.queue(task)
        with pytest.raises(OverLimit):
            await bench.queue(task)

    async def test_wherever_a_run_stands_in_the_queue_it_counts(self, bench: Bench) -> None:
        plain = await bench.task("plain", space="ann")
        laned = await bench.task("laned", space="ann", overlap=Overlap.QUEUE)
        await bench.limit(LimitScope.SPACE, QUEUED, cap=5)
        await bench.queue(plain)
        await bench.queue(plain, at=bench.clock.now() + timedelta(hours=1))
        await bench.queue(laned, 3, lane="one")
        await bench.claim(0)
        for task in (plain, laned):
            with pytest.raises(OverLimit):
                await bench.queue(task)

    async def test_a_key_that_is_known_finds_its_run_in_a_full_queue(self, bench: Bench) -> None:
        task = await bench.task(space="ann")
        await bench.limit(LimitScope.SPACE, QUEUED, cap=1)
        ((first,),) = await bench.enqueue(bench.batch(task, [1], ["k"]))
        ((again,),) = await bench.enqueue(bench.batch(task, [1], ["k"]))
        assert (again.run_id, again.created) == (first.run_id, False)
        with pytest.raises(OverLimit):
            await bench.enqueue(bench.batch(task, [1, 2], ["k", "l"]))
        with pytest.raises(OverLimit):
            await bench.enqueue(bench.batch(task, [2], ["l"]))

    async def test_nobody_gets_past_it_by_asking_at_once(self, bench: Bench) -> None:
        task, other = await bench.task(space="ann"), await bench.task(space="bob")
        await bench.limit(LimitScope.SPACE, QUEUED, cap=7)
        asked = [bench.queue(each) for _ in range(30) for each in (task, other)]
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(each, OverLimit) for each in told) == 46
        assert (await count(bench, task), await count(bench, other)) == (7, 7)

    async def test_slots_of_schedules_are_queued_beyond_it(self, bench: Bench) -> None:
        task = await bench.task(space="ann")
        await bench.limit(LimitScope.SPACE, QUEUED, cap=1)
        await bench.queue(task)
        await bench.planned(task, every="1m")
        bench.clock.advance(minutes=1)
        await bench.plan()
        assert await count(bench, task) == 2
        with pytest.raises(OverLimit):
            await bench.queue(task)

    async def test_deferred_subtasks_count_from_when_they_are_deferred(self, bench: Bench) -> None:
        task = await bench.task(space="ann")
        talk = Talk(bench, task)
        await bench.queue(task)
        lease, speaker = await talk.begin()
        await bench.limit(LimitScope.SPACE, QUEUED, cap=3)
        subtasks = [talk.subtask(speaker, f"step {n}") for n in range(3)]
        await bench.store.write(defer_operations, speaker, subtasks[:2])
        with pytest.raises(OverLimit):
            await bench.queue(task, 2)
        await bench.queue(task)
        with pytest.raises(OverLimit):
            await bench.store.write(defer_operations, speaker, subtasks[2:])
        await bench.end(lease)
        assert await count(bench, task) == 3

    async def test_a_member_space_has_only_so_many_schedules(self, bench: Bench) -> None:
        of_ann, of_main = await bench.task(space="ann"), await bench.task()
        await bench.limit(LimitScope.SPACE, SCHEDULES, cap=2)
        for name in ("one", "two"):
            await bench.planned(of_ann, name=name, every="1h")
        with pytest.raises(OverLimit, match="limit_space_schedules"):
            await bench.planned(of_ann, name="three", every="1h")
        await bench.planned(of_ann, name="two", every="2h")  # changed, and no more than before
        found = await bench.store.read(find_schedule, of_ann.id, "one")
        assert found is not None
        await bench.store.write(drop_schedule, found)
        await bench.planned(of_ann, name="three", every="1h")
        for name in ("one", "two", "three"):
            await bench.planned(of_main, name=name, every="1h")

    async def test_a_schedule_that_has_ended_makes_room_until_it_begins_anew(
        self, bench: Bench
    ) -> None:
        task = await bench.task(space="ann")
        await bench.limit(LimitScope.SPACE, SCHEDULES, cap=1)
        await bench.planned(task, name="once", at=bench.clock.now() + timedelta(minutes=1))
        bench.clock.advance(minutes=2)
        await bench.plan()
        await bench.planned(task, name="next", every="1h")
        with pytest.raises(OverLimit):
            await bench.planned(task, name="once", at=bench.clock.now() + timedelta(minutes=1))
