"""Kept attempts: a process that leaves lets them go on, and the next one carries them on."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from rota.errors import Fenced, Unavailable
from rota.model.attempts import AttemptReport, KeptAttempt, Lost, Succeeded
from rota.model.runs import RunState
from rota.model.views import LeaseRenewal
from rota.runtime.supervisor import Supervisor, SupervisorSettings
from rota.runtime.worker import AttemptStop
from rota.store.attempts import adopt_attempt, list_kept_attempts, record_launch, renew_home_lease
from rota.store.views import list_attempts
from rota.store.workers import fence_workers
from tests.tools.interception import intercepted

HOME = "/home"
QUARTER = 15 * 60 * 1_000_000


class Machine:
    """Programs that go on without whoever started them."""

    def __init__(self):
        self.begun = asyncio.Queue()
        self.ends = {}
        self.stopped = []
        self.locked = False

    def end(self, run_id, outcome, **told):
        self.ends[run_id].set_result(AttemptReport(outcome=outcome, **told))


class KeptPuppet:
    """A runner and the keepers of a home, over a machine that outlives it."""

    keeps = True
    home = HOME

    def __init__(self, desk, machine, worker):
        self.desk = desk
        self.machine = machine
        self.worker = worker
        self.left = set()

    def routes(self):
        return ["python:job"]

    def queue_wait(self, run_id):
        return 0.0

    def detach(self, run_id):
        self.left.add(run_id)

    async def open(self):
        if self.machine.locked:
            return False
        self.machine.locked = True
        return True

    async def renew(self):
        await self.desk.store.write(renew_home_lease, HOME, "here", self.desk.store.now() + QUARTER)
        return 10.0, await self.desk.store.read(list_kept_attempts, HOME)

    async def close(self):
        self.machine.locked = False

    async def take_samples(self):
        return []

    async def run(self, assignment):
        lease, machine = assignment.lease, self.machine
        self.left.discard(lease.run_id)  # what was said of an earlier attempt
        if assignment.kept is None:
            kept = KeptAttempt(
                run_id=lease.run_id, epoch=lease.epoch, home=HOME, nonce="n", boot="b",
                executor="p", started_at=self.desk.store.now(),
            )  # fmt: skip
            assert await self.desk.store.write(record_launch, kept, self.worker())
            machine.ends[lease.run_id] = asyncio.get_running_loop().create_future()
        machine.begun.put_nowait(assignment)
        try:
            return await asyncio.shield(machine.ends[lease.run_id])
        except asyncio.CancelledError:
            if lease.run_id not in self.left:
                machine.stopped.append(lease.run_id)
            raise


@pytest.fixture
def shared(desk, monkeypatch):
    """A store where a lease tells who works, and no lock."""

    async def nobody_alone():
        return False

    monkeypatch.setattr(desk.store, "take_roles", nobody_alone)


class Life:
    """One process on the machine."""

    def __init__(self, desk, chance, machine, name):
        self.runner = KeptPuppet(desk, machine, lambda: self.crew.worker.id)
        self.machine = machine
        self.crew = Supervisor(
            desk.store,
            [self.runner],
            {},
            SupervisorSettings(
                worker_id=name, home="h", host="here", pid=1, slots=10,
                drain=timedelta(seconds=5),
            ),
            desk.clock,
            chance,
            keepers=self.runner,
        )  # fmt: skip

    @asynccontextmanager
    async def lived(self):
        await self.crew.start()
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(self.crew.run())
            try:
                yield self
            finally:
                await self.crew.stop()


@asynccontextmanager
async def second_beside(first, second):
    """Let two processes of one home live; the first one has it."""
    async with first.lived():
        second.runner.routes = lambda: ["python:job"] if second.crew._has_home else []
        async with second.lived():
            yield


async def until(desk, run_id, state):
    async with asyncio.timeout(10):
        while await desk.state(run_id) is not state:
            await asyncio.sleep(0.005)


async def until_free(life, run_id):
    async with asyncio.timeout(10):
        while life.crew.worker.has(run_id) or run_id in life.crew.worker._attempts:
            await asyncio.sleep(0.005)


async def test_a_process_that_leaves_lets_it_go_on_and_the_next_carries_it_on(desk, chance):
    machine = Machine()
    async with Life(desk, chance, machine, "one").lived():
        (run_id,) = await desk.queue(await desk.task())
        first = await machine.begun.get()
    assert await desk.state(run_id) is RunState.RUNNING
    assert machine.stopped == []
    async with Life(desk, chance, machine, "two").lived():
        second = await machine.begun.get()
        assert second.lease == first.lease
        assert second.kept.run_id == run_id
        machine.end(run_id, Succeeded(result='"done"'))
        await until(desk, run_id, RunState.SUCCEEDED)
    run = await desk.run(run_id)
    assert (run.epoch, run.result) == (1, '"done"')
    (attempt,) = await desk.store.read(list_attempts, run_id)
    assert attempt.worker_id == "two"


async def left_by_another(desk, chance, machine):
    """Return an attempt that goes on, and that nobody has taken up again."""
    async with Life(desk, chance, machine, "one").lived():
        await desk.queue(await desk.task())
        begun = await machine.begun.get()
    (kept,) = await desk.store.read(list_kept_attempts, HOME)
    return begun._replace(kept=kept)


@pytest.mark.parametrize("why", [AttemptStop.DRAIN, AttemptStop.FENCED])
@pytest.mark.parametrize("before", [(), (AttemptStop.CANCEL,)])
async def test_who_leaves_before_its_first_step_leaves_it_to_the_next(desk, chance, why, before):
    machine = Machine()
    left = await left_by_another(desk, chance, machine)
    run_id, worker = left.lease.run_id, Life(desk, chance, machine, "two").crew.worker
    worker.adopt(left)
    for reason in (*before, why):
        worker.stop_run(run_id, reason)
    while worker._attempts:
        await asyncio.sleep(0)
    assert (worker.running, machine.stopped) == (0, [])
    async with Life(desk, chance, machine, "three").lived():
        assert (await machine.begun.get()).kept.run_id == run_id
        machine.end(run_id, Succeeded())
        await until(desk, run_id, RunState.SUCCEEDED)


async def test_the_log_tells_how_long_it_worked_in_all_lives(desk, chance, caplog):
    caplog.set_level("INFO", logger="rota.runtime")
    machine = Machine()
    async with Life(desk, chance, machine, "one").lived():
        (run_id,) = await desk.queue(await desk.task())
        await machine.begun.get()
    desk.clock.advance(timedelta(seconds=69))
    async with Life(desk, chance, machine, "two").lived():
        await machine.begun.get()
        machine.end(run_id, Succeeded(), exit="{}", away=63_000_000)
        await until(desk, run_id, RunState.SUCCEEDED)
    (settled,) = (each for each in caplog.records if each.message == "run.settled")
    assert settled.ms == 6_000.0
    assert (await desk.run(run_id)).took == timedelta(seconds=6)


async def test_a_keeper_that_died_meanwhile_is_a_lost_attempt(desk, chance):
    machine = Machine()
    async with Life(desk, chance, machine, "one").lived():
        (run_id,) = await desk.queue(await desk.task())
        await machine.begun.get()
    machine.end(run_id, Lost(reason="its keeper died"))
    async with Life(desk, chance, machine, "two").lived():
        carried = await machine.begun.get()
        assert carried.kept is not None
        again = await machine.begun.get()
        assert (again.lease.run_id, again.lease.epoch, again.kept) == (run_id, 2, None)
        machine.end(run_id, Succeeded())
        await until(desk, run_id, RunState.SUCCEEDED)


@pytest.mark.usefixtures("shared")
async def test_who_lost_its_lease_and_not_its_home_carries_on_its_own_work(desk, chance):
    machine = Machine()
    async with Life(desk, chance, machine, "one").lived() as life:
        (run_id,) = await desk.queue(await desk.task())
        first = await machine.begun.get()
        await life.crew._renewed(LeaseRenewal(alive=False))
        second = await machine.begun.get()
        assert (second.lease, second.kept.run_id) == (first.lease, run_id)
        machine.end(run_id, Succeeded())
        await until(desk, run_id, RunState.SUCCEEDED)
    assert machine.stopped == []
    (attempt,) = await desk.store.read(list_attempts, run_id)
    assert attempt.worker_id == "one~1"


@pytest.mark.usefixtures("shared")
async def test_what_could_not_be_adopted_at_once_is_adopted_soon(desk, chance, monkeypatch):
    machine = Machine()
    async with Life(desk, chance, machine, "one").lived() as life:
        (run_id,) = await desk.queue(await desk.task())
        await machine.begun.get()

        async def fails(*_):
            raise Unavailable("the connection was lost")

        with intercepted(adopt_attempt, fails), pytest.raises(Unavailable):
            await life.crew._renewed(LeaseRenewal(alive=False))
        life.crew.keeper_renewal.wake()
        assert (await machine.begun.get()).kept.run_id == run_id
        machine.end(run_id, Succeeded())
        await until(desk, run_id, RunState.SUCCEEDED)


@pytest.mark.usefixtures("shared")
async def test_two_looks_at_once_carry_on_a_run_once(desk, chance, monkeypatch):
    """The second one learnt how things stood before the first one's run ended, and began a ghost."""
    machine = Machine()
    async with Life(desk, chance, machine, "one").lived() as life:
        (run_id,) = await desk.queue(await desk.task())
        await machine.begun.get()
        rows = await desk.store.read(list_kept_attempts, HOME)
        life.crew.worker.fence()  # as one that has lost its lease
        await until_free(life, run_id)
        looked, go_on = asyncio.Event(), asyncio.Event()

        async def slow(_database, proceed, home):
            found = await proceed(home)
            if not looked.is_set():
                looked.set()
                await go_on.wait()
            return found

        with intercepted(list_kept_attempts, slow):
            machine.end(run_id, Succeeded())
            late = asyncio.ensure_future(life.crew._adopt(rows))
            await looked.wait()
            other = asyncio.ensure_future(life.crew._adopt(rows))
            for _ in range(200):
                await asyncio.sleep(0)
            go_on.set()
            await asyncio.gather(late, other)
        await until(desk, run_id, RunState.SUCCEEDED)
        await until_free(life, run_id)
        assert machine.begun.qsize() == 1


