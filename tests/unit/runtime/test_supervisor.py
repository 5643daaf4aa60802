"""The supervisor: roles start together, wake each other, trust no lease too long, and drain."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.errors import Unavailable
from rota.model.attempts import DONE, AttemptReport, Failed, KeptAttempt, Succeeded
from rota.model.heartbeats import MachineLoad
from rota.model.runs import RunState
from rota.model.views import RunFilter
from rota.runtime.worker import AttemptStop, Worker
from rota.store.heartbeats import list_machine_samples
from rota.store.plans import plan_due
from rota.store.settlement import request_cancel, settle
from rota.store.sqlite.database import MemoryDatabase
from rota.store.views import get_run, list_attempts, list_runs, list_workers, view_queue
from rota.store.workers import fence_other_workers, register_worker, renew_worker
from rota.testing.fakes import ScriptedRunner
from tests.tools.store_bench import MINUTE, Bench, micros
from tests.unit.attempt.keeper_home_fake import assignment
from tests.unit.runtime.conftest import Stage

# roles

LEASE = timedelta(seconds=30)


async def test_a_queued_run_wakes_the_worker(desk, stage):
    async with stage().working() as on:
        (run_id,) = await desk.queue(await desk.task())
        assert (await on.begun()).lease.run_id == run_id
        on.puppet.release.set()
        await on.crew.idle()
        assert await desk.state(run_id) is RunState.SUCCEEDED


async def test_a_due_schedule_wakes_everybody_in_turn(desk, stage):
    async def act(assignment):
        return AttemptReport(outcome=Succeeded(result='"hi"'))

    task = await desk.task(deliver_to="test:ann")
    async with stage(act).working() as on:
        await desk.planned(task, every="1m")
        desk.clock.advance(MINUTE)
        on.crew.planner.wake()
        await on.begun()
        await on.crew.idle()
        assert [d.body for d in on.channel.sent] == ["hi"]


class OrderedStore(MemoryDatabase):
    """A store that notes when its planner asks."""

    def __init__(self, clock):
        super().__init__(clock)
        self.asked = asyncio.Event()
        self.order = []

    async def write(self, operation, *args, **kwargs):
        if operation is plan_due:
            self.order.append("plan")
            self.asked.set()
        return await super().write(operation, *args, **kwargs)


@pytest.mark.parametrize(
    ("elsewhere", "left", "order"),
    [
        (False, timedelta(0), ["wake", "plan"]),
        (False, timedelta(microseconds=600), ["wake", "plan"]),
        (False, timedelta(seconds=1), ["plan"]),
        (True, timedelta(0), ["plan"]),
    ],
)
async def test_who_works_claims_beside_what_is_planned(
    clock, chance, opened_later, monkeypatch, elsewhere, left, order
):
    store = await opened_later(OrderedStore(clock))
    desk = Bench(store, clock)
    await desk.planned(await desk.task(), every="1m")
    async with Stage(desk, chance).working() as on:
        await store.asked.wait()
        monkeypatch.setattr(store, "remote", elsewhere)
        monkeypatch.setattr(on.crew.worker, "wake", lambda: store.order.append("wake"))
        store.asked.clear()
        store.order.clear()
        clock.advance(MINUTE - left)
        on.crew.planner.wake()
        await store.asked.wait()
        assert store.order == order


async def test_every_heartbeat_tells_of_the_machine(desk, stage):
    read = asyncio.Event()

    def gauge():
        read.set()
        return MachineLoad(50.0, 1, 2)

    async with stage(gauge=gauge).working():
        await read.wait()
    (reading,) = await desk.store.read(list_machine_samples, 0, desk.store.now() + 1, None, 10)
    assert (reading.home, reading.host, reading.load) == ("h", "here", MachineLoad(50.0, 1, 2))


async def test_a_worker_takes_no_more_than_its_slots(desk, stage):
    await desk.queue(await desk.task(), 9)
    async with stage(slots=4).working() as on:
        for _ in range(4):
            await on.begun()
        assert (await desk.store.read(view_queue)).running == 4
        assert on.puppet.begun.empty()
        on.puppet.release.set()
        await on.crew.idle()
        assert (await desk.store.read(view_queue)).ready == 0


async def test_starting_registers_and_stopping_retires(desk, stage):
    await desk.task()
    on = stage()
    async with on.working():
        (view,) = await desk.store.read(list_workers)
        assert (view.id, view.routes, view.slots) == ("me", ("python:job",), 10)
        assert view.roles == "maintenance,planner,sender,worker"
    assert await desk.store.read(list_workers) == []
    await on.crew.stop()


async def test_draining_gives_back_what_does_not_end(desk, stage):
    (run_id,) = await desk.queue(await desk.task())
    async with stage().working() as on:
        await on.begun()
    run = await desk.run(run_id)
    assert (run.state, run.cause.value, run.retries) == (RunState.QUEUED, "released", 0)


class SharedStore(MemoryDatabase):
    """A store that other processes may work on too."""

    async def take_roles(self):
        return False


async def test_a_fenced_crew_stops_its_work_and_comes_back_as_somebody_else(
    clock, chance, opened_later
):
    desk = Bench(await opened_later(SharedStore(clock)), clock)
    (run_id,) = await desk.queue(await desk.task())
    stopped = asyncio.Event()

    async def act(assignment):
        if assignment.lease.epoch > 1:
            return DONE
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with Stage(desk, chance, act).working() as on:
        await on.begun()
        await desk.store.write(fence_other_workers, "nobody")
        on.crew.lease.wake()
        await stopped.wait()
        assert on.crew.worker.id != "me"
        on.crew.maintenance.wake()
        again = await on.begun()
        assert (again.lease.run_id, again.lease.epoch) == (run_id, 2)
        await on.crew.idle()
        outcomes = [a.outcome for a in await desk.store.read(list_attempts, run_id)]
        assert outcomes == ["lost", "succeeded"]


@pytest.fixture
def beside(clock, opened_later, runner):
    """A store with a worker of another process, which holds a run and has a lease."""

    async def begun():
        desk = Bench(await opened_later(SharedStore(clock)), clock)
        await desk.queue(await desk.task())
        await desk.worker("other", LEASE)
        await desk.claim_one(worker="other")
        return desk

    return runner.run(begun())


async def looked(on, clock, seconds):
    """Let the maintenance loop look every five seconds for so long; nobody else renews meanwhile."""
    for _ in range(int(seconds // 5)):
        clock.advance(seconds=5)
        await on.crew._maintenance_step()


async def test_a_clock_that_leaps_takes_nobodys_run_away(beside, chance):
    """The database's clock was set: every lease looked as if it had run out, and two programs ran."""
    clock = beside.clock
    on = Stage(beside, chance)
    await on.crew.start()
    for _ in range(6):
        await looked(on, clock, 10)
        await beside.store.write(renew_worker, "other", beside.store.now() + micros(LEASE))
    clock.set(clock.now() + timedelta(minutes=5))
    await on.crew._maintenance_step()
    assert (await beside.store.read(view_queue)).running == 1
    await beside.store.write(renew_worker, "other", beside.store.now() + micros(LEASE))
    await looked(on, clock, 30)
    assert (await beside.store.read(view_queue)).running == 1
    await on.crew.stop()


