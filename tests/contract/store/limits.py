"""Limits: how many may run at once and how many may start in a period, exact at every claim."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.model.spaces import Limit, LimitScope
from rota.model.tasks import Pool
from rota.store.claims import set_limits
from rota.store.views import list_limits
from tests.tools.store_bench import Bench, failed

BACK = Pool.BACKGROUND.value
FORE = Pool.FOREGROUND.value


class LimitContract:
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


class RateContract:
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
