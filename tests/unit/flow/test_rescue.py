"""Rescue and expiry: what nobody works on goes back, what ran out of time ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.flow.maintain import expire, rescue
from rota.model.attempts import WaitingForAnswer
from rota.model.runs import RunState
from rota.model.tasks import After, AfterOn, OnLost, Retry
from rota.store.views import count_runs, list_attempts
from tests.tools.store_bench import MINUTE, failed


async def lose(desk, chance):
    """Let a worker claim everything and vanish, then rescue."""
    worker = f"w{desk.clock.monotonic()}"
    await desk.worker(worker)
    leases = await desk.claim(worker=worker)
    desk.clock.advance(MINUTE)
    return leases, await rescue(desk.store, chance, fence=True)


@pytest.mark.parametrize(
    ("on_lost", "state"),
    [
        (OnLost.RETRY, RunState.QUEUED),
        (OnLost.FAIL, RunState.FAILED),
        (OnLost.ASK, RunState.WAITING),
    ],
)
async def test_a_lost_run_goes_the_way_its_task_wants(desk, chance, on_lost, state):
    (run_id,) = await desk.queue(await desk.task(on_lost=on_lost))
    _, rescued = await lose(desk, chance)
    assert rescued == 1
    run = await desk.run(run_id)
    assert run.state is state
    (attempt,) = await desk.store.read(list_attempts, run_id)
    assert attempt.outcome in {"lost", "failed"}


async def test_a_run_is_lost_at_most_three_times(desk, chance):
    (run_id,) = await desk.queue(await desk.task(on_lost=OnLost.RETRY))
    for losses in (1, 2, 3):
        await lose(desk, chance)
        assert (await desk.run(run_id)).losses == losses
    await lose(desk, chance)
    run = await desk.run(run_id)
    assert (run.state, run.error_code) == (RunState.FAILED, "lost")
    assert len(await desk.store.read(list_attempts, run_id)) == 4


async def test_being_lost_uses_up_no_retries(desk, chance):
    retry = Retry(attempts=2, base=timedelta(seconds=1), jitter=0)
    (run_id,) = await desk.queue(await desk.task(retry=retry))
    await lose(desk, chance)
    await desk.end(await desk.claim_one(), failed())
    assert await desk.state(run_id) is RunState.QUEUED


async def test_the_runs_of_a_living_worker_are_left_alone(desk, chance):
    await desk.queue(await desk.task(), 2)
    await desk.worker("lives", timedelta(hours=1))
    await desk.claim(1, worker="lives")
    leases, rescued = await lose(desk, chance)
    assert (len(leases), rescued) == (1, 1)


async def test_without_fencing_only_the_fenced_are_gone(desk, chance):
    await desk.queue(await desk.task())
    await desk.worker("w1")
    await desk.claim_one()
    desk.clock.advance(hours=1)
    assert await rescue(desk.store, chance, fence=False) == 0
    assert await rescue(desk.store, chance, fence=True) == 1


async def test_a_lost_run_that_settled_in_time_stays_settled(desk, chance):
    await desk.queue(await desk.task())
    await desk.worker("w1")
    lease = await desk.claim_one()
    desk.clock.advance(MINUTE)
    assert await desk.end(lease)
    assert await rescue(desk.store, chance, fence=True) == 0
    assert await desk.state(lease.run_id) is RunState.SUCCEEDED


async def test_a_run_past_its_deadline_in_the_queue_expires(desk, chance):
    (run_id,) = await desk.queue(await desk.task(deadline=MINUTE))
    assert await expire(desk.store, chance) == 0
    desk.clock.advance(MINUTE)
    assert await expire(desk.store, chance) == 1
    run = await desk.run(run_id)
    assert (run.state, run.error) == (
        RunState.EXPIRED,
        "it waited in the queue past its deadline",
    )
    assert await desk.store.read(list_attempts, run_id) == []
    assert await desk.claim() == []


async def test_an_unanswered_question_expires(desk, chance):
    await desk.queue(await desk.task())
    lease = await desk.claim_one()
    await desk.end(lease, WaitingForAnswer(question="?", expires_in=MINUTE))
    desk.clock.advance(MINUTE)
    assert await expire(desk.store, chance) == 1
    run = await desk.run(lease.run_id)
    assert (run.state, run.error) == (RunState.EXPIRED, "nobody answered its question in time")


async def test_an_unanswered_question_about_a_lost_run_ends_as_failed(desk, chance):
    """Settled: an unanswered ask of `on_lost` ends as failed."""
    (run_id,) = await desk.queue(await desk.task(on_lost=OnLost.ASK))
    await lose(desk, chance)
    desk.clock.advance(days=2)
    assert await expire(desk.store, chance) == 1
    run = await desk.run(run_id)
    assert (run.state, run.error_code) == (RunState.FAILED, "lost")


async def test_an_expired_run_starts_who_follows_failures(desk, chance):
    first = await desk.task("first", deadline=MINUTE)
    second = await desk.task("second", after=After(task="first", on=AfterOn.FAILURE))
    third = await desk.task("third", after=After(task="first", on=AfterOn.SUCCESS))
    await desk.queue(first)
    desk.clock.advance(MINUTE)
    await expire(desk.store, chance)
    assert await desk.store.read(count_runs, second.id) == {"queued": 1}
    assert await desk.store.read(count_runs, third.id) == {}
