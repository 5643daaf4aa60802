"""Defects of the third system (IST-W rows): each can no longer happen."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from rota.errors import Busy
from rota.flow.deliver import deliver
from rota.flow.maintain import prune, rescue
from rota.flow.plan import plan
from rota.flow.settle import running
from rota.model.attempts import AttemptReport, Cancelled, OutgoingMessage, Succeeded
from rota.model.runs import RunState
from rota.model.tasks import CatchUp, CatchUpMode, Overlap, Pool
from rota.rules.settlement import SettlementContext, settle
from rota.runtime.supervisor import this_process
from rota.store.plans import next_due
from rota.store.settlement import settle as write_settlements
from rota.store.views import (
    count_runs,
    get_run,
    list_attempts,
    list_deliveries,
    list_events,
    list_run_events,
    view_queue,
)
from rota.store.workers import fence_other_workers, renew_worker
from rota.testing.fakes import RecordingChannel
from tests.tools.power_cut import cut_at_every_query
from tests.tools.store_bench import MINUTE, Bench, failed


async def test_ist_w01_midnight_makes_no_running_run_look_stuck(desk, chance):
    """Local text was compared with UTC text: at midnight every running task was queued again."""
    desk.clock.set(datetime(2026, 3, 2, 23, 59, 50, tzinfo=UTC))
    await desk.queue(await desk.task())
    await desk.worker("w1")
    lease = await desk.claim_one()
    desk.clock.advance(seconds=20)
    await desk.store.write(renew_worker, "w1", desk.store.now() + 30_000_000)
    assert await rescue(desk.store, chance, fence=True) == 0
    assert await desk.end(lease)


async def test_ist_w02_a_long_run_is_not_taken_away_while_its_worker_lives(desk, chance):
    """The stuck rule of 15 minutes was shorter than the timeout of 30, with no heartbeat."""
    await desk.queue(await desk.task(timeout=timedelta(hours=3)))
    await desk.worker("w1")
    lease = await desk.claim_one()
    for _ in range(2 * 60 * 4):
        desk.clock.advance(seconds=15)
        await desk.store.write(renew_worker, "w1", desk.store.now() + 30_000_000)
        assert await rescue(desk.store, chance, fence=True) == 0
    assert await desk.end(lease)


async def test_ist_w03_claiming_repairs_nothing_that_is_not_its_own(desk):
    """Every claim of every worker rewrote the whole table, whoever's tasks they were."""
    mine = await desk.task("mine", space="mine")
    other = await desk.task("other", space="other")
    await desk.queue(other, 3, at=desk.clock.now() + timedelta(minutes=1))
    (stray,) = await desk.queue(other)
    await desk.claim(worker="dead", routes=[other.route])
    desk.clock.advance(hours=1)
    events = await desk.store.read(list_events, 0, 100)
    await desk.queue(mine)
    assert len(await desk.claim(routes=[mine.route])) == 1
    assert (await desk.run(stray)).state is RunState.RUNNING
    assert (await desk.store.read(view_queue)).later == 3
    assert await desk.store.read(list_events, 0, 100) == events


async def test_ist_w04_a_worker_that_lost_its_run_delivers_nothing(desk, chance):
    """There was no fencing: the first worker of a reclaimed task still completed and delivered."""
    task = await desk.task(deliver_to="test:ann")
    await desk.queue(task)
    await desk.worker("w1")
    old = await desk.claim_one()
    desk.clock.advance(MINUTE)
    await rescue(desk.store, chance, fence=True)
    new = await desk.claim_one(worker="w2")
    assert not await desk.end(old, Succeeded(result='"old"'))
    assert await desk.end(new, Succeeded(result='"new"'))
    channel = RecordingChannel()
    assert await deliver(desk.store, {"test": channel}, "w2", chance) == 1
    assert [d.body for d in channel.sent] == ["new"]


async def test_ist_w05_a_result_and_its_message_are_recorded_together(desk):
    """Delivery came after the commit without an outbox: a crash in between lost it."""
    task = await desk.task()
    await desk.queue(task)
    lease = await desk.claim_one()
    message = OutgoingMessage(client_id="m", channel="test", target="ann", body="hello")
    report = AttemptReport(outcome=Succeeded(result="1"), messages=(message,))
    now = desk.store.now()
    settlement = settle(running(lease), report, SettlementContext(policy=task.policy, now=now))

    async def nothing_happened():
        assert (await desk.run(lease.run_id)).state is RunState.RUNNING
        assert await desk.store.read(list_attempts, lease.run_id) == []
        assert await desk.store.read(list_run_events, lease.run_id) == []
        assert await desk.store.read(list_deliveries, None, 10) == []

    store = desk.store
    cuts = await cut_at_every_query(store, write_settlements, [settlement], check=nothing_happened)
    assert cuts >= 4
    assert (await desk.run(lease.run_id)).state is RunState.SUCCEEDED
    assert len(await desk.store.read(list_deliveries, lease.run_id, 10)) == 1


async def test_ist_w05_a_failed_delivery_leaves_the_run_succeeded(desk, chance):
    """A mail that could not be sent turned a completed task into a failed one."""
    await desk.queue(await desk.task(deliver_to="test:ann"))
    lease = await desk.claim_one()
    await desk.end(lease, Succeeded(result='"done"'))
    channel = RecordingChannel(errors=[TimeoutError("no answer")])
    await deliver(desk.store, {"test": channel}, "w1", chance)
    assert await desk.state(lease.run_id) is RunState.SUCCEEDED
    (delivery,) = await desk.store.read(list_deliveries, lease.run_id, 10)
    assert delivery.state.value == "unknown"


