"""Faults that the simulation found, each as the smallest story that shows it."""

import asyncio
from datetime import timedelta

import pytest

from rota.errors import IllegalMove, Stale, Unavailable
from rota.flow.define.runs import answer_question, cancel_run
from rota.flow.define.schedules import ScheduleSpec, drop_schedule, prepare_schedule, put_schedule
from rota.flow.define.tasks import delete_task, disable_task
from rota.flow.deliver import InFlightDeliveries, deliver
from rota.flow.maintain import rescue
from rota.model.attempts import DONE, Lost
from rota.model.notifications import DeliveryState
from rota.model.runs import RunState
from rota.model.tasks import OnLost
from rota.model.views import RunFilter
from rota.rules.permissions import LOCAL
from rota.rules.plans import plan_schedule
from rota.runtime.supervisor import Supervisor, SupervisorSettings
from rota.store import settlement as store_settlement
from rota.store import tasks as store_tasks
from rota.store.claims import claim_runs
from rota.store.outbox import record_delivery
from rota.store.plans import apply_plans, list_due_schedules
from rota.store.sqlite.database import MemoryDatabase
from rota.store.views import list_deliveries, list_questions, list_runs, list_workers
from rota.store.workers import (
    fence_workers,
    get_open_runs,
    mark_stuck,
    register_worker,
    renew_worker,
)
from rota.testing.fakes import RecordingChannel, ScriptedRunner
from tests.tools.interception import intercept
from tests.tools.store_bench import MINUTE, Bench


class FlakyStore(MemoryDatabase):
    """A memory store that other processes could share, and whose next calls can be made to fail."""

    def __init__(self, clock):
        super().__init__(clock)
        self.failing = {}
        self.called = asyncio.Event()

    async def take_roles(self):
        return False

    async def write(self, operation, *args, **kwargs):
        if operation in {mark_stuck, register_worker, record_delivery}:
            self.called.set()
            if self.failing.get(operation, 0) > 0:
                self.failing[operation] -= 1
                raise Unavailable("the connection was lost")
        return await super().write(operation, *args, **kwargs)


@pytest.fixture
def flaky(clock, opened):
    return Bench(opened(FlakyStore(clock)), clock)


def crew_on(desk, runner, chance):
    settings = SupervisorSettings(
        worker_id="me", home="h", host="here", pid=1, slots=4, drain=timedelta(milliseconds=50)
    )
    return Supervisor(desk.store, [runner], {}, settings, desk.clock, chance)


class Stubborn:
    """Work that does not stop until it is let go; later attempts end at once."""

    def __init__(self):
        self.let_go = asyncio.Event()
        self.begun = asyncio.Event()

    async def __call__(self, assignment):
        if assignment.lease.epoch > 1:
            return DONE
        self.begun.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        return DONE


async def test_a_run_that_cannot_be_marked_stuck_does_not_end_the_crew(flaky, chance):
    work = Stubborn()
    crew = crew_on(flaky, ScriptedRunner(["python:job"], work), chance)
    (run_id,) = await flaky.queue(await flaky.task(timeout=timedelta(milliseconds=10)))
    flaky.store.failing[mark_stuck] = 1
    await crew.start()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(crew.run())
        while not (await flaky.run(run_id)).stuck:
            flaky.store.called.clear()
            await flaky.store.called.wait()
            await asyncio.sleep(0)
        work.let_go.set()
        await crew.stop()
    assert flaky.store.failing[mark_stuck] == 0


async def test_a_worker_may_get_a_run_again_whose_old_attempt_does_not_stop(
    flaky, chance, monkeypatch
):
    monkeypatch.setattr("rota.runtime.worker.PREVIOUS_ATTEMPT_WAIT", 0.01)
    work = Stubborn()
    crew = crew_on(flaky, ScriptedRunner(["python:job"], work), chance)
    (run_id,) = await flaky.queue(await flaky.task())
    await crew.start()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(crew.run())
        await work.begun.wait()
        flaky.clock.advance(MINUTE)
        await rescue(flaky.store, chance, fence=True)
        crew.pulse.wake()  # hears that it was fenced, comes back, and claims the run again
        while await flaky.state(run_id) is not RunState.FAILED:
            await asyncio.sleep(0)
        work.let_go.set()
        await crew.stop()
    run = await flaky.run(run_id)
    assert (run.epoch, run.losses, run.error_code) == (2, 1, "stuck")


async def test_a_run_that_is_claimed_while_somebody_cancels_it_is_asked_to_stop(flaky, chance):
    (run_id,) = await flaky.queue(await flaky.task())

    async def claimed_first(proceed, ids):
        await flaky.claim()
        return await proceed(ids)

    intercept(flaky.store, get_open_runs, claimed_first)
    run = await cancel_run(flaky.store, LOCAL, run_id, chance)
    assert run.state is RunState.RUNNING
    assert run.cancel_requested_at is not None


