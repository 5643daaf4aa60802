"""The queue: ids, keys, times, order and routes."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

from rota.model.runs import AttemptCause, QueueState, RunState
from rota.model.tasks import Pool
from rota.store.claims import claim_runs
from rota.store.plans import next_due, promote_delayed
from rota.store.queue import rebuild_queue_heads
from rota.store.views import count_ahead, view_queue
from tests.tools.store_bench import Bench


class TestQueue:
    """How runs come to stand in the queue."""

    async def test_ids_come_back_in_the_order_of_the_payloads(self, bench: Bench) -> None:
        task = await bench.task()
        batch = bench.batch(task, list(range(20)))
        (outcomes,) = await bench.enqueue(batch)
        ids = [outcome.run_id for outcome in outcomes]
        assert ids == sorted(set(ids))
        runs = [await bench.run(run_id) for run_id in ids]
        assert [json.loads(run.payload) for run in runs] == list(range(20))

    async def test_each_batch_gets_its_own_ids(self, bench: Bench) -> None:
        task, other = await bench.task(), await bench.task("other")
        batches = [
            bench.batch(task, ["a1", "a2"]),
            bench.batch(other, ["b"], ["key"]),
            bench.batch(task, ["c"]),
        ]
        outcomes = await bench.enqueue(*batches)
        payloads = [
            [json.loads((await bench.run(o.run_id)).payload) for o in results]
            for results in outcomes
        ]
        assert payloads == [["a1", "a2"], ["b"], ["c"]]

    async def test_a_new_run_is_queued_and_nobodys(self, bench: Bench) -> None:
        (run_id,) = await bench.queue(await bench.task())
        run = await bench.run(run_id)
        assert (run.state, run.place) == (RunState.QUEUED, QueueState.READY)
        assert (run.epoch, run.cause) == (0, AttemptCause.FIRST)
        assert run.holder is None
        assert run.started_at is None
        assert run.finished_at is None
        assert run.created_at == bench.clock.now()

    async def test_who_goes_before_a_run_is_counted(self, bench: Bench) -> None:
        task, urgent = await bench.task(), await bench.task("urgent", priority=5)
        other = await bench.task(space="ann")
        first, second = await bench.queue(task, 2)
        await bench.queue(other, 3)
        (before_both,) = await bench.queue(urgent)
        ahead = [await bench.store.read(count_ahead, run) for run in (first, second, before_both)]
        assert ahead == [1, 2, 0]

    async def test_an_empty_batch_queues_nothing(self, bench: Bench) -> None:
        assert await bench.enqueue(bench.batch(await bench.task(), [])) == [[]]
        assert await bench.claim() == []

    async def test_the_same_key_and_payload_is_the_same_run(self, bench: Bench) -> None:
        task = await bench.task()
        ((first,),) = await bench.enqueue(bench.batch(task, [{"day": 1}], ["k"]))
        ((again,),) = await bench.enqueue(bench.batch(task, [{"day": 1}], ["k"]))
        assert first.created
        assert (again.run_id, again.created, again.conflict) == (first.run_id, False, False)
        assert len(await bench.claim()) == 1

    async def test_the_same_key_with_another_payload_is_a_conflict(self, bench: Bench) -> None:
        task = await bench.task()
        ((first,),) = await bench.enqueue(bench.batch(task, [1], ["k"]))
        ((other,),) = await bench.enqueue(bench.batch(task, [2], ["k"]))
        assert (other.run_id, other.created, other.conflict) == (first.run_id, False, True)
        assert (await bench.run(first.run_id)).payload == "1"

    async def test_a_key_lives_on_after_its_run_has_finished(self, bench: Bench) -> None:
        task = await bench.task()
        ((first,),) = await bench.enqueue(bench.batch(task, [1], ["k"]))
        await bench.end(await bench.claim_one())
        ((again,),) = await bench.enqueue(bench.batch(task, [1], ["k"]))
        assert (again.run_id, again.created) == (first.run_id, False)
        assert await bench.claim() == []

    async def test_tasks_do_not_share_keys(self, bench: Bench) -> None:
        one, two = await bench.task("one"), await bench.task("two")
        outcomes = await bench.enqueue(bench.batch(one, [1], ["k"]), bench.batch(two, [2], ["k"]))
        assert [o.created for results in outcomes for o in results] == [True, True]

    async def test_a_key_twice_in_one_batch_is_one_run(self, bench: Bench) -> None:
        task = await bench.task()
        batch = bench.batch(task, [1, 1, 2, 3], ["a", "a", "a", None])
        (outcomes,) = await bench.enqueue(batch)
        assert [o.created for o in outcomes] == [True, False, False, True]
        assert [o.conflict for o in outcomes] == [False, False, True, False]
        assert outcomes[0].run_id == outcomes[1].run_id == outcomes[2].run_id
        assert len(await bench.claim()) == 2

    async def test_concurrent_callers_get_their_own_answers(self, bench: Bench) -> None:
        task = await bench.task()
        batches = [bench.batch(task, [number]) for number in range(40)]
        answers = await asyncio.gather(*(bench.enqueue(batch) for batch in batches))
        for number, ((outcome,),) in enumerate(answers):
            assert (await bench.run(outcome.run_id)).payload == str(number)

    async def test_concurrent_callers_with_one_key_make_one_run(self, bench: Bench) -> None:
        task = await bench.task()
        batches = [bench.batch(task, [1], ["k"]) for _ in range(20)]
        answers = await asyncio.gather(*(bench.enqueue(batch) for batch in batches))
        outcomes = [outcome for ((outcome,),) in answers]
        assert len({o.run_id for o in outcomes}) == 1
        assert sum(o.created for o in outcomes) == 1

    async def test_queueing_wakes_who_waits_for_runs(self, bench: Bench) -> None:
        task = await bench.task()
        heard: list[str] = []
        stop = bench.store.subscribe(heard.append)
        await bench.queue(task)
        assert "runs" in heard
        stop()
        heard.clear()
        await bench.queue(task)
        assert heard == []


class TestDelayed:
    """How runs wait for their time."""

    async def test_a_later_run_cannot_be_claimed_before_its_time(self, bench: Bench) -> None:
        at = bench.clock.now() + timedelta(minutes=5)
        (run_id,) = await bench.queue(await bench.task(), at=at)
        assert (await bench.run(run_id)).place is QueueState.LATER
        bench.clock.advance(minutes=4)
        assert await bench.store.write(promote_delayed, 100) == 0
        assert await bench.claim() == []

    async def test_a_later_run_is_promoted_when_its_time_has_come(self, bench: Bench) -> None:
        at = bench.clock.now() + timedelta(minutes=5)
        (run_id,) = await bench.queue(await bench.task(), at=at)
        bench.clock.set(at)
        assert await bench.store.write(promote_delayed, 100) == 1
        assert (await bench.run(run_id)).place is QueueState.READY
        assert await bench.claim_ids() == [run_id]

    async def test_promoting_takes_the_earliest_first_and_no_more_than_asked(
        self, bench: Bench
    ) -> None:
        task, now = await bench.task(), bench.clock.now()
        ids = [(await bench.queue(task, at=now + timedelta(minutes=m)))[0] for m in (3, 1, 2)]
        bench.clock.advance(minutes=10)
        assert await bench.store.write(promote_delayed, 2) == 2
        assert (await bench.run(ids[0])).place is QueueState.LATER
        assert await bench.store.write(promote_delayed, 2) == 1

    async def test_a_time_in_the_past_means_now(self, bench: Bench) -> None:
        at = bench.clock.now() - timedelta(minutes=5)
        (run_id,) = await bench.queue(await bench.task(), at=at)
        assert await bench.claim_ids() == [run_id]

    async def test_the_next_delayed_run_is_what_planning_waits_for(self, bench: Bench) -> None:
        task, now = await bench.task(), bench.clock.now()
        assert await bench.store.read(next_due) is None
        heard: list[str] = []
        bench.store.subscribe(heard.append)
        await bench.queue(task, at=now + timedelta(minutes=7))
        await bench.queue(task, at=now + timedelta(minutes=3))
        due = await bench.store.read(next_due)
        assert due == bench.store.now() + 3 * 60_000_000
        assert "later" in heard


class TestClaim:
    """Who is claimed, in which order, and as what."""

    async def test_a_claim_gives_a_lease_that_tells_all_about_the_run(self, bench: Bench) -> None:
        task = await bench.task()
        ((outcome,),) = await bench.enqueue(bench.batch(task, [{"a": 1}], ["k"]))
        claimed = await bench.claimed(worker="w7")
        (lease,) = claimed.leases
        assert (lease.run_id, lease.epoch, lease.task_id) == (outcome.run_id, 1, task.id)
        assert (lease.route, lease.key, json.loads(lease.payload)) == (task.route, "k", {"a": 1})
        assert (lease.cause, lease.retries, lease.losses) == ("first", 0, 0)
        assert claimed.tasks == {task.id: task}
        run = await bench.run(outcome.run_id)
        assert (run.state, run.place, run.holder) == (RunState.RUNNING, None, "w7")
        assert (run.epoch, run.started_at) == (1, bench.clock.now())

    async def test_a_claim_tells_of_a_task_as_it_stands_now(self, bench: Bench) -> None:
        for priority in (1, 2, 3):  # changed at one and the same instant
            task = await bench.task(priority=priority)
            await bench.queue(task)
            claimed = await bench.claimed()
            assert claimed.tasks[task.id].policy.priority == priority

    async def test_what_a_claim_leaves_of_a_quiet_queue_is_found_by_the_next(
        self, bench: Bench
    ) -> None:
        one, other = await bench.task("one"), await bench.task("other")
        ids = [*await bench.queue(one, 3), *await bench.queue(other, 3)]
        claims = [await bench.claim_ids(2) for _ in range(4)]
        assert [len(claim) for claim in claims] == [2, 2, 2, 0]
        assert sorted(run_id for claim in claims for run_id in claim) == sorted(ids)

    async def test_a_run_is_claimed_once(self, bench: Bench) -> None:
        ids = await bench.queue(await bench.task(), 10)
        takes = await asyncio.gather(*(bench.claim_ids(3, worker=f"w{n}") for n in range(6)))
        taken = [run_id for take in takes for run_id in take]
        assert sorted(taken) == ids

    async def test_a_claim_takes_no_more_than_it_wants(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 10)
        assert len(await bench.claim(4)) == 4
        assert await bench.claim(0) == []
        assert len(await bench.claim(100)) == 6

    async def test_an_empty_queue_gives_nothing(self, bench: Bench) -> None:
        await bench.task()
        assert await bench.claim() == []

    async def test_foreground_goes_first(self, bench: Bench) -> None:
        slow = await bench.task("slow", priority=100)
        quick = await bench.task("quick", pool=Pool.FOREGROUND)
        behind = await bench.queue(slow, 2)
        before = await bench.queue(quick, 2)
        assert await bench.claim_ids(3) == [*before, behind[0]]

    async def test_only_the_pools_asked_for_are_claimed(self, bench: Bench) -> None:
        await bench.queue(await bench.task("slow"))
        (quick,) = await bench.queue(await bench.task("quick", pool=Pool.FOREGROUND))
        claimed = await bench.store.write(
            claim_runs, "w", [Pool.FOREGROUND.value], bench.routes, 10
        )
        assert [lease.run_id for lease in claimed.leases] == [quick]

    async def test_inside_a_space_priority_goes_before_age(self, bench: Bench) -> None:
        task = await bench.task()
        low = await bench.queue(task, priority=-5)
        first = await bench.queue(task)
        second = await bench.queue(task)
        high = await bench.queue(task, priority=5)
        taken = [(await bench.claim_one()).run_id for _ in range(4)]
        assert taken == [*high, *first, *second, *low]

    async def test_priority_counts_across_the_tasks_of_a_space(self, bench: Bench) -> None:
        one, two = await bench.task("one"), await bench.task("two")
        low = await bench.queue(one, 3)
        high = await bench.queue(two, 2, priority=1)
        assert await bench.claim_ids(3) == [*high, low[0]]

    async def test_age_is_the_time_since_a_run_became_available(self, bench: Bench) -> None:
        task, now = await bench.task(), bench.clock.now()
        later = await bench.queue(task, at=now + timedelta(minutes=1))
        bench.clock.advance(minutes=2)
        newer = await bench.queue(task)
        await bench.store.write(promote_delayed, 10)
        assert await bench.claim_ids() == [*later, *newer]

    async def test_spaces_take_turns(self, bench: Bench) -> None:
        loud = await bench.task("loud", space="loud")
        quiet = await bench.task("quiet", space="quiet")
        await bench.queue(loud, 20)
        bench.clock.advance(seconds=1)
        await bench.queue(quiet, 3)
        spaces = []
        for _ in range(8):
            bench.clock.advance(seconds=1)
            spaces.append((await bench.claim_one()).space_id)
        assert spaces.count(quiet.space_id) == 3
        assert spaces[1:7].count(loud.space_id) == 3

    async def test_priority_buys_nothing_against_another_space(self, bench: Bench) -> None:
        loud = await bench.task("loud", space="loud")
        quiet = await bench.task("quiet", space="quiet")
        await bench.queue(loud, 10, priority=1_000)
        await bench.queue(quiet, 10)
        taken = [lease.space_id for lease in await bench.claim(10)]
        assert taken.count(loud.space_id) == taken.count(quiet.space_id) == 5

    async def test_what_one_space_leaves_another_may_use(self, bench: Bench) -> None:
        few = await bench.task("few", space="few")
        many = await bench.task("many", space="many")
        await bench.queue(few, 1)
        await bench.queue(many, 20)
        assert len(await bench.claim(10)) == 10

    async def test_only_served_routes_are_claimed(self, bench: Bench) -> None:
        mine, other = await bench.task("mine"), await bench.task("other")
        await bench.queue(other, 3)
        ids = await bench.queue(mine)
        assert await bench.claim_ids(routes=[mine.route]) == ids
        assert len(await bench.claim(routes=[other.route])) == 3

    async def test_unserved_routes_do_not_block_served_ones(self, bench: Bench) -> None:
        for number in range(100):
            await bench.queue(await bench.task(f"unserved{number}"), priority=9)
        bench.routes.clear()
        ids = await bench.queue(await bench.task("served"))
        assert await bench.claim_ids(1) == ids

    async def test_nobody_claims_without_routes(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        assert await bench.claim(routes=[]) == []

    async def test_an_unserved_route_is_a_warning_in_the_view(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.queue(task)
        await bench.claim(routes=["something else"])
        assert (await bench.store.read(view_queue)).unserved_routes == (task.route,)
        await bench.worker("w1")
        assert (await bench.store.read(view_queue)).unserved_routes == ()

    async def test_healing_a_healthy_queue_changes_nothing_claimable(self, bench: Bench) -> None:
        ids = await bench.queue(await bench.task(), 3)
        await bench.store.write(rebuild_queue_heads)
        await bench.store.write(rebuild_queue_heads)
        assert await bench.claim_ids() == ids
        assert await bench.claim() == []