async def test_who_has_just_started_watches_before_it_takes_runs_away(beside, chance):
    clock = beside.clock
    clock.set(clock.now() + timedelta(minutes=5))
    on = Stage(beside, chance)
    await on.crew.start()
    await looked(on, clock, 30)
    assert (await beside.store.read(view_queue)).running == 1
    await looked(on, clock, 10)
    assert (await beside.store.read(view_queue)).running == 0
    await on.crew.stop()


async def test_a_longer_lease_is_watched_for_longer(beside, chance):
    clock = beside.clock
    on = Stage(beside, chance, worker_ttl=timedelta(seconds=2))
    await on.crew.start()
    clock.set(clock.now() + timedelta(minutes=5))
    await looked(on, clock, 30)
    assert (await beside.store.read(view_queue)).running == 1
    await on.crew.stop()


async def test_who_works_until_idle_stays_for_what_is_about_to_come_back(beside, chance):
    """Started by cron for a few seconds each time, it would never have watched for long enough."""
    beside.clock.advance(minutes=5)

    async def act(assignment):
        return DONE

    async with Stage(beside, chance, act).working() as on:
        idle = asyncio.ensure_future(on.crew.idle())
        while not idle.done():
            beside.clock.advance(seconds=1)
            on.crew.lease.wake()
            on.crew.maintenance.wake()
            await asyncio.sleep(0)
        (run,) = await beside.store.read(list_runs, RunFilter())
        assert (run.state, run.losses) == (RunState.SUCCEEDED, 1)


