"""GEN-14 and JAGC-04: several daemons on one PostgreSQL do everything once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import timedelta

import pytest

from rota.model.attempts import DONE
from rota.model.instants import to_micros
from rota.model.spaces import Limit, LimitScope
from rota.runtime.supervisor import Supervisor, SupervisorSettings
from rota.store.claims import set_limits
from rota.store.plans import next_due
from rota.store.tasks import put_schedule
from rota.store.views import count_runs, list_slot_runs
from rota.testing.fakes import ScriptedRunner
from rota.timing import rule_builders
from tests.tools.store_bench import FAR, Bench

SLOTS = 1_000


class Counting:
    """Counts executions and says when enough have happened."""

    def __init__(self, enough):
        self.runs = Counter()
        self.now = self.most = 0
        self._enough = enough
        self.reached = asyncio.Event()

    async def act(self, assignment):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        self.runs[assignment.lease.run_id] += 1
        if sum(self.runs.values()) >= self._enough:
            self.reached.set()
        return DONE


def crew_of(store, clock, chance, name, routes, act):
    settings = SupervisorSettings(
        worker_id=name, home="test", host="here", pid=1, slots=50, drain=timedelta(seconds=5)
    )
    return Supervisor(store, [ScriptedRunner(routes, act)], {}, settings, clock, chance)


async def run_both(crews, reached):
    for crew in crews:
        await crew.start()
    await run_on(crews, reached)


async def run_on(crews, reached):
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for crew in crews:
            group.create_task(crew.run())
        await reached.wait()
        for crew in crews:
            await crew.stop()


@pytest.fixture
def pair(postgres_address, clock, opened):
    from rota.store.postgres.database import PostgresDatabase

    return [opened(PostgresDatabase(postgres_address, clock, own_clock=True)) for _ in range(2)]


async def test_two_daemons_fire_each_of_a_thousand_slots_once(pair, clock, chance):
    bench = Bench(pair[0], clock)
    tasks = [await bench.task(f"t{n}") for n in range(50)]
    at = clock.now() + timedelta(minutes=5)
    rule = json.dumps(rule_builders.to_record(rule_builders.once(at, now=clock.now())))
    for start in range(0, SLOTS, 50):
        await asyncio.gather(
            *(
                pair[0].write(
                    put_schedule,
                    {
                        "task_id": task.id,
                        "name": f"s{start}",
                        "rule": rule,
                        "generation": 1,
                        "cursor": pair[0].now(),
                        "next_at": to_micros(at),
                    },
                )
                for task in tasks
            )
        )
    # Slots of one task queue behind each other; each of the thousand is to run.
    tasks = [await bench.task(task.name, overlap="allow") for task in tasks]
    clock.set(at)
    counting = Counting(SLOTS)
    crews = [
        crew_of(store, clock, chance, f"daemon{n}", bench.routes, counting.act)
        for n, store in enumerate(pair)
    ]
    await run_both(crews, counting.reached)
    assert len(counting.runs) == SLOTS
    assert set(counting.runs.values()) == {1}
    keys = set()
    for task in tasks:
        for run in await pair[1].read(list_slot_runs, task.id, 0, FAR):
            assert (run.state.value, run.epoch) == ("succeeded", 1)
            keys.add((run.schedule_id, run.slot_key))
    assert len(keys) == SLOTS
    assert await pair[0].read(next_due) is None


async def test_two_daemons_share_one_limit(pair, clock, chance):
    bench = Bench(pair[0], clock)
    await pair[0].write(set_limits, [Limit(scope=LimitScope.TOTAL, cap=5)])
    task = await bench.task()
    await bench.queue(task, 200)
    counting = Counting(200)
    crews = [
        crew_of(store, clock, chance, f"daemon{n}", bench.routes, counting.act)
        for n, store in enumerate(pair)
    ]
    await run_both(crews, counting.reached)
    assert counting.most <= 5
    assert await pair[1].read(count_runs, task.id) == {"succeeded": 200}


async def test_what_a_dead_daemon_held_goes_to_the_other_once(pair, clock, chance):
    dead, alive = Bench(pair[0], clock), Bench(pair[1], clock)
    task = await dead.task()
    await dead.queue(task, 20)
    await dead.worker("dead")
    assert len(await dead.claim(worker="dead")) == 20
    clock.advance(minutes=1)
    counting = Counting(20)
    crew = crew_of(alive.store, clock, chance, "alive", dead.routes, counting.act)
    await crew.start()
    while await alive.store.read(count_runs, task.id) == {"running": 20}:
        clock.advance(seconds=5)  # leases are judged by a clock that was watched for their length
        await crew._maintenance_step()
    await run_on([crew], counting.reached)
    assert set(counting.runs.values()) == {1}
    assert await alive.store.read(count_runs, task.id) == {"succeeded": 20}