async def test_an_attempt_that_is_over_leaves_its_slot(desk, chance):
    """It waited for somebody to say so, for ever, when nobody had anything to say."""
    machine = Machine()
    async with Life(desk, chance, machine, "one").lived() as life:
        (run_id,) = await desk.queue(await desk.task())
        lease = (await machine.begun.get()).lease
        machine.ends[run_id].set_exception(Fenced(run_id, lease.epoch))
        await until_free(life, run_id)
        assert await desk.state(run_id) is RunState.RUNNING


@pytest.mark.usefixtures("shared")
async def test_the_next_process_takes_the_home_when_the_first_one_leaves_it(desk, chance):
    machine = Machine()
    first = Life(desk, chance, machine, "one")
    second = Life(desk, chance, machine, "two")
    async with second_beside(first, second):
        (run_id,) = await desk.queue(await desk.task())
        assert (await machine.begun.get()).kept is None
        await first.crew.stop()
        second.crew.keeper_renewal.wake()
        assert (await machine.begun.get()).kept.run_id == run_id
        machine.end(run_id, Succeeded())
        await until(desk, run_id, RunState.SUCCEEDED)
    assert machine.stopped == []


@pytest.mark.usefixtures("shared")
async def test_nothing_is_adopted_for_a_home_that_was_let_go_meanwhile(desk, chance):
    """Who is slow between looking and adopting leaves the home's programs to the next process."""
    machine = Machine()
    first, second = (Life(desk, chance, machine, name) for name in ("one", "two"))
    usual, looked, go_on = first.runner.renew, asyncio.Event(), asyncio.Event()

    async def slow():
        found = await usual()
        looked.set()
        await go_on.wait()
        return found

    async with first.lived():
        (run_id,) = await desk.queue(await desk.task())
        await machine.begun.get()
        first.runner.renew = slow
        first.crew.keeper_renewal.wake()
        await looked.wait()
        await first.crew.stop()
        async with second.lived():
            assert (await machine.begun.get()).kept.run_id == run_id
            go_on.set()
            machine.end(run_id, Succeeded())
            await until(desk, run_id, RunState.SUCCEEDED)
    (attempt,) = await desk.store.read(list_attempts, run_id)
    assert attempt.worker_id == "two"


