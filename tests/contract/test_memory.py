"""What a store in memory promises beyond its dialect: it opens, works, and is gone when closed."""

from __future__ import annotations

import pytest

from rota.flow.observe.verification import verify
from rota.model.attempts import Succeeded
from rota.model.runs import RunState
from rota.store.sqlite.database import MemoryDatabase
from tests.tools.store_bench import Bench


async def test_runs_are_queued_claimed_and_settled(bench_in_memory):
    bench = bench_in_memory
    task = await bench.task()
    done, waiting = await bench.queue(task, 2)
    lease = await bench.claim_one()
    assert lease.run_id == done
    assert await bench.end(lease, Succeeded(result="1"))
    assert await bench.state(done) is RunState.SUCCEEDED
    assert await bench.state(waiting) is RunState.QUEUED
    assert (await verify(bench.store)).violations == ()


async def test_schedules_are_planned(bench_in_memory, clock):
    task = await bench_in_memory.task()
    await bench_in_memory.planned(task, every="1h")
    clock.advance(minutes=61)
    await bench_in_memory.plan()
    (run,) = await bench_in_memory.slots(task)
    assert await bench_in_memory.claim_ids() == [run.id]


async def test_what_was_written_is_gone_after_close(clock):
    store = MemoryDatabase(clock)
    await store.open()
    bench = Bench(store, clock)
    await bench.queue(await bench.task(), 3)
    await store.open()  # opening an open store keeps what is there
    assert (await verify(store)).counts["runs"] == 3
    incarnation = store.incarnation
    await store.close()
    await store.open()
    counts = (await verify(store)).counts
    assert set(counts.values()) <= {0}
    assert store.incarnation != incarnation
    await store.close()


async def test_two_stores_share_nothing(clock, opened_later):
    one, two = await opened_later(MemoryDatabase(clock)), await opened_later(MemoryDatabase(clock))
    bench = Bench(one, clock)
    await bench.queue(await bench.task())
    assert (await verify(one)).counts["runs"] == 1
    assert (await verify(two)).counts.get("runs", 0) == 0


async def test_a_failed_write_leaves_nothing(bench_in_memory):
    bench = bench_in_memory
    task = await bench.task()

    async def half(session):
        await session.run("delete_task", id=task.id, now=1)
        raise LookupError

    with pytest.raises(LookupError):
        await bench.store.write(half)
    assert (await bench.task_of(task)).deleted_at is None


@pytest.fixture
def bench_in_memory(memory, clock):
    return Bench(memory, clock)