class DeafStore(SharedStore):
    """A store that cannot be reached by who wants to register, while it is told so."""

    deaf = False

    def __init__(self, clock):
        super().__init__(clock)
        self.refused = asyncio.Event()

    async def write(self, operation, *args, **kwargs):
        if operation is register_worker and self.deaf:
            self.refused.set()
            raise Unavailable("not now")
        return await super().write(operation, *args, **kwargs)


class SlowStore(SharedStore):
    """A store that takes its time with who wants to come back."""

    def __init__(self, clock):
        super().__init__(clock)
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def write(self, operation, *args, **kwargs):
        if operation is register_worker and "~" in args[0]["id"]:
            self.asked.set()
            await self.go_on.wait()
        return await super().write(operation, *args, **kwargs)


async def test_a_fenced_crew_that_is_told_to_stop_leaves_nobody_behind(clock, chance, opened_later):
    """It came back as somebody else while it left, and that one counted as alive for a while."""
    store = await opened_later(SlowStore(clock))
    desk = Bench(store, clock)
    await desk.task()
    async with Stage(desk, chance).working() as on:
        await store.write(fence_other_workers, "nobody")
        on.crew.lease.wake()
        await store.asked.wait()
        stopping = asyncio.ensure_future(on.crew.stop())
        await asyncio.sleep(0)
        store.go_on.set()
        await stopping
    assert [w.id for w in await store.read(list_workers) if not w.fenced] == []


async def test_a_fenced_crew_claims_nothing_before_it_is_known_again(clock, chance, opened_later):
    store = await opened_later(DeafStore(clock))
    desk = Bench(store, clock)
    task = await desk.task()
    async with Stage(desk, chance).working() as on:
        store.deaf = True
        await store.write(fence_other_workers, "nobody")
        on.crew.lease.wake()
        await store.refused.wait()
        await desk.queue(task)
        await on.crew.worker._claim_step()
        assert (await store.read(view_queue)).running == 0
        store.deaf = False
        on.crew.lease.wake()
        await on.begun()
        assert on.crew.worker.id in {worker.id for worker in await store.read(list_workers)}
        on.puppet.release.set()
        await on.crew.idle()


async def test_a_run_that_comes_back_waits_for_its_earlier_attempt_to_end(
    clock, chance, opened_later
):
    desk = Bench(await opened_later(SharedStore(clock)), clock)
    (run_id,) = await desk.queue(await desk.task())
    release, told = asyncio.Event(), []

    async def act(assignment):
        epoch = assignment.lease.epoch
        told.append(("begin", epoch))
        while epoch == 1 and not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        told.append(("end", epoch))
        return DONE

    async with Stage(desk, chance, act).working() as on:
        await on.begun()
        await desk.store.write(fence_other_workers, "nobody")
        on.crew.lease.wake()
        while (await desk.run(run_id)).epoch == 1:
            on.crew.maintenance.wake()
            await asyncio.sleep(0)
        assert told == [("begin", 1)]
        release.set()
        await on.crew.idle()
        assert told == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]
        outcomes = [a.outcome for a in await desk.store.read(list_attempts, run_id)]
        assert outcomes == ["lost", "succeeded"]


