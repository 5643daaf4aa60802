"""Stuck runs: who is told of, who is lost and why, and who is left alone.

What is asked about a running run, in the order in which it is asked:

    worker trusted, tells of it           nothing happens, ever
    worker trusted, tells nothing         noted after two missed heartbeats; never ended by others
    worker gone, a keeper may live        noted; goes on, and is adopted or lost when none can live
    worker gone, no keeper                lost at once, with its reason; `on_lost` decides
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.flow.maintain import (
    KEEPER_ALONE,
    WORKER_BUSY,
    WORKER_GONE,
    note_missed_heartbeats,
    rescue,
)
from rota.model.attempts import KeptAttempt
from rota.model.heartbeats import AttemptSample
from rota.model.runs import RunState
from rota.model.tasks import OnLost
from rota.store.attempts import record_launch, renew_home_lease
from rota.store.heartbeats import get_heartbeats, record_heartbeats
from rota.store.views import list_attempts, list_run_events
from rota.store.workers import renew_worker
from tests.tools.store_bench import micros

HOME = "here:/home"
BEAT = timedelta(seconds=60)
PATIENCE = micros(2.5 * BEAT)
PROMISE = timedelta(minutes=18)


class Caretaker:
    """Looks after runs as the maintenance loop of a supervisor does, a heartbeat apart."""

    def __init__(self, desk, chance):
        self.desk = desk
        self.chance = chance
        self.unheard = frozenset()
        self.fence = True

    async def look(self, after=BEAT):
        self.desk.clock.advance(after)
        await rescue(self.desk.store, self.chance, fence=self.fence)
        self.unheard = await note_missed_heartbeats(self.desk.store, PATIENCE, self.unheard)

    async def renew(self, worker="w1"):
        await self.desk.store.write(renew_worker, worker, self.desk.store.now() + micros(2 * BEAT))

    async def beat(self, lease, worker="w1"):
        sign = AttemptSample(run_id=lease.run_id, epoch=lease.epoch)
        await self.desk.store.write(
            record_heartbeats, worker, [sign], self.desk.store.now() + PATIENCE
        )


@pytest.fixture
def care(desk, chance):
    return Caretaker(desk, chance)


async def running(desk, **policy):
    await desk.worker("w1", 2 * BEAT)
    await desk.queue(await desk.task(**policy))
    return await desk.claim_one()


async def keep(desk, lease):
    await desk.store.write(renew_home_lease, HOME, "here", desk.store.now() + micros(PROMISE))
    kept = KeptAttempt(
        run_id=lease.run_id, epoch=lease.epoch, home=HOME, nonce="n", boot="b", executor="process"
    )
    assert await desk.store.write(record_launch, kept, "w1")


async def silences(desk, lease):
    events = await desk.store.read(list_run_events, lease.run_id)
    return [event.data["reason"] for event in events if event.name.value == "run.heartbeat_missed"]


async def test_a_run_whose_worker_tells_of_it_is_left_alone_over_midnight(desk, care):
    desk.clock.set(datetime(2026, 3, 1, 23, 50, tzinfo=UTC))
    lease = await running(desk)
    for _ in range(60):
        await care.renew()
        await care.beat(lease)
        await care.look()
    assert await desk.state(lease.run_id) is RunState.RUNNING
    assert await desk.events(lease.run_id) == []


async def test_a_worker_that_lives_and_tells_nothing_is_noted_once_and_keeps_its_run(desk, care):
    lease = await running(desk)
    for _ in range(60):
        await care.renew()
        await care.look()
    assert await desk.state(lease.run_id) is RunState.RUNNING
    assert await silences(desk, lease) == [WORKER_BUSY]
    await care.beat(lease)
    heard = (await desk.store.read(get_heartbeats, [lease.run_id]))[lease.run_id]
    assert heard.missed_reason is None


@pytest.mark.parametrize(
    ("on_lost", "state"), [(OnLost.RETRY, RunState.QUEUED), (OnLost.FAIL, RunState.FAILED)]
)
async def test_a_dead_worker_without_a_keeper_loses_its_run_with_the_reason(
    desk, care, on_lost, state
):
    lease = await running(desk, on_lost=on_lost)
    await care.beat(lease)
    await care.look(3 * BEAT)
    run = await desk.run(lease.run_id)
    assert (run.state, run.error) == (state, WORKER_GONE)
    (attempt,) = await desk.store.read(list_attempts, lease.run_id)
    assert attempt.error == WORKER_GONE
    if on_lost is OnLost.RETRY:
        (event,) = await desk.store.read(list_run_events, lease.run_id)
        assert (event.name.value, event.data["reason"]) == ("run.lost", WORKER_GONE)
    assert await silences(desk, lease) == []


async def test_a_kept_run_is_noted_and_lost_only_when_no_keeper_can_live(desk, care):
    lease = await running(desk)
    await keep(desk, lease)
    await care.beat(lease)
    for _ in range(int(PROMISE / BEAT) - 1):
        await care.look()
        assert await desk.state(lease.run_id) is RunState.RUNNING
    assert await silences(desk, lease) == [KEEPER_ALONE]
    await care.look(2 * BEAT)
    assert await desk.state(lease.run_id) is RunState.QUEUED


async def test_a_clock_that_leaps_makes_nobody_silent_who_still_tells(desk, care):
    lease = await running(desk)
    care.fence = False  # leases are another matter: there a lock tells who lives
    for leap in (timedelta(hours=7), timedelta(hours=-3), timedelta(days=2)):
        await care.beat(lease)
        desk.clock.set(desk.clock.now() + leap)
        await care.look(timedelta(seconds=5))
        await care.beat(lease)
        await care.look()
        await care.look()
    assert await silences(desk, lease) == []
    assert await desk.state(lease.run_id) is RunState.RUNNING


async def test_a_run_that_waits_or_has_ended_is_never_stuck(desk, care):
    lease = await running(desk)
    await care.beat(lease)
    await desk.ask(lease)
    for _ in range(10):
        await care.renew()
        await care.look()
    assert await desk.state(lease.run_id) is RunState.WAITING
    assert await silences(desk, lease) == []
