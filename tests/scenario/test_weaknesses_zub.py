"""Defects of the fourth system (ZUB rows): each can no longer happen."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from rota.errors import IllegalMove
from rota.flow.define.runs import answer_question, cancel_run, run_now
from rota.flow.define.tasks import disable_task
from rota.flow.maintain import expire, rescue
from rota.library.rota import Rota
from rota.model.attempts import Cancelled, Expired, WaitingForAnswer
from rota.model.runs import RunState
from rota.model.tasks import CatchUp, CatchUpMode, OnLost, Overlap, Retry
from rota.rules.permissions import LOCAL
from rota.rules.plans import plan_schedule
from rota.store.plans import apply_plans, list_due_schedules, next_due, promote_delayed
from rota.store.settlement import settle
from rota.store.views import count_runs, get_question, list_attempts
from rota.store.workers import get_open_runs, list_queued_runs, renew_worker
from tests.tools.power_cut import cut_at_every_query
from tests.tools.store_bench import MINUTE, failed


async def test_zub_w02_skipping_missed_slots_still_runs_those_on_time(desk):
    """The policy `skip` also skipped what was on time: such a schedule never ran."""
    task = await desk.task(catch_up=CatchUp(mode=CatchUpMode.NONE))
    await desk.planned(task, every="10m")
    desk.clock.advance(minutes=10, seconds=5)
    await desk.plan()
    assert len(await desk.slots(task)) == 1
    desk.clock.advance(minutes=35)
    await desk.plan()
    assert len(await desk.slots(task)) == 1
    assert await desk.ledger(task) == [("missed", 3)]


async def test_zub_w03_the_latest_missed_slot_is_the_latest(desk):
    """After a long pause the 512th missed slot was taken for the latest one."""
    task = await desk.task(catch_up=CatchUp(mode=CatchUpMode.LATEST))
    await desk.planned(task, every="1m")
    begun = desk.clock.now()
    desk.clock.advance(days=9)
    desk.clock.advance(seconds=90)
    while await desk.store.read(list_due_schedules, 1):
        await desk.plan()

    total = 9 * 24 * 60 + 1
    newest = [run.slot_at for run in await desk.slots(task)]
    assert newest[-1] == begun + total * MINUTE
    assert len(newest) + sum(count for _, count in await desk.ledger(task)) == total


async def test_zub_w04_a_run_left_by_a_crash_blocks_nobody_and_can_be_stopped(desk, chance):
    """A running row left by a crash blocked its profile for ever and could not be killed."""
    task = await desk.task(overlap=Overlap.SKIP)
    await desk.planned(task, every="1m")
    await desk.worker("dies")
    desk.clock.advance(MINUTE)
    await desk.plan()
    lease = await desk.claim_one(worker="dies")
    await cancel_run(desk.store, LOCAL, lease.run_id, chance)
    desk.clock.advance(MINUTE)
    assert await rescue(desk.store, chance, fence=True) == 1
    assert await desk.state(lease.run_id) is RunState.CANCELLED
    await desk.plan()
    assert len(await desk.claim(worker="lives")) == 1


async def test_zub_w05_the_end_of_a_run_starts_the_next_at_once():
    """The queue drained only at a heartbeat of an hour."""
    rota = Rota("memory:", slots=1)
    order = []

    @rota.task("job", overlap="queue_all")
    async def job(run):
        order.append(run.payload)

    async with rota:
        ids = await rota.enqueue_many("job", range(20))
        async with asyncio.timeout(5):
            await rota.work(until_idle=True)
        assert order == list(range(20))
        assert (await rota.run(ids[-1])).state is RunState.SUCCEEDED


async def test_zub_w06_a_run_goes_to_one_of_two_who_want_it(desk):
    """A claim selected and then updated whatever stood there."""
    await desk.queue(await desk.task(), 50)
    takes = await asyncio.gather(*(desk.claim_ids(10, worker=f"w{n}") for n in range(10)))
    taken = [run_id for take in takes for run_id in take]
    assert len(taken) == len(set(taken)) == 50


@pytest.mark.parametrize("first", [Cancelled(reason="no"), Expired(reason="late")])
async def test_zub_w07_an_end_is_never_overwritten(desk, first):
    """Completion, waiting and resuming had no guard: each overwrote the others."""
    await desk.queue(await desk.task())
    lease = await desk.claim_one()
    question = await desk.ask(lease)
    assert await desk.end_open(lease.run_id, first)
    ended = await desk.run(lease.run_id)
    with pytest.raises(IllegalMove):
        await answer_question(desk.store, LOCAL, question, "yes")
    assert not await desk.end(lease)
    assert not await desk.end(lease, WaitingForAnswer(question="again?"))
    assert await desk.run(lease.run_id) == ended


async def test_zub_w07_a_cancel_that_meets_a_claim_stops_the_run(desk, chance):
    """Kill and claim at the same moment overwrote each other."""
    await desk.queue(await desk.task())
    (run_id,) = [
        run.run_id for run in await desk.store.read(list_queued_runs, 1, planned_only=False)
    ]
    (facts,) = await desk.store.read(get_open_runs, [run_id])
    stale = await desk.decide(facts, Cancelled(reason="no"))
    await desk.worker("w1")
    lease = await desk.claim_one()
    assert await desk.store.write(settle, [stale]) == [False]
    run = await cancel_run(desk.store, LOCAL, run_id, chance)
    assert run.cancel_requested_at is not None
    assert (await desk.store.write(renew_worker, "w1", desk.store.now())).cancels == (run_id,)
    assert await desk.end(lease, Cancelled(reason="it was cancelled"))


async def test_zub_w11_a_type_error_in_a_task_runs_it_once():
    """A TypeError raised by the work made the service call it a second time."""
    rota = Rota("memory:")
    calls = []

    @rota.task("job")
    async def job(run):
        calls.append(run.id)
        raise TypeError("job() takes 0 positional arguments")

    @rota.task("plain")
    def plain(run):
        calls.append(run.id)
        raise TypeError("plain() takes 0 positional arguments")

    async with rota:
        ids = [await rota.enqueue("job"), await rota.enqueue("plain")]
        await rota.work(until_idle=True)
        assert sorted(calls) == ids
        for run_id in ids:
            assert (await rota.run(run_id)).state is RunState.FAILED


async def test_zub_w12_a_retry_policy_retries(desk):
    """The retry policy was stored and never used: attempts were always 1."""
    retry = Retry(attempts=3, base=timedelta(seconds=10), factor=2, jitter=0)
    (run_id,) = await desk.queue(await desk.task(retry=retry))
    for wait in (10, 20):
        await desk.end(await desk.claim_one(), failed())
        assert (await desk.run(run_id)).available_at == desk.clock.now() + timedelta(seconds=wait)
        desk.clock.advance(seconds=wait)
        await desk.store.write(promote_delayed, 10)
    await desk.end(await desk.claim_one(), failed())
    assert await desk.state(run_id) is RunState.FAILED
    causes = [attempt.cause.value for attempt in await desk.store.read(list_attempts, run_id)]
    assert causes == ["first", "retry", "retry"]


async def test_zub_w12_a_disabled_task_is_not_planned(desk):
    """A disabled profile went on being enqueued."""
    task = await desk.task()
    await desk.planned(task, every="1m")
    await disable_task(desk.store, LOCAL, "job")
    desk.clock.advance(hours=1)
    await desk.plan()
    assert await desk.store.read(count_runs, task.id) == {}
    assert await desk.ledger(task) == [("disabled", 60)]


async def test_zub_w14_an_answer_counts_only_for_the_question_it_was_given_to(desk):
    """Resuming did not name the question: a stale answer resumed a newer one."""
    await desk.queue(await desk.task())
    first = await desk.ask(await desk.claim_one(), "first?")
    await answer_question(desk.store, LOCAL, first, "one")
    second = await desk.ask(await desk.claim_one(), "second?")
    with pytest.raises(IllegalMove, match="closed"):
        await answer_question(desk.store, LOCAL, first, "stale")
    assert (await desk.store.read(get_question, second)).answered_at is None
    run = await answer_question(desk.store, LOCAL, second, "two")
    assert run.state is RunState.QUEUED


async def test_zub_w14_every_waiting_run_expires_however_many_there_are(desk, chance):
    """Expiry looked at the newest 500 runs only."""
    task = await desk.task()
    await desk.queue(task, 1_200)
    while leases := await desk.claim(500):
        for lease in leases:
            await desk.end(lease, WaitingForAnswer(question="?", expires_in=MINUTE))
    await desk.queue(task, 600)
    desk.clock.advance(MINUTE)
    while await expire(desk.store, chance):
        pass
    assert (await desk.store.read(count_runs, task.id))["expired"] == 1_200


async def test_zub_w18_a_run_now_obeys_the_tasks_overlap_policy(desk):
    """Manual triggers went past the no-overlap rule and could not be told apart."""
    task = await desk.task(overlap=Overlap.SKIP)
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    lease = await desk.claim_one()
    manual = (await run_now(desk.store, LOCAL, "job")).run_id
    assert await desk.claim() == []
    await desk.end(lease)
    (then,) = await desk.claim()
    assert then.run_id == manual
    run = await desk.run(manual)
    assert (run.source.value, run.task, run.slot_key) == ("manual", "job", None)


async def test_zub_w20_an_edited_schedule_does_not_fire_at_once(desk):
    """An edit reset the cursor, so the schedule could fire immediately."""
    task = await desk.task()
    await desk.planned(task, every="1h")
    desk.clock.advance(minutes=50)
    edited = await desk.planned(task, every="30m")
    assert edited.cursor == desk.clock.now()
    await desk.plan()
    assert await desk.slots(task) == []
    assert edited.next_at == datetime(2026, 3, 2, 13, 0, tzinfo=UTC)


async def test_zub_21_a_crash_while_planning_leaves_nothing_or_all_of_it(desk):
    """Planning is one transaction: the run, the ledger, the cancelled ones and the cursor."""
    policy = {"catch_up": CatchUp(mode=CatchUpMode.LATEST), "overlap": Overlap.CANCEL_OTHER}
    task = await desk.task(**policy)
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    await desk.claim_one()
    desk.clock.advance(minutes=5)
    (due,) = await desk.store.read(list_due_schedules, 1)
    now = desk.store.now()
    before = (await desk.slots(task), await desk.ledger(task), await desk.store.read(next_due))

    async def nothing_happened():
        after = (await desk.slots(task), await desk.ledger(task), await desk.store.read(next_due))
        assert after == before

    plans = [plan_schedule(due, now)]
    assert plans[0].cancel_running
    assert plans[0].ledger
    assert await cut_at_every_query(desk.store, apply_plans, plans, check=nothing_happened) >= 6
    assert len(await desk.slots(task)) > 1
    assert await desk.ledger(task) == [("coalesced", 2), ("coalesced", 1)]


async def test_zub_24_after_a_long_run_comes_one_follow_up(desk):
    """With `queue`, one slot waits behind a long run; a newer one takes its place."""
    task = await desk.task(overlap=Overlap.QUEUE)
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    lease = await desk.claim_one()
    for _ in range(10):
        desk.clock.advance(MINUTE)
        await desk.plan()
    await desk.end(lease)
    (follow_up,) = await desk.claim()
    newest = (await desk.slots(task))[-1]
    assert follow_up.run_id == newest.id
    await desk.end(follow_up)
    assert await desk.claim() == []
    assert await desk.store.read(count_runs, task.id) == {"succeeded": 2, "cancelled": 9}


async def test_zub_24_a_waiting_run_counts_as_active(desk):
    """A run that waits for a person keeps `skip` slots from piling up questions."""
    task = await desk.task(overlap=Overlap.SKIP, on_lost=OnLost.ASK)
    await desk.planned(task, every="1m")
    desk.clock.advance(MINUTE)
    await desk.plan()
    await desk.ask(await desk.claim_one())
    desk.clock.advance(MINUTE)
    await desk.plan()
    assert await desk.ledger(task) == [("overlap", 1)]
