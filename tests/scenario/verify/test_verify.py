"""`verify` finds nothing wrong in a database that is sound, however busy, and says what it saw."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.flow.observe.verification import MAX_SLOTS, verify
from rota.flow.settle import settle_attempts
from rota.model.attempts import Assignment, AttemptReport, Succeeded
from rota.model.runs import RunState
from rota.model.tasks import After, Overlap
from rota.model.verification import MEANINGS, Invariant
from rota.store.tasks import put_schedule
from rota.store.verification import PAGE
from rota.store.workers import prune_runs
from rota.testing.fakes import FixedChance
from tests.tools.store_bench import micros


async def test_a_busy_database_holds(busy):
    found = await verify(busy.store)
    assert found.violations == ()
    assert found.clean
    assert {check.invariant for check in found.checks} == set(Invariant) == set(MEANINGS)
    assert all(check.looked_at for check in found.checks), found.checks
    assert {run.state for state in RunState for run in await busy.runs(state)} == set(RunState)
    assert any("pruned" in what for what in found.unseen)


async def test_a_look_in_the_middle_of_work_sees_one_moment(bench):
    task = await bench.task()
    await bench.task("then", after=After(task="job"))
    bench.clock.advance(minutes=2)

    async def work():
        for _ in range(25):
            await bench.queue(task, 5)
            claimed = await bench.claimed(5, routes=[task.route])
            ended = [
                (Assignment(x, task, ()), AttemptReport(outcome=Succeeded()))
                for x in claimed.leases
            ]
            await settle_attempts(bench.store, ended, FixedChance())

    async def look():
        seen = []
        while not working.done():
            found = await verify(bench.store)
            assert found.violations == ()
            seen.append(found.counts.get("runs", 0))
            await asyncio.sleep(0)
        return seen

    async with asyncio.TaskGroup() as group:
        working = group.create_task(work())
        looking = group.create_task(look())
    assert looking.result()
    assert (await verify(bench.store)).counts["runs"] == 250


async def test_more_rows_than_a_page_are_looked_at(bench):
    task = await bench.task()
    await bench.queue(task, PAGE + 500)
    for lease in (await bench.claim(2_200))[-300:]:
        await bench.end(lease)
    found = await verify(bench.store)
    assert found.clean
    assert found.counts == {"tasks": 1, "runs": PAGE + 500, "unfinished": PAGE + 200}


async def test_of_very_many_slots_the_newest_are_looked_at(desk):
    await desk.planned(await desk.task(), every="1s")
    desk.clock.advance(hours=4)
    await desk.plan()
    found = await verify(desk.store)
    assert found.clean
    assert {c.looked_at for c in found.checks if c.invariant is Invariant.EVERY_SLOT} == {7_680}
    assert found.unseen == ("the older slots of 1 schedule: only the newest 10,000 are checked",)


async def test_a_ledger_row_that_lies_partly_before_the_slots_looked_at_is_not_judged(desk):
    """A rule of milliseconds has more slots in a minute than are looked at."""
    await desk.schedule(await desk.task(), desk.every("1ms"))
    for _ in range(5):
        desk.clock.advance(seconds=7)
        await desk.plan()
    found = await verify(desk.store)
    assert found.violations == ()
    slots = {c.looked_at for c in found.checks if c.invariant is Invariant.EVERY_SLOT}
    assert max(slots) <= MAX_SLOTS
    assert found.unseen == ("the older slots of 1 schedule: only the newest 10,000 are checked",)


async def test_a_rule_that_cannot_be_read_is_said_to_be_unseen(desk):
    stored = await desk.planned(await desk.task(), every="1h")
    record = {"task_id": stored.task_id, "name": stored.name, "rule": "{}", "generation": 2}
    now = desk.store.now()
    await desk.store.write(put_schedule, {**record, "cursor": now, "next_at": now})
    await desk.plan()
    found = await verify(desk.store)
    assert found.clean
    assert found.unseen == ("the slots of 1 schedule whose rule cannot be read",)


async def test_what_was_pruned_is_not_missed(bench):
    task = await bench.task(overlap=Overlap.SKIP)
    await bench.planned(task, every="10s")
    for _ in range(20):
        bench.clock.advance(seconds=10)
        await bench.plan()
        for lease in await bench.claim():
            await bench.end(lease)
    await bench.store.write(prune_runs, bench.store.now() - micros(timedelta(seconds=95)), 1_000)
    found = await verify(bench.store)
    assert found.clean
    assert found.counts["runs"] == 10
    assert found.unseen == ("pruned records: slots before 2026-03-02 12:01:45 UTC",)
