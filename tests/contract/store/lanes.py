"""Lanes: runs of one lane never overlap, and only the lane's best waits to be claimed."""

from __future__ import annotations

from datetime import timedelta

from rota.flow.define.runs import answer_question
from rota.model.attempts import Cancelled, Drained, Lost
from rota.model.runs import QueueState, RunState
from rota.model.tasks import Pool, Retry
from rota.rules.permissions import LOCAL
from rota.store.plans import promote_delayed
from tests.tools.store_bench import Bench, failed


class LaneContract:
    """What a lane offers, and what frees it."""

    async def test_one_of_a_lane_runs_at_a_time(self, bench: Bench) -> None:
        ids = await bench.queue(await bench.task(lane="L"), 3)
        for run_id in ids:
            (lease,) = await bench.claim()
            assert lease.run_id == run_id
            assert await bench.claim() == []
            await bench.end(lease)

    async def test_only_the_head_of_a_lane_is_ready(self, bench: Bench) -> None:
        ids = await bench.queue(await bench.task(lane="L"), 3)
        await bench.claim(0)
        places = [(await bench.run(run_id)).place for run_id in ids]
        assert places == [QueueState.READY, QueueState.HELD, QueueState.HELD]

    async def test_lanes_do_not_wait_for_each_other(self, bench: Bench) -> None:
        ids = [
            *await bench.queue(await bench.task("one", lane="A")),
            *await bench.queue(await bench.task("two", lane="B")),
            *await bench.queue(await bench.task("free")),
        ]
        assert sorted(await bench.claim_ids()) == ids

    async def test_a_lane_joins_the_tasks_of_a_space(self, bench: Bench) -> None:
        one, two = await bench.task("one", lane="L"), await bench.task("two", lane="L")
        first = await bench.queue(one)
        second = await bench.queue(two)
        (lease,) = await bench.claim()
        assert [lease.run_id] == first
        await bench.end(lease)
        assert await bench.claim_ids() == second

    async def test_spaces_do_not_share_lanes(self, bench: Bench) -> None:
        await bench.queue(await bench.task("one", space="a", lane="L"))
        await bench.queue(await bench.task("two", space="b", lane="L"))
        assert len(await bench.claim()) == 2

    async def test_priority_decides_inside_a_lane(self, bench: Bench) -> None:
        task = await bench.task(lane="L")
        (low,) = await bench.queue(task)
        await bench.claim(0)
        (high,) = await bench.queue(task, priority=5)
        (lease,) = await bench.claim()
        assert lease.run_id == high
        assert (await bench.run(low)).place is QueueState.HELD

    async def test_foreground_decides_before_priority(self, bench: Bench) -> None:
        back = await bench.task("back", lane="L", priority=9)
        fore = await bench.task("fore", lane="L", pool=Pool.FOREGROUND)
        await bench.queue(back)
        (quick,) = await bench.queue(fore)
        assert await bench.claim_ids() == [quick]

    async def test_a_cancelled_head_lets_the_next_one_go(self, bench: Bench) -> None:
        first, second = await bench.queue(await bench.task(lane="L"), 2)
        await bench.claim(0)
        assert await bench.end_open(first, Cancelled(reason="no"))
        assert await bench.claim_ids() == [second]

    async def test_a_cancelled_running_run_frees_its_lane(self, bench: Bench) -> None:
        _, second = await bench.queue(await bench.task(lane="L"), 2)
        await bench.end((await bench.claim())[0], Cancelled(reason="no"))
        assert await bench.claim_ids() == [second]

    async def test_waiting_frees_the_lane(self, bench: Bench) -> None:
        first, second = await bench.queue(await bench.task(lane="L"), 2)
        await bench.ask((await bench.claim())[0])
        assert await bench.claim_ids() == [second]
        assert await bench.state(first) is RunState.WAITING

    async def test_an_answered_run_waits_for_its_lane(self, bench: Bench) -> None:
        first, second = await bench.queue(await bench.task(lane="L"), 2)
        question = await bench.ask((await bench.claim())[0])
        (other,) = await bench.claim()
        await _answer(bench, first, question)
        assert await bench.claim() == []
        assert other.run_id == second
        await bench.end(other)
        assert await bench.claim_ids() == [first]

    async def test_a_delayed_retry_does_not_hold_the_lane(self, bench: Bench) -> None:
        retry = Retry(attempts=3, base=timedelta(minutes=1), jitter=0)
        first, second = await bench.queue(await bench.task(lane="L", retry=retry), 2)
        await bench.end((await bench.claim())[0], failed())
        assert (await bench.run(first)).place is QueueState.LATER
        assert await bench.claim_ids() == [second]

    async def test_a_retry_waits_until_the_lane_is_free(self, bench: Bench) -> None:
        retry = Retry(attempts=3, base=timedelta(minutes=1), jitter=0)
        first, _ = await bench.queue(await bench.task(lane="L", retry=retry), 2)
        await bench.end((await bench.claim())[0], failed())
        (second,) = await bench.claim()
        bench.clock.advance(minutes=2)
        await bench.store.write(promote_delayed, 10)
        assert await bench.claim() == []
        assert (await bench.run(first)).place is QueueState.HELD
        await bench.end(second)
        assert await bench.claim_ids() == [first]

    async def test_a_later_run_of_a_lane_is_held_when_its_time_comes(self, bench: Bench) -> None:
        task = await bench.task(lane="L")
        (later,) = await bench.queue(task, at=bench.clock.now() + timedelta(minutes=1))
        (now,) = await bench.queue(task)
        (lease,) = await bench.claim()
        assert lease.run_id == now
        bench.clock.advance(minutes=2)
        await bench.store.write(promote_delayed, 10)
        assert await bench.claim() == []
        await bench.end(lease)
        assert await bench.claim_ids() == [later]

    async def test_a_lost_or_drained_run_goes_back_to_its_lane(self, bench: Bench) -> None:
        first, second = await bench.queue(await bench.task(lane="L"), 2)
        for outcome in (Lost(reason="gone"), Drained()):
            (lease,) = await bench.claim()
            assert lease.run_id == first
            await bench.end(lease, outcome)
        await bench.end((await bench.claim())[0])
        assert await bench.claim_ids() == [second]

    async def test_a_lane_survives_many_changes_of_mind(self, bench: Bench) -> None:
        task = await bench.task(lane="L")
        ids = []
        for priority in (1, 5, 3, 2, 4):
            ids += await bench.queue(task, priority=priority)
            await bench.claim(0)
        ready = [i for i in ids if (await bench.run(i)).place is QueueState.READY]
        assert ready == [ids[1]]
        order = []
        for _ in ids:
            (lease,) = await bench.claim()
            order.append(lease.run_id)
            await bench.end(lease)
        assert order == [ids[1], ids[4], ids[2], ids[3], ids[0]]


async def _answer(bench: Bench, run_id: int, question: int) -> None:
    await answer_question(bench.store, LOCAL, question, "yes")
    assert await bench.state(run_id) is RunState.QUEUED