async def test_a_cancel_reaches_the_running_attempt(desk, stage):
    await desk.queue(await desk.task())
    async with stage().working() as on:
        lease = (await on.begun()).lease
        await desk.store.write(request_cancel, [lease.run_id], "cancelled by ann")
        await on.crew.worker.idle()
        while await desk.state(lease.run_id) is RunState.RUNNING:
            await asyncio.sleep(0)
        assert await desk.state(lease.run_id) is RunState.CANCELLED


async def test_a_run_past_its_deadline_is_not_begun(desk, stage):
    (run_id,) = await desk.queue(await desk.task(deadline=MINUTE))
    desk.clock.advance(MINUTE)
    async with stage().working() as on:
        while await desk.state(run_id) not in {RunState.EXPIRED}:
            await asyncio.sleep(0)
        assert on.puppet.begun.empty()


async def test_the_failure_hook_hears_of_final_failures_once(desk, stage):
    from rota.model.tasks import Retry

    async def act(assignment):
        return AttemptReport(outcome=Failed(code="bad", message="no data"))

    retry = Retry(attempts=2, base=timedelta(seconds=1), jitter=0)
    (run_id,) = await desk.queue(await desk.task(retry=retry))
    async with stage(act).working() as on:
        await on.begun()
        await on.crew.worker.idle()
        desk.clock.advance(seconds=2)
        on.crew.planner.wake()
        await on.told.wait()
    (failure,) = on.failures
    assert (failure.run_id, failure.task, failure.attempts) == (run_id, "job", 2)
    assert (failure.code, failure.error) == ("bad", "no data")


async def test_an_executor_that_raises_fails_the_attempt_only(desk, stage):
    async def act(assignment):
        raise LookupError("no such thing")

    ids = await desk.queue(await desk.task(), 3)
    async with stage(act).working() as on:
        await on.crew.idle()
    for run_id in ids:
        run = await desk.run(run_id)
        assert (run.state, run.error_code) == (RunState.FAILED, "exception")
        assert run.error.startswith("LookupError")


async def test_a_crew_rescues_what_an_earlier_process_left(desk, stage):
    ids = await desk.queue(await desk.task(), 3)
    old = Bench(desk.store, desk.clock)
    old.routes = desk.routes
    await old.worker("old", timedelta(days=1))
    assert len(await old.claim(worker="old")) == 3

    async def act(assignment):
        return DONE

    async with stage(act).working() as on:
        await on.crew.idle()
    for run_id in ids:
        assert await desk.state(run_id) is RunState.SUCCEEDED
        assert (await desk.run(run_id)).losses == 1


async def test_a_run_that_is_cancelled_before_its_first_step_ends(desk, stage):
    """A task that is cancelled before it has begun never runs, and nobody would end its run."""
    (run_id,) = await desk.queue(await desk.task())
    on = stage()
    worker = on.crew.worker
    start = worker._start

    def start_and_stop(assignment):
        start(assignment)
        worker.stop_run(assignment.lease.run_id, AttemptStop.CANCEL)

    worker._start = start_and_stop
    async with on.working():
        await worker.idle()
    assert (await desk.store.read(get_run, run_id)).state is RunState.CANCELLED
    assert on.puppet.begun.empty()


# draining

PAUSE = 0.05


class DownStore(MemoryDatabase):
    """A store that settles nothing the first few times, and notes when it was asked."""

    def __init__(self, clock, times):
        super().__init__(clock)
        self.times = times
        self.asked = []
        self.failed = asyncio.Event()

    async def take_roles(self):
        return False

    async def write(self, operation, *args, **kwargs):
        if operation is settle:
            self.asked.append(asyncio.get_running_loop().time())
            if len(self.asked) <= self.times:
                self.failed.set()
                raise Unavailable("it is down")
        return await super().write(operation, *args, **kwargs)


