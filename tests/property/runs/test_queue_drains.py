"""Limits and lanes hold at every instant, and nothing is ever left behind in the queue."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.model.attempts import Cancelled, Failed, Lost, Released, Succeeded, WaitingForAnswer
from rota.model.runs import QueueState, RunState
from rota.model.spaces import Limit, LimitScope
from rota.model.tasks import Pool, Retry
from rota.model.views import RunFilter
from rota.store.claims import set_limits
from rota.store.plans import promote_delayed
from rota.store.sqlite.database import MemoryDatabase
from rota.store.views import list_runs
from rota.testing.fakes import VirtualClock
from tests.tools.store_bench import Bench

EVERYTHING = RunFilter(limit=10_000)
POOLS = ("foreground", "background")

kinds = st.fixed_dictionaries(
    {
        "space": st.sampled_from(["a", "b", "c"]),
        "pool": st.sampled_from(Pool),
        "lane": st.sampled_from([None, None, "L", "M"]),
        "group": st.sampled_from([None, "g", "h"]),
        "metered": st.booleans(),
        "priority": st.integers(0, 2),
    }
)
caps = st.fixed_dictionaries(
    {},
    optional={
        "total": st.integers(1, 4),
        "background": st.integers(1, 3),
        "space": st.integers(1, 2),
        "g": st.integers(1, 2),
    },
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("queue"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("later"), st.integers(0, 3), st.integers(1, 5)),
        st.tuples(st.just("claim"), st.integers(1, 6), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 9), st.integers(0, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 90), st.just(0)),
        st.tuples(st.just("limit"), st.integers(0, 2), st.just(0)),
    ),
    max_size=30,
)
OUTCOMES = (
    Succeeded(),
    Failed(code="x", message="boom"),
    Lost(reason="gone"),
    Released(),
    Cancelled(reason="no"),
    WaitingForAnswer(question="?"),
)


def limits_of(wanted):
    return [
        Limit(scope=LimitScope.TOTAL, cap=wanted.get("total")),
        Limit(scope=LimitScope.POOL, key="background", cap=wanted.get("background")),
        Limit(scope=LimitScope.SPACE, key="background", cap=wanted.get("space")),
        Limit(scope=LimitScope.GROUP, key="g", cap=wanted.get("g")),
    ]


class World:
    def __init__(self, bench, tasks, limits):
        self.bench = bench
        self.tasks = tasks
        self.limits = limits
        self.leases = []

    async def step(self, kind, one, two):
        bench = self.bench
        task = self.tasks[one % len(self.tasks)]
        match kind:
            case "queue":
                await bench.queue(task, two)
            case "later":
                await bench.queue(task, two, at=bench.clock.now() + timedelta(seconds=30))
            case "claim":
                await self.claim(one)
            case "end" if self.leases:
                lease = self.leases.pop(one % len(self.leases))
                await bench.end(lease, OUTCOMES[two])
            case "cancel":
                open_runs = await bench.store.read(list_runs, RunFilter(state=RunState.QUEUED))
                if open_runs:
                    run_id = open_runs[one % len(open_runs)].id
                    await bench.end_open(run_id, Cancelled(reason="no"))
            case "wait":
                bench.clock.advance(seconds=one)
                await bench.store.write(promote_delayed, 1_000)
            case "limit":
                self.limits = [self.limits, {}, {"total": 2, "space": 1}][one]
                await bench.store.write(set_limits, limits_of(self.limits))

    async def claim(self, want):
        before = await self.running()
        self.leases += await self.bench.claim(want)
        self.check(before, await self.running())

    async def running(self):
        runs = await self.bench.store.read(
            list_runs, RunFilter(state=RunState.RUNNING, limit=10_000)
        )
        kind = {task.id: task.policy for task in self.tasks}
        found = Counter()
        for run in runs:
            policy = kind[run.task_id]
            if policy.metered:
                found["total"] += 1
                found[run.pool.value] += 1
                found["space", run.pool.value, run.space] += 1
            found["group", policy.group] += 1
            found["lane", run.space, run.lane] += 1
        return found

    def check(self, before, now):
        """A claim never goes past a cap; what ran beyond a lowered one may run on."""
        for what, cap in (
            ("total", self.limits.get("total")),
            ("background", self.limits.get("background")),
            (("group", "g"), self.limits.get("g")),
            *((("space", "background", s), self.limits.get("space")) for s in "abc"),
        ):
            if cap is not None:
                assert now[what] <= max(cap, before[what]), what
        for key, count in now.items():
            if key[0] == "lane" and key[2] is not None:
                assert count == 1

    async def drain(self):
        """Go on until nothing can be claimed; every run must have ended or be waiting."""
        await self.bench.store.write(set_limits, limits_of(self.limits))
        for _ in range(500):
            self.bench.clock.advance(minutes=10)
            await self.bench.store.write(promote_delayed, 1_000)
            await self.claim(5)
            if not self.leases:
                break
            for lease in self.leases:
                await self.bench.end(lease)
            self.leases = []
        states = Counter(run.state for run in await self.bench.store.read(list_runs, EVERYTHING))
        assert states[RunState.QUEUED] == states[RunState.RUNNING] == 0, states


async def live(kinds_, wanted, todo):
    clock = VirtualClock()
    store = MemoryDatabase(clock)
    await store.open()
    try:
        bench = Bench(store, clock)
        retry = Retry(attempts=2, base=timedelta(seconds=20), jitter=0)
        tasks = [await bench.task(f"t{n}", retry=retry, **kind) for n, kind in enumerate(kinds_)]
        world = World(bench, tasks, wanted)
        await store.write(set_limits, limits_of(wanted))
        for step in todo:
            clock.advance(timedelta(milliseconds=1))
            await world.step(*step)
            ready = [
                (run.space, run.lane)
                for run in await store.read(list_runs, EVERYTHING)
                if run.queue_state is QueueState.READY and run.lane is not None
            ]
            assert len(ready) == len(set(ready))
        await world.drain()
    finally:
        await store.close()


@settings(max_examples=120, deadline=None)
@given(kinds_=st.lists(kinds, min_size=1, max_size=4), wanted=caps, todo=steps)
def test_limits_and_lanes_hold_and_the_queue_always_drains(kinds_, wanted, todo):
    asyncio.run(live(kinds_, wanted, todo))
