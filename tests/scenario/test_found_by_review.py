"""Faults that a review found, each with the test that would have shown it."""

from datetime import timedelta

from rota.flow.define import tasks
from rota.flow.maintain import rescue
from rota.flow.plan import plan
from rota.library.rota import Rota
from rota.model.notifications import DeliveryState
from rota.model.runs import RunState
from rota.model.spaces import Limit, LimitScope
from rota.model.views import RunFilter
from rota.ports.channel import Channel
from rota.rules.permissions import LOCAL
from rota.store.claims import claim_runs, set_limits
from rota.store.settlement import request_cancel
from rota.store.views import list_deliveries, list_run_events, list_runs
from rota.testing.fakes import FixedChance, VirtualClock

EVERYTHING = RunFilter(limit=100)


def library(clock=None, **options):
    return Rota("memory:", clock=clock, chance=FixedChance(), **options)


async def test_work_until_idle_waits_for_a_spent_rate():
    limit = Limit(scope=LimitScope.GROUP, key="api", rate=2, period=timedelta(milliseconds=200))
    rota = Rota("memory:", limits=[limit])
    ran = []

    @rota.task("call", group="api")
    async def call(run):
        ran.append(run.payload)

    async with rota:
        await rota.enqueue_many("call", [1, 2, 3])
        await rota.work(until_idle=True)
    assert sorted(ran) == [1, 2, 3]


async def test_setting_the_same_rate_again_does_not_refill_it():
    clock = VirtualClock()
    limit = Limit(scope=LimitScope.GROUP, key="api", rate=1, period=timedelta(hours=1))
    rota = library(clock, limits=[limit])

    @rota.task("call", group="api")
    async def call(run):
        return None

    async with rota:
        await rota.enqueue_many("call", [1, 2])
        routes = ["python:call"]
        assert len((await rota.store.write(claim_runs, "w", ["background"], routes, 5)).leases) == 1
        await rota.store.write(set_limits, [limit])
        assert len((await rota.store.write(claim_runs, "w", ["background"], routes, 5)).leases) == 0


async def test_a_cancelled_run_whose_worker_is_lost_does_not_run_again():
    clock = VirtualClock()
    rota = library(clock)

    @rota.task("slow")
    async def slow(run):
        return None

    async with rota:
        run_id = await rota.enqueue("slow")
        await rota.store.write(claim_runs, "gone", ["background"], ["python:slow"], 1)
        await rota.cancel(run_id)
        await rescue(rota.store, FixedChance(), fence=False)
        assert (await rota.run(run_id)).state is RunState.CANCELLED


async def test_a_slot_on_time_leaves_caught_up_runs_in_the_queue():
    clock = VirtualClock()
    rota = library(clock)

    @rota.task("job", catch_up="all")
    async def job(run):
        return None

    async with rota:
        await rota.schedule("job", every="10m")
        clock.advance(timedelta(minutes=50, seconds=1))
        await plan(rota.store)
        clock.advance(timedelta(minutes=10))
        await plan(rota.store)
        runs = await rota.store.read(list_runs, EVERYTHING)
        assert [run.state for run in runs] == [RunState.QUEUED] * 6


async def test_a_task_disabled_by_its_failures_leaves_no_slot_to_be_claimed():
    clock = VirtualClock()
    rota = library(clock)

    @rota.task("job", disable_after=1, overlap="queue_all")
    async def job(run):
        raise ValueError

    async with rota:
        await rota.schedule("job", every="10s")
        clock.advance(timedelta(seconds=21))
        await plan(rota.store)
        await rota.work(until_idle=True)
        runs = await rota.store.read(list_runs, EVERYTHING)
        assert sorted(run.state for run in runs) == [RunState.CANCELLED, RunState.FAILED]


async def test_enabling_an_enabled_task_forgets_nothing():
    clock = VirtualClock()
    rota = library(clock)

    @rota.task("job")
    async def job(run):
        return None

    async with rota:
        await rota.schedule("job", every="10s")
        clock.advance(timedelta(seconds=11))
        await tasks.enable_task(rota.store, LOCAL, "job")
        await plan(rota.store)
        assert len(await rota.store.read(list_runs, EVERYTHING)) == 1


async def test_asking_a_finished_run_to_stop_records_nothing():
    rota = library()

    @rota.task("job")
    async def job(run):
        return None

    async with rota:
        run_id = await rota.enqueue("job")
        await rota.work(until_idle=True)
        before = await rota.store.read(list_run_events, run_id)
        await rota.store.write(request_cancel, [run_id], "cancelled by ann")
        assert await rota.store.read(list_run_events, run_id) == before


class Silent:
    """A channel that never answers."""

    name = "silent"

    async def send(self, delivery):
        raise TimeoutError


async def test_a_channel_that_does_not_answer_sends_the_rest_back():
    channel: Channel = Silent()
    rota = library(channels=[channel])

    @rota.task("talk")
    async def talk(run):
        run.send("one", to="silent:me")
        run.send("two", to="silent:me")

    async with rota:
        run_id = await rota.enqueue("talk")
        await rota.work(until_idle=True)
        states = {d.body: d.state for d in await rota.store.read(list_deliveries, run_id, 10)}
    assert set(states.values()) <= {DeliveryState.UNKNOWN, DeliveryState.PENDING}
    assert DeliveryState.UNKNOWN in states.values()
