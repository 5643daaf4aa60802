"""Several stores at work on one database: nothing twice, no limit broken."""

from __future__ import annotations

import asyncio

from rota.model.spaces import LimitScope
from rota.store.views import count_runs, list_spaces
from rota.store.workers import prune_runs

MAX_RUNNING = """
select count(*), count(*) filter (where space_id = 1), count(*) filter (where grp = 'api')
from rota.runs where state = 'running'
"""


async def open_four(open_bench):
    return [await open_bench() for _ in range(4)]


async def drain(bench, worker, want, seen):
    """Claim and settle until nothing is ready; note every lease."""
    while leases := await bench.claim(want, worker=worker):
        seen.extend(lease.run_id for lease in leases)
        for lease in leases:
            assert await bench.end(lease)


async def test_four_claimers_never_lease_a_run_twice(open_bench):
    benches = await open_four(open_bench)
    task = await benches[0].task()
    for other in benches[1:]:
        await other.task()
    ids = await benches[0].queue(task, 2_000)
    seen = []

    async def claim_all(number, bench):
        while leases := await bench.claim(37, worker=f"w{number}"):
            seen.extend(lease.run_id for lease in leases)

    await asyncio.gather(*(claim_all(n, bench) for n, bench in enumerate(benches)))
    assert sorted(seen) == ids


async def test_caps_hold_at_every_instant_with_four_claimers(open_bench, connection):
    benches = await open_four(open_bench)
    first = benches[0]
    tasks = [
        await first.task("one", space="main", group="api"),
        await first.task("two", space="main"),
        await first.task("three", space="other", group="api"),
        await first.task("four", space="third"),
    ]
    for other in benches[1:]:
        other.routes = first.routes
    await first.limit(LimitScope.TOTAL, cap=7)
    await first.limit(LimitScope.SPACE, "background", cap=3)
    await first.limit(LimitScope.GROUP, "api", cap=2)
    for task in tasks:
        await first.queue(task, 60)
    done = asyncio.Event()
    seen = []

    async def watch():
        most = (0, 0, 0)
        while not done.is_set():
            counts = await connection.fetchrow(MAX_RUNNING)
            most = tuple(max(pair) for pair in zip(most, counts, strict=True))
        return most

    async def work():
        async with asyncio.TaskGroup() as group:
            for number, bench in enumerate(benches):
                group.create_task(until_empty(number, bench))
        done.set()

    async def until_empty(number, bench):
        while len(seen) < 240:
            await drain(bench, f"w{number}", 5, seen)

    watching = asyncio.get_running_loop().create_task(watch())
    await work()
    total, space, group = await watching
    assert (total <= 7, space <= 3, group <= 2) == (True, True, True), (total, space, group)
    assert len(seen) == len(set(seen)) == 240


async def test_runs_of_one_lane_never_overlap(open_bench):
    benches = await open_four(open_bench)
    task = await benches[0].task()
    for other in benches[1:]:
        other.routes = benches[0].routes
    for number in range(40):
        await benches[0].queue(task, 1, lane=f"lane:{number % 5}")
    working = set()
    order = {f"lane:{number}": [] for number in range(5)}

    async def work(number, bench):
        while sum(map(len, order.values())) < 40:
            for lease in await bench.claim(3, worker=f"w{number}"):
                lane = (await bench.run(lease.run_id)).lane
                assert lane not in working
                working.add(lane)
                order[lane].append(lease.run_id)
                await bench.store.read(list_spaces)
                working.remove(lane)
                assert await bench.end(lease)

    await asyncio.gather(*(work(n, bench) for n, bench in enumerate(benches)))
    assert all(ids == sorted(ids) for ids in order.values())


async def test_the_same_key_from_two_stores_at_once_is_one_run(open_bench):
    one, two = await open_bench(), await open_bench()
    task = await one.task()
    for number in range(20):
        key = f"k{number}"
        outcomes = await asyncio.gather(
            *(bench.enqueue(bench.batch(task, [number], [key])) for bench in (one, two) * 3)
        )
        found = [outcome for ((outcome,),) in outcomes]
        assert len({outcome.run_id for outcome in found}) == 1
        assert sum(outcome.created for outcome in found) == 1
        assert not any(outcome.conflict for outcome in found)


async def test_keys_in_opposite_orders_do_not_stop_each_other(open_bench):
    one, two = await open_bench(), await open_bench()
    task = await one.task()
    keys = [f"k{number}" for number in range(200)]
    ahead, back = await asyncio.gather(
        one.enqueue(one.batch(task, keys, keys)),
        two.enqueue(two.batch(task, keys[::-1], keys[::-1])),
    )
    assert [o.run_id for o in ahead[0]] == [o.run_id for o in back[0]][::-1]


async def test_another_payload_for_a_taken_key_is_a_conflict(open_bench):
    one, two = await open_bench(), await open_bench()
    task = await one.task()
    ((first,),) = await one.enqueue(one.batch(task, ["a"], ["k"]))
    ((again,),) = await two.enqueue(two.batch(task, ["b"], ["k"]))
    assert (again.run_id, again.created, again.conflict) == (first.run_id, False, True)


async def test_ids_come_in_the_order_of_the_payloads_among_others_that_are_taken(bench):
    task = await bench.task()
    ((taken,),) = await bench.enqueue(bench.batch(task, ["b"], ["b"]))
    (outcomes,) = await bench.enqueue(bench.batch(task, list("abc"), list("abc")))
    a, b, c = [outcome.run_id for outcome in outcomes]
    assert b == taken.run_id < a < c
    assert [(await bench.run(i)).payload for i in (a, b, c)] == ['"a"', '"b"', '"c"']


async def test_processes_that_declare_the_same_task_at_once_make_one(open_bench):
    benches = await open_four(open_bench)
    made = await asyncio.gather(*(bench.task("same") for bench in benches))
    assert len({task.id for task in made}) == 1


async def test_two_pruners_count_every_run_once(open_bench):
    one, two = await open_bench(), await open_bench()
    task = await one.task()
    await one.queue(task, 60)
    for lease in await one.claim(60):
        await one.end(lease)
    later = one.store.now() + 1_000_000
    deleted = 1
    while deleted:
        deleted = sum(
            await asyncio.gather(*(b.store.write(prune_runs, later, 7) for b in (one, two) * 2))
        )
    assert await one.store.read(count_runs, task.id) == {"succeeded": 60}