async def test_a_deadline_for_beginning_does_not_end_what_has_begun(desk, chance):
    machine = Machine()
    task = await desk.task(deadline=timedelta(minutes=1))
    async with Life(desk, chance, machine, "one").lived():
        (run_id,) = await desk.queue(task)
        await machine.begun.get()
    desk.clock.advance(timedelta(minutes=2))
    async with Life(desk, chance, machine, "two").lived():
        assert (await machine.begun.get()).kept.run_id == run_id
        machine.end(run_id, Succeeded())
        await until(desk, run_id, RunState.SUCCEEDED)


async def test_a_cancelled_one_is_stopped(desk, chance):
    machine = Machine()
    async with Life(desk, chance, machine, "one").lived() as life:
        (run_id,) = await desk.queue(await desk.task())
        await machine.begun.get()
        life.crew.worker.stop_run(run_id, AttemptStop.CANCEL)
        await until(desk, run_id, RunState.CANCELLED)
    assert machine.stopped == [run_id]


async def test_its_timeout_is_the_keepers_business(desk, chance):
    machine = Machine()
    async with Life(desk, chance, machine, "one").lived() as life:
        task = await desk.task(timeout=timedelta(microseconds=1))
        (run_id,) = await desk.queue(task)
        await machine.begun.get()
        assert life.crew.worker.running == 1
        machine.end(run_id, Succeeded())
        await until(desk, run_id, RunState.SUCCEEDED)


