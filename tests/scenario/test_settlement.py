"""Ends of runs: recorded once, retried as the policy says, never overwritten, and removed in time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import IllegalMove
from rota.flow.define.runs import answer_question, cancel_run
from rota.flow.define.tasks import delete_task
from rota.flow.lookup import find_run
from rota.flow.maintain import expire, prune
from rota.flow.plan import plan
from rota.library.rota import Rota
from rota.model.attempts import Cancelled, Expired, Lost, WaitingForAnswer
from rota.model.runs import RunState
from rota.model.tasks import OnLost, Overlap, Retry
from rota.model.views import RunFilter
from rota.rules.permissions import LOCAL
from rota.store.plans import promote_delayed
from rota.store.settlement import request_cancel
from rota.store.settlement import settle as write_settlements
from rota.store.views import (
    count_runs,
    get_question,
    get_run,
    list_attempts,
    list_events,
    list_questions,
    list_run_events,
    list_runs,
)
from rota.store.workers import get_open_runs, list_queued_runs, renew_worker
from tests.scenario.builders import library
from tests.tools.interception import intercept
from tests.tools.store_bench import MINUTE, failed


async def test_a_run_that_ends_is_marked_with_its_result():
    """GEN-W01: Nobody waited for the work: every run that ended well was marked failed later."""
    rota = Rota("memory:")

    @rota.task("job")
    async def job(run):
        return {"done": run.payload}

    async with rota:
        run_id = await rota.enqueue("job", 7)
        await rota.work(until_idle=True)
        run = await rota.run(run_id)
        assert (run.state, run.result) == (RunState.SUCCEEDED, '{"done": 7}')
        assert run.finished_at is not None


@pytest.mark.parametrize("first", [Cancelled(reason="no"), Expired(reason="late")])
async def test_an_end_is_never_overwritten(desk, first):
    """ZUB-W07: Completion, waiting and resuming had no guard: each overwrote the others."""
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


async def test_a_cancel_that_meets_a_claim_stops_the_run(desk, chance):
    """ZUB-W07: Kill and claim at the same moment overwrote each other."""
    await desk.queue(await desk.task())
    (run_id,) = [
        run.run_id for run in await desk.store.read(list_queued_runs, 1, planned_only=False)
    ]
    (facts,) = await desk.store.read(get_open_runs, [run_id])
    stale = await desk.decide(facts, Cancelled(reason="no"))
    await desk.worker("w1")
    lease = await desk.claim_one()
    assert await desk.store.write(write_settlements, [stale]) == [False]
    run = await cancel_run(desk.store, LOCAL, run_id, chance)
    assert run.cancel_requested_at is not None
    assert (await desk.store.write(renew_worker, "w1", desk.store.now())).cancels == (run_id,)
    assert await desk.end(lease, Cancelled(reason="it was cancelled"))


async def test_a_run_that_is_claimed_while_somebody_cancels_it_is_asked_to_stop(flaky, chance):
    """Found by the simulation."""
    (run_id,) = await flaky.queue(await flaky.task())

    async def claimed_first(proceed, ids):
        await flaky.claim()
        return await proceed(ids)

    intercept(flaky.store, get_open_runs, claimed_first)
    run = await cancel_run(flaky.store, LOCAL, run_id, chance)
    assert run.state is RunState.RUNNING
    assert run.cancel_requested_at is not None


async def test_asking_a_finished_run_to_stop_records_nothing():
    """Found by a review."""
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


async def test_a_type_error_in_a_task_runs_it_once():
    """ZUB-W11: A TypeError raised by the work made the service call it a second time."""
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


async def test_a_retry_policy_retries(desk):
    """ZUB-W12: The retry policy was stored and never used: attempts were always 1."""
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


async def test_an_answer_counts_only_for_the_question_it_was_given_to(desk):
    """ZUB-W14: Resuming did not name the question: a stale answer resumed a newer one."""
    await desk.queue(await desk.task())
    first = await desk.ask(await desk.claim_one(), "first?")
    await answer_question(desk.store, LOCAL, first, "one")
    second = await desk.ask(await desk.claim_one(), "second?")
    with pytest.raises(IllegalMove, match="closed"):
        await answer_question(desk.store, LOCAL, first, "stale")
    assert (await desk.store.read(get_question, second)).answered_at is None
    run = await answer_question(desk.store, LOCAL, second, "two")
    assert run.state is RunState.QUEUED


async def test_every_waiting_run_expires_however_many_there_are(desk, chance):
    """ZUB-W14: Expiry looked at the newest 500 runs only."""
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


async def test_a_question_that_was_answered_meanwhile_takes_no_other_answer(desk):
    """Found by the simulation."""
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


async def test_finished_runs_leave_after_their_time(desk):
    """G2-W23: Logs, archives and runs grew without bound."""
    task = await desk.task()
    await desk.queue(task, 50)
    for lease in await desk.claim():
        await desk.end(lease)
    desk.clock.advance(days=31)
    (kept,) = await desk.queue(task)
    while await prune(desk.store):
        pass
    left = await desk.store.read(list_runs, RunFilter())
    assert [(run.id, run.state) for run in left] == [(kept, RunState.QUEUED)]
    assert await desk.store.read(list_events, 0, 100) == []
    assert (await desk.store.read(count_runs, task.id))["succeeded"] == 50


async def test_cancelled_runs_have_an_end_and_are_pruned(desk):
    """IST-W27: Cancelled tasks never got a completion time and were never deleted."""
    task = await desk.task()
    queued, asking, going = await desk.queue(task, 3)
    await desk.end_open(queued, Cancelled(reason="no"))
    await desk.ask(await desk.claim_one())
    await desk.end_open(asking, Cancelled(reason="no"))
    await desk.end(await desk.claim_one(), Cancelled(reason="no"))
    for run_id in (queued, asking, going):
        run = await desk.run(run_id)
        assert (run.state, run.finished_at) == (RunState.CANCELLED, desk.clock.now())
    desk.clock.advance(days=40)
    await prune(desk.store)
    assert [await desk.store.read(get_run, i) for i in (queued, asking, going)] == [None] * 3
    assert await desk.store.read(count_runs, task.id) == {"cancelled": 3}
    assert (await plan(desk.store)).schedules == 0


async def test_deleting_keeps_the_history_and_stops_the_work(desk):
    """JAGC-W14: Deleting a task took its history with it and left its occurrence running."""
    task = await desk.task(overlap=Overlap.ALLOW)
    await desk.queue(task, 3)
    await desk.worker("w1")
    await desk.end(await desk.claim_one())
    lease = await desk.claim_one()
    await delete_task(desk.store, LOCAL, "job")
    assert await desk.store.read(count_runs, task.id) == {
        "succeeded": 1,
        "running": 1,
        "cancelled": 1,
    }
    assert (await desk.store.write(renew_worker, "w1", desk.store.now())).cancels == (lease.run_id,)
    await desk.end(lease, Cancelled(reason="it was cancelled"))
    assert (await find_run(desk.store, LOCAL, lease.run_id)).task == "job"


async def test_years_of_slots_leave_little_behind(desk):
    """JAGC-W15: Runs, keys and occurrences grew without bound."""
    task = await desk.task()
    await desk.planned(task, every="1d")
    for _ in range(400):
        desk.clock.advance(days=1)
        await desk.plan()
        for lease in await desk.claim():
            await desk.end(lease)
        await prune(desk.store)
    assert len(await desk.slots(task)) <= 32
    assert len(await desk.store.read(list_events, 0, 10_000)) <= 64
    assert await desk.store.read(count_runs, task.id) == {"succeeded": 400}