async def test_a_fenced_worker_claims_nothing_before_it_is_known_again(flaky, chance):
    crew = crew_on(flaky, ScriptedRunner(["python:job"]), chance)
    await crew.start()
    flaky.store.failing[register_worker] = 1
    flaky.clock.advance(MINUTE)
    await flaky.store.write(fence_workers)
    renewal = await flaky.store.write(renew_worker, crew.worker.id, flaky.store.now())
    with pytest.raises(Unavailable):
        await crew._renewed(renewal)
    known = {worker.id for worker in await flaky.store.read(list_workers)}
    assert crew.worker.id in known
    await crew._renewed(renewal)
    assert crew.worker.id not in known
    assert crew.worker.id in {worker.id for worker in await flaky.store.read(list_workers)}


async def test_a_sent_message_is_marked_even_if_the_database_was_away(flaky, chance):
    await flaky.queue(await flaky.task(deliver_to="test:ann"))
    await flaky.end(await flaky.claim_one())
    flaky.store.failing[record_delivery] = 2
    channel, in_hand = RecordingChannel(), InFlightDeliveries()
    for _ in range(2):
        with pytest.raises(Unavailable):
            await deliver(flaky.store, {"test": channel}, "w1", chance, in_hand)
    await deliver(flaky.store, {"test": channel}, "w1", chance, in_hand)
    assert len(channel.attempts) == 1
    (delivery,) = await flaky.store.read(list_deliveries, None, 10)
    assert delivery.state is DeliveryState.SENT


async def accounted(desk, task):
    """Return how many slots of a task have a run, and how many are told of in the ledger."""
    told = sum(count for _, count in await desk.ledger(task))
    return len(await desk.slots(task)), told


async def test_a_change_of_a_schedule_swallows_no_slot_that_was_due(desk):
    changes = {
        "changed": lambda: put_schedule(desk.store, LOCAL, "changed", ScheduleSpec(every="7m")),
        "dropped": lambda: drop_schedule(desk.store, LOCAL, "dropped"),
        "disabled": lambda: disable_task(desk.store, LOCAL, "disabled"),
        "deleted": lambda: delete_task(desk.store, LOCAL, "deleted"),
    }
    for name, change in changes.items():
        task = await desk.task(name)
        await desk.planned(task, every="1m")
        desk.clock.advance(3 * MINUTE)  # the planner is away
        await change()
        assert sum(await accounted(desk, task)) == 3, name


async def test_a_plan_made_before_a_task_was_disabled_does_not_apply_after_it(desk):
    task = await desk.task()
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    (due,) = await desk.store.read(list_due_schedules, 10)
    made = plan_schedule(due, desk.store.now())
    await desk.store.write(store_settlement.disable_task, task, "off", None, [])
    assert await desk.store.write(apply_plans, [made]) == [False]
    await desk.plan()
    assert await desk.ledger(task) == [("disabled", 1)]


async def test_two_changes_at_once_never_share_a_generation(desk):
    task = await desk.task()
    await desk.planned(task, every="1m")
    wishes = [ScheduleSpec(every="2m"), ScheduleSpec(every="3m")]
    space = await desk.space()
    records = [
        await prepare_schedule(desk.store, space, "job", task, wish, "default") for wish in wishes
    ]
    await desk.store.write(store_tasks.put_schedule, records[0])
    with pytest.raises(Stale):
        await desk.store.write(store_tasks.put_schedule, records[1])
    made = await put_schedule(desk.store, LOCAL, "job", wishes[1])
    assert made.generation == 3


async def test_a_plan_that_is_overtaken_by_a_planner_is_made_again(desk):
    task = await desk.task()
    schedule = await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    with pytest.raises(Stale):
        await desk.store.write(store_tasks.drop_schedule, schedule)
    await drop_schedule(desk.store, LOCAL, "job")
    assert await accounted(desk, task) == (1, 0)


async def test_a_claim_that_is_under_way_is_drained_too(desk, chance):
    crew = crew_on(desk, ScriptedRunner(["python:job"]), chance)
    (run_id,) = await desk.queue(await desk.task())
    await crew.start()
    answer = asyncio.Event()

    async def slow_claim(proceed, *args):
        taken = await proceed(*args)
        await answer.wait()
        return taken

    intercept(desk.store, claim_runs, slow_claim)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(crew.run())
        while await desk.state(run_id) is not RunState.RUNNING:
            await asyncio.sleep(0)
        stopping = group.create_task(crew.stop())
        await asyncio.sleep(0)
        answer.set()
        await stopping
    run = await desk.run(run_id)
    assert (run.state, run.cause.value) == (RunState.QUEUED, "drained")


async def test_a_question_that_was_answered_meanwhile_takes_no_other_answer(desk):
    await desk.queue(await desk.task(on_lost=OnLost.ASK))
    await desk.end(await desk.claim_one(), Lost(reason="gone"))
    (waiting,) = await desk.store.read(list_runs, RunFilter())
    (question,) = await desk.store.read(list_questions, [waiting.id])
    first = True

    async def answered_first(proceed, ids):
        nonlocal first
        if first:
            first = False
            await answer_question(desk.store, LOCAL, question.id, "retry")
        return await proceed(ids)

    intercept(desk.store, get_open_runs, answered_first)
    with pytest.raises(IllegalMove):
        await answer_question(desk.store, LOCAL, question.id, "fail")
    assert (await desk.run(waiting.id)).state is RunState.QUEUED