async def test_a_home_that_another_process_has_is_left_alone(desk, chance):
    machine = Machine()
    async with Life(desk, chance, machine, "one").lived():
        (run_id,) = await desk.queue(await desk.task())
        await machine.begun.get()
        await desk.worker("other")
        second = Life(desk, chance, machine, "two")
        assert not await second.runner.open()
        assert (await desk.store.write(adopt_attempt, run_id, 1, "other")).leases == []
        machine.end(run_id, Succeeded())
        await until(desk, run_id, RunState.SUCCEEDED)


async def test_a_fenced_worker_takes_its_own_attempts_up_again(desk, chance):
    machine = Machine()
    async with Life(desk, chance, machine, "one").lived() as life:
        (run_id,) = await desk.queue(await desk.task())
        await machine.begun.get()
        life.crew._exclusive = False
        desk.clock.advance(timedelta(minutes=1))
        await desk.store.write(fence_workers)
        life.crew.lease.wake()
        carried = await machine.begun.get()
        assert (carried.lease.epoch, life.crew.worker.id) == (1, "one~1")
        machine.end(run_id, Succeeded())
        await until(desk, run_id, RunState.SUCCEEDED)
    assert machine.stopped == []


async def test_what_was_let_go_before_it_was_on_record_is_given_back(desk, chance):
    """Its worker lost faith in a lease that nobody had taken; no keeper carries the run on."""
    machine = Machine()
    life = Life(desk, chance, machine, "one")
    usual, waiting = life.runner.run, asyncio.Event()

    async def run(assignment):
        if assignment.lease.epoch > 1:
            return await usual(assignment)
        waiting.set()
        return await asyncio.get_running_loop().create_future()

    life.runner.run = run
    async with life.lived():
        (run_id,) = await desk.queue(await desk.task())
        await waiting.wait()
        life.crew.worker.fence()
        while life.crew.worker.has(run_id):
            await asyncio.sleep(0)
        for _ in range(2):
            await life.crew._renewed(LeaseRenewal(alive=True, held=(run_id,)))
        again = await machine.begun.get()
        assert (again.lease.run_id, again.lease.epoch) == (run_id, 2)
        machine.end(run_id, Succeeded())
        await until(desk, run_id, RunState.SUCCEEDED)
