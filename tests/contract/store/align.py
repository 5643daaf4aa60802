"""Aligning: where schedules stand, by the name of a slot, and with what they are aligned."""

from __future__ import annotations

from dataclasses import replace

from rota.model.instants import to_micros
from rota.model.schedules import ScheduleCursor, SchedulePlan
from rota.model.tasks import Overlap
from rota.store.tasks import align_schedules, list_schedules, list_waiting_schedules
from tests.tools.store_bench import MINUTE, Bench

MARK = "1:data"


class AlignContract:
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