async def test_ist_w08_two_messages_of_one_thread_are_worked_on_in_order(desk):
    """Two foreground workers could answer two messages of one room at the same time."""
    task = await desk.task(pool=Pool.FOREGROUND)
    ids = await desk.queue(task, 3, lane="talk:room", thread="talk:room")
    order = []
    for _ in ids:
        (lease,) = await desk.claim(worker="w1")
        assert await desk.claim(worker="w2") == []
        order.append(lease.run_id)
        await desk.end(lease)
    assert order == ids


async def test_ist_w09_a_busy_space_does_not_starve_the_others(desk):
    """Workers stayed with their user while there was work: a busy user held every slot."""
    busy = await desk.task("busy", space="busy")
    await desk.queue(busy, 200)
    others = []
    for number in range(5):
        others.append(await desk.task(f"t{number}", space=f"s{number}"))
        await desk.queue(others[-1])
    served = []
    for _ in range(12):
        desk.clock.advance(seconds=1)
        lease = await desk.claim_one()
        served.append(lease.space_id)
        await desk.end(lease)
    assert {task.space_id for task in others} <= set(served)


async def test_ist_w13_declaring_a_task_again_does_not_enable_it(desk):
    """An automatic disabling was undone at the next sync of the file."""
    task = await desk.task(disable_after=1)
    await desk.queue(task)
    await desk.end(await desk.claim_one(), failed())
    assert not (await desk.task_of(task)).enabled
    for priority in (0, 5):
        again = await desk.task(disable_after=1, priority=priority)
        assert not again.enabled
        assert again.disabled_reason == "failed 1 times in a row"


async def test_ist_w21_a_slot_that_is_far_too_late_does_not_fire(desk):
    """Missed slots always fired once, no matter how late."""
    task = await desk.task(catch_up=CatchUp(mode=CatchUpMode.LATEST, window=timedelta(hours=2)))
    await desk.planned(task, cron="0 13 * * *")
    desk.clock.set(datetime(2026, 3, 2, 20, 0, tzinfo=UTC))
    await desk.plan()
    assert await desk.slots(task) == []
    assert await desk.ledger(task) == [("too_late", 1)]


@pytest.mark.parametrize("lane", [None, "printer"])
async def test_ist_w21_a_slow_task_does_not_overlap_itself(desk, lane):
    """A job could run any number of times beside itself."""
    task = await desk.task(overlap=Overlap.SKIP, lane=lane)
    await desk.planned(task, every="1m")
    for _ in range(5):
        desk.clock.advance(MINUTE)
        await desk.plan()
        await desk.claim()
    assert (await desk.store.read(view_queue)).running == 1
    assert await desk.ledger(task) == [("overlap", 4)]


async def test_ist_w22_a_new_schedule_does_not_fire_for_a_time_already_passed(desk):
    """A briefing that had never run fired at once if today's slot had passed."""
    desk.clock.set(datetime(2026, 3, 2, 9, 0, tzinfo=UTC))
    task = await desk.task()
    await desk.planned(task, times="07:00,08:30")
    desk.clock.advance(hours=2)
    await desk.plan()
    assert await desk.slots(task) == []
    assert (await desk.store.read(next_due)) == int(
        datetime(2026, 3, 3, 7, 0, tzinfo=UTC).timestamp() * 1_000_000
    )


async def test_ist_w24_a_lock_that_is_taken_keeps_its_owners_name(tmp_path, opened_file):
    """The lock file was emptied before it was locked, which erased its owner's pid."""
    path = tmp_path / "rota.db"
    first, second = await opened_file(str(path)), await opened_file(str(path))
    await first.take_roles()
    for _ in range(2):
        with pytest.raises(Busy, match=f"process {os.getpid()}"):
            await second.take_roles()
    lock = tmp_path / "rota.db.lock"
    assert lock.read_text() == f"{os.getpid()}\n"
    assert lock.stat().st_mode & 0o077 == 0


async def test_ist_w25_runs_of_the_last_process_return_at_the_next_start(
    tmp_path, clock, chance, opened_file
):
    """Rows of a killed process stayed running until a 15 minute rule."""
    path = str(tmp_path / "rota.db")
    first = Bench(await opened_file(path), clock)
    await first.queue(await first.task(), 3)
    await first.worker("old")
    old = await first.claim(worker="old")
    await first.store.database.close()
    second = Bench(await opened_file(path), clock)
    second.routes = first.routes
    assert await second.store.database.take_roles()
    await second.worker("new")
    await second.store.write(fence_other_workers, "new")
    assert await rescue(second.store, chance, fence=False) == 3
    again = await second.claim(worker="new")
    assert [lease.run_id for lease in again] == [lease.run_id for lease in old]


def test_ist_w25_a_worker_id_is_never_used_twice():
    """Worker ids were not unique."""
    ids = {this_process().worker_id for _ in range(100)}
    assert len(ids) == 100


async def test_ist_w27_cancelled_runs_have_an_end_and_are_pruned(desk):
    """Cancelled tasks never got a completion time and were never deleted."""
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