async def at_once(assignment):
    return DONE


class Stubborn:
    """Work that does not stop until it is let go; later attempts end at once."""

    def __init__(self):
        self.let_go = asyncio.Event()
        self.begun = []

    async def __call__(self, assignment):
        self.begun.append(assignment.lease.epoch)
        while len(self.begun) == 1 and not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        return DONE


async def test_a_store_that_is_down_is_asked_less_and_less_often(
    clock, chance, opened_later, monkeypatch
):
    monkeypatch.setattr("rota.runtime.poller.FIRST_PAUSE", PAUSE)
    store = await opened_later(DownStore(clock, 3))
    desk = Bench(store, clock)
    (run_id,) = await desk.queue(await desk.task())
    async with Stage(desk, chance, at_once).working():
        await store.failed.wait()
    assert await desk.state(run_id) is RunState.SUCCEEDED
    _, second, third, last = store.asked
    assert last - third >= 4 * PAUSE - 0.01
    assert third - second >= 2 * PAUSE - 0.01


async def test_who_is_fenced_meanwhile_has_nothing_to_settle_any_more(clock, chance, opened_later):
    store = await opened_later(DownStore(clock, 1_000))
    desk = Bench(store, clock)
    await desk.queue(await desk.task())
    async with Stage(desk, chance, at_once).working() as on:
        await store.failed.wait()
        draining = asyncio.ensure_future(on.crew.worker.drain(1.0))
        await asyncio.sleep(0)
        while on.crew.worker._settling:
            await asyncio.sleep(0)
        on.crew.worker.fence()
        await draining
        assert on.crew.worker.running == 0


async def test_a_run_that_came_back_is_not_begun_any_more(clock, chance, opened_later):
    store = await opened_later(DownStore(clock, 0))
    desk = Bench(store, clock)
    (run_id,) = await desk.queue(await desk.task())
    work = Stubborn()
    async with Stage(desk, chance, work, drain=timedelta(seconds=10)).working() as on:
        await on.begun()
        await store.write(fence_other_workers, "nobody")
        on.crew.lease.wake()
        while (await desk.run(run_id)).epoch == 1:
            on.crew.maintenance.wake()
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(on.crew.stop())
        await asyncio.sleep(0)
        work.let_go.set()
        await stopping
    run = await desk.run(run_id)
    assert (work.begun, run.state, run.cause.value) == ([1], RunState.QUEUED, "released")


async def test_what_goes_on_is_not_taken_up_again_by_who_leaves(desk, chance):
    given, work = await assignment(desk), Stubborn()
    lease = given.lease
    kept = KeptAttempt(
        run_id=lease.run_id, epoch=lease.epoch, home="h", nonce="n", boot="b", executor="p"
    )
    runner = ScriptedRunner([lease.route], work)
    runner.keeps = True
    worker = Worker(desk.store, [runner], "me", desk.clock, chance, slots=5)
    worker.adopt(given._replace(kept=kept))
    await runner.begun.get()
    worker.fence()
    worker.adopt(given._replace(kept=kept))
    draining = asyncio.ensure_future(worker.drain(10.0))
    await asyncio.sleep(0)
    work.let_go.set()
    async with asyncio.timeout(10):
        await draining
    assert (len(work.begun), worker.running) == (1, 0)


@pytest.mark.parametrize("times", [0, 1])
async def test_what_has_ended_is_settled(clock, chance, opened_later, times):
    store = await opened_later(DownStore(clock, times))
    desk = Bench(store, clock)
    (run_id,) = await desk.queue(await desk.task())
    async with Stage(desk, chance, drain=timedelta(seconds=10)).working() as on:
        await on.begun()
        stopping = asyncio.ensure_future(on.crew.stop())
        await asyncio.sleep(0)
        on.puppet.release.set()
        await stopping
    assert await desk.state(run_id) is RunState.SUCCEEDED
