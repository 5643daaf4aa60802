"""Claims: limits, rates, lanes and what is cached about them, exact at every claim."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.flow.define.runs import answer_question
from rota.model.attempts import Cancelled, Drained, Lost
from rota.model.runs import QueueState, RunState
from rota.model.spaces import Limit, LimitScope
from rota.model.tasks import Pool, Retry
from rota.rules.permissions import LOCAL
from rota.store.claims import set_limits
from rota.store.plans import promote_delayed
from rota.store.queue import rebuild_queue_heads
from rota.store.transactions import QueryRows, Transaction
from rota.store.views import list_limits
from tests.tools.store_bench import Bench, failed

# limits and rates

BACK = Pool.BACKGROUND.value
FORE = Pool.FOREGROUND.value


class TestLimits:
    """Caps in all, per pool, per space, for one space and per group."""

    async def test_the_total_holds_over_many_claims(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 10)
        await bench.limit(LimitScope.TOTAL, cap=3)
        assert len(await bench.claim(2)) == 2
        assert len(await bench.claim(100, worker="w2")) == 1
        assert await bench.claim() == []

    async def test_the_total_holds_for_workers_that_claim_at_once(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 30)
        await bench.limit(LimitScope.TOTAL, cap=7)
        takes = await asyncio.gather(*(bench.claim_ids(5, worker=f"w{n}") for n in range(6)))
        assert sum(len(take) for take in takes) == 7

    async def test_an_end_makes_room_for_exactly_one(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 10)
        await bench.limit(LimitScope.TOTAL, cap=2)
        first, second = await bench.claim()
        for lease, outcome in ((first, None), (second, failed())):
            await bench.end(lease, outcome)
            assert len(await bench.claim()) == 1
            assert await bench.claim() == []

    async def test_the_total_counts_both_pools(self, bench: Bench) -> None:
        await bench.queue(await bench.task("fore", pool=Pool.FOREGROUND), 2)
        await bench.queue(await bench.task("back"), 5)
        await bench.limit(LimitScope.TOTAL, cap=3)
        assert len(await bench.claim()) == 3

    async def test_a_pool_has_its_own_cap(self, bench: Bench) -> None:
        fore = await bench.task("fore", pool=Pool.FOREGROUND)
        back = await bench.task("back")
        await bench.queue(fore, 5)
        await bench.queue(back, 5)
        await bench.limit(LimitScope.POOL, BACK, cap=2)
        await bench.limit(LimitScope.POOL, FORE, cap=4)
        taken = [lease.task_id for lease in await bench.claim()]
        assert (taken.count(fore.id), taken.count(back.id)) == (4, 2)
        assert await bench.claim() == []

    async def test_every_space_has_the_pools_default_cap(self, bench: Bench) -> None:
        spaces = [await bench.task(f"t{n}", space=f"s{n}") for n in range(3)]
        for task in spaces:
            await bench.queue(task, 5)
        await bench.limit(LimitScope.SPACE, BACK, cap=2)
        taken = [lease.space_id for lease in await bench.claim()]
        assert sorted(taken) == sorted([task.space_id for task in spaces] * 2)
        assert await bench.claim() == []

    async def test_a_space_may_have_a_cap_of_its_own(self, bench: Bench) -> None:
        big = await bench.task("big", space="big")
        small = await bench.task("small", space="small")
        await bench.queue(big, 5)
        await bench.queue(small, 5)
        await bench.limit(LimitScope.SPACE, BACK, cap=1)
        await bench.limit(LimitScope.SPACE, f"{BACK}/{big.space_id}", cap=4)
        taken = [lease.space_id for lease in await bench.claim()]
        assert (taken.count(big.space_id), taken.count(small.space_id)) == (4, 1)

    async def test_a_full_space_gets_its_turn_back_when_a_run_ends(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 5)
        await bench.limit(LimitScope.SPACE, BACK, cap=2)
        leases = await bench.claim()
        assert len(leases) == 2
        assert await bench.claim() == []
        await bench.end(leases[0])
        assert len(await bench.claim()) == 1

    async def test_a_full_space_does_not_hold_up_the_others(self, bench: Bench) -> None:
        loud = await bench.task("loud", space="loud")
        quiet = await bench.task("quiet", space="quiet")
        await bench.queue(loud, 10)
        await bench.limit(LimitScope.SPACE, BACK, cap=2)
        await bench.claim()
        ids = await bench.queue(quiet)
        assert await bench.claim_ids() == ids

    async def test_a_group_is_capped_across_tasks_spaces_and_pools(self, bench: Bench) -> None:
        one = await bench.task("one", space="a", group="g")
        two = await bench.task("two", space="b", group="g", pool=Pool.FOREGROUND)
        free = await bench.task("free", space="a")
        await bench.queue(one, 5)
        await bench.queue(two, 5)
        await bench.queue(free, 5)
        await bench.limit(LimitScope.GROUP, "g", cap=3)
        taken = [lease.task_id for lease in await bench.claim()]
        assert taken.count(one.id) + taken.count(two.id) == 3
        assert taken.count(free.id) == 5

    async def test_a_full_group_goes_on_when_one_of_it_ends(self, bench: Bench) -> None:
        await bench.queue(await bench.task(group="g"), 4)
        await bench.limit(LimitScope.GROUP, "g", cap=1)
        for _ in range(4):
            (lease,) = await bench.claim()
            assert await bench.claim() == []
            await bench.end(lease)

    async def test_a_group_without_a_limit_is_free(self, bench: Bench) -> None:
        await bench.queue(await bench.task(group="g"), 5)
        await bench.limit(LimitScope.GROUP, "other", cap=1)
        assert len(await bench.claim()) == 5

    async def test_lowering_a_cap_stops_nothing_that_runs(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 10)
        await bench.limit(LimitScope.TOTAL, cap=4)
        leases = await bench.claim()
        await bench.limit(LimitScope.TOTAL, cap=2)
        for lease in leases[:2]:
            await bench.end(lease)
            assert await bench.claim() == []
        await bench.end(leases[2])
        assert len(await bench.claim()) == 1

    async def test_raising_a_cap_lets_more_start_at_once(self, bench: Bench) -> None:
        await bench.queue(await bench.task(group="g"), 20)
        for scope, key in (
            (LimitScope.TOTAL, ""),
            (LimitScope.POOL, BACK),
            (LimitScope.SPACE, BACK),
        ):
            await bench.limit(scope, key, cap=20)
        await bench.limit(LimitScope.GROUP, "g", cap=20)
        running = 0
        for scope, key in (
            (LimitScope.TOTAL, ""),
            (LimitScope.POOL, BACK),
            (LimitScope.SPACE, BACK),
            (LimitScope.GROUP, "g"),
        ):
            await bench.limit(scope, key, cap=running + 1)
            assert len(await bench.claim()) == 1
            assert await bench.claim() == []
            await bench.limit(scope, key, cap=running + 3)
            assert len(await bench.claim()) == 2
            running += 3
            await bench.limit(scope, key, cap=20)

    async def test_removing_a_cap_frees_everything(self, bench: Bench) -> None:
        await bench.queue(await bench.task(group="g"), 6)
        for scope, key in (
            (LimitScope.SPACE, BACK),
            (LimitScope.GROUP, "g"),
            (LimitScope.TOTAL, ""),
        ):
            await bench.limit(scope, key, cap=1)
        assert len(await bench.claim()) == 1
        for scope, key in (
            (LimitScope.SPACE, BACK),
            (LimitScope.GROUP, "g"),
            (LimitScope.TOTAL, ""),
        ):
            await bench.limit(scope, key)
        assert len(await bench.claim()) == 5
        assert await bench.store.read(list_limits) == []

    async def test_unmetered_runs_ignore_total_pool_and_space(self, bench: Bench) -> None:
        metered = await bench.task("metered")
        free = await bench.task("free", metered=False)
        await bench.queue(metered, 3)
        ids = await bench.queue(free, 3)
        await bench.limit(LimitScope.TOTAL, cap=0)
        await bench.limit(LimitScope.POOL, BACK, cap=0)
        await bench.limit(LimitScope.SPACE, BACK, cap=0)
        assert await bench.claim_ids() == ids

    async def test_unmetered_runs_take_no_room_from_metered_ones(self, bench: Bench) -> None:
        metered = await bench.task("metered")
        free = await bench.task("free", metered=False)
        await bench.queue(free, 3)
        await bench.queue(metered, 3)
        await bench.limit(LimitScope.TOTAL, cap=2)
        taken = [lease.task_id for lease in await bench.claim()]
        assert (taken.count(free.id), taken.count(metered.id)) == (3, 2)

    async def test_unmetered_runs_still_count_in_their_group(self, bench: Bench) -> None:
        await bench.queue(await bench.task(metered=False, group="g"), 3)
        await bench.limit(LimitScope.GROUP, "g", cap=1)
        assert len(await bench.claim()) == 1

    async def test_a_waiting_run_takes_no_room(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 2)
        await bench.limit(LimitScope.TOTAL, cap=1)
        await bench.ask((await bench.claim())[0])
        assert len(await bench.claim()) == 1

    async def test_setting_limits_wakes_who_waits_for_runs(self, bench: Bench) -> None:
        heard: list[str] = []
        bench.store.subscribe(heard.append)
        await bench.limit(LimitScope.TOTAL, cap=1)
        assert heard == ["runs"]

    async def test_limits_are_listed_as_they_were_set(self, bench: Bench) -> None:
        wanted = [
            Limit(scope=LimitScope.GROUP, key="g", cap=2, rate=5, period=timedelta(seconds=30)),
            Limit(scope=LimitScope.TOTAL, cap=9),
        ]
        await bench.store.write(set_limits, wanted)
        found = await bench.store.read(list_limits)
        assert sorted(found, key=lambda limit: limit.scope) == wanted


class TestRates:
    """Rates per group: a bucket that refills evenly."""

    async def test_a_full_bucket_lets_a_burst_start(self, bench: Bench) -> None:
        await bench.queue(await bench.task(group="g"), 10)
        await bench.limit(LimitScope.GROUP, "g", rate=3, period=timedelta(minutes=1))
        assert len(await bench.claim()) == 3
        assert await bench.claim() == []

    async def test_a_spent_rate_says_when_to_come_back(self, bench: Bench) -> None:
        await bench.queue(await bench.task(group="g"), 10)
        await bench.limit(LimitScope.GROUP, "g", rate=3, period=timedelta(minutes=1))
        claimed = await bench.claimed()
        assert claimed.retry_at is not None
        wait = claimed.retry_at - bench.store.now()
        assert 20_000_000 <= wait <= 20_000_002
        bench.clock.advance(timedelta(microseconds=wait))
        assert len(await bench.claim()) == 1
        assert await bench.claim() == []

    async def test_the_bucket_refills_with_the_clock_and_never_overflows(
        self, bench: Bench
    ) -> None:
        await bench.queue(await bench.task(group="g"), 20)
        await bench.limit(LimitScope.GROUP, "g", rate=4, period=timedelta(minutes=1))
        await bench.claim()
        bench.clock.advance(seconds=31)
        assert len(await bench.claim()) == 2
        bench.clock.advance(hours=5)
        assert len(await bench.claim()) == 4

    async def test_the_rate_counts_starts_whatever_has_ended(self, bench: Bench) -> None:
        await bench.queue(await bench.task(group="g"), 5)
        await bench.limit(LimitScope.GROUP, "g", rate=2, period=timedelta(minutes=1))
        for lease in await bench.claim():
            await bench.end(lease)
        assert await bench.claim() == []

    async def test_a_spent_rate_does_not_hold_up_other_groups(self, bench: Bench) -> None:
        slow = await bench.task("slow", group="slow", priority=9)
        quick = await bench.task("quick")
        await bench.queue(slow, 5)
        await bench.limit(LimitScope.GROUP, "slow", rate=1, period=timedelta(hours=1))
        await bench.claim()
        ids = await bench.queue(quick, 2)
        assert await bench.claim_ids() == ids

    async def test_without_a_spent_rate_there_is_nothing_to_wait_for(self, bench: Bench) -> None:
        await bench.queue(await bench.task(group="g"), 1)
        await bench.limit(LimitScope.GROUP, "g", rate=5, period=timedelta(minutes=1))
        assert (await bench.claimed()).retry_at is None

    async def test_a_cap_and_a_rate_hold_together(self, bench: Bench) -> None:
        await bench.queue(await bench.task(group="g"), 10)
        await bench.limit(LimitScope.GROUP, "g", cap=2, rate=3, period=timedelta(minutes=1))
        leases = await bench.claim()
        assert len(leases) == 2
        await bench.end(leases[0])
        await bench.end(leases[1])
        assert len(await bench.claim()) == 1
        assert await bench.claim() == []


# lanes


class TestLanes:
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


# caches


class TestCaches:
    """Heads and pings are caches: runs alone are the truth."""

    async def test_healing_restores_what_claiming_caches(self, bench: Bench) -> None:
        task, laned = await bench.task(), await bench.task("laned", lane="L")
        ids = [*await bench.queue(task, 3), *await bench.queue(laned, 2)]
        await bench.claim(1, routes=["something else"])
        await bench.store.write(_forget)
        assert await bench.claim() == []
        assert await bench.store.write(rebuild_queue_heads) > 0
        assert sorted(await bench.claim_ids()) == ids[:4]


async def _forget(tx: Transaction) -> None:
    """Drop every head and every ping, as a restore from a damaged copy might."""
    found = await tx.rows("find_heads")
    for pool in {row[0] for row in found}:
        heads = QueryRows(
            {"space_id": r[1], "route": r[2], "grp": r[3], "metered": r[4]}
            for r in found
            if r[0] == pool
        )
        await tx.run("drop_heads", pool=pool, rows=heads)
    await tx.rows("take_pings", most=10_000, worker="")
