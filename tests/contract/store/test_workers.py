"""Workers: leases, fencing, lost and expired runs, stuck ones, and pruning."""

from __future__ import annotations

from datetime import timedelta

from rota.flow.settle import running
from rota.model.attempts import (
    AttemptReport,
    Cancelled,
    OutgoingMessage,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.instants import to_micros
from rota.model.notifications import DeliveryState
from rota.model.runs import RunState
from rota.model.tasks import Retry
from rota.model.views import RunFilter
from rota.rules.settlement import SettlementContext, settle
from rota.store import settlement as store_settlement
from rota.store.outbox import claim_deliveries, record_delivery
from rota.store.settlement import request_cancel
from rota.store.views import (
    count_runs,
    get_run,
    list_attempts,
    list_deliveries,
    list_events,
    list_questions,
    list_run_events,
    list_runs,
    list_workers,
    view_queue,
)
from rota.store.workers import (
    fence_other_workers,
    fence_workers,
    list_expired_runs,
    list_lost_runs,
    mark_stuck,
    prune_runs,
    renew_worker,
    retire_worker,
)
from tests.tools.store_bench import MINUTE, Bench, failed, micros

TTL = timedelta(seconds=30)


class TestWorkers:
    """Who is trusted, and what becomes of the runs of those who are not."""

    async def _renew(self, bench: Bench, worker: str) -> bool:
        return (
            await bench.store.write(renew_worker, worker, bench.store.now() + micros(TTL))
        ).alive

    async def test_a_worker_that_renews_is_never_fenced(self, bench: Bench) -> None:
        await bench.worker("w1", TTL)
        for _ in range(5):
            bench.clock.advance(seconds=20)
            assert await self._renew(bench, "w1")
            assert await bench.store.write(fence_workers) == 0

    async def test_a_worker_that_does_not_renew_is_fenced(self, bench: Bench) -> None:
        await bench.worker("w1", TTL)
        bench.clock.advance(TTL)
        assert await bench.store.write(fence_workers) == 0
        bench.clock.advance(seconds=1)
        assert await bench.store.write(fence_workers) == 1
        assert await bench.store.write(fence_workers) == 0

    async def test_a_fenced_worker_can_never_renew_again(self, bench: Bench) -> None:
        await bench.worker("w1", TTL)
        bench.clock.advance(seconds=31)
        await bench.store.write(fence_workers)
        assert not await self._renew(bench, "w1")
        assert (await bench.store.read(list_workers))[0].fenced

    async def test_an_unknown_worker_cannot_renew(self, bench: Bench) -> None:
        assert not await self._renew(bench, "nobody")

    async def test_runs_are_lost_only_when_their_worker_is(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 3)
        await bench.worker("alive", timedelta(hours=1))
        await bench.worker("dying", TTL)
        await bench.claim(1, worker="alive")
        (lost,) = await bench.claim_ids(1, worker="dying")
        (stray,) = await bench.claim_ids(1, worker="never registered")
        assert [run.run_id for run in await bench.store.read(list_lost_runs, 10)] == [stray]
        bench.clock.advance(MINUTE)
        await bench.store.write(fence_workers)
        found = await bench.store.read(list_lost_runs, 10)
        assert sorted(run.run_id for run in found) == [lost, stray]
        assert {(run.state, run.epoch) for run in found} == {(RunState.RUNNING, 1)}
        assert len(await bench.store.read(list_lost_runs, 1)) == 1

    async def test_the_holder_of_the_lock_fences_everybody_else(self, bench: Bench) -> None:
        for worker in ("old1", "old2", "me"):
            await bench.worker(worker, timedelta(hours=1))
        assert await bench.store.write(fence_other_workers, "me") == 2
        assert await self._renew(bench, "me")
        assert not await self._renew(bench, "old1")

    async def test_a_renewal_names_the_runs_somebody_wants_stopped(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 3)
        await bench.worker("w1")
        await bench.worker("w2")
        mine, other = await bench.claim_ids(2, worker="w1")
        (theirs,) = await bench.claim_ids(1, worker="w2")
        heard: list[str] = []
        bench.store.subscribe(heard.append)
        await bench.store.write(request_cancel, [mine, theirs], "cancelled by ann")
        assert (
            await bench.store.write(renew_worker, "w1", to_micros(bench.clock.now()))
        ).cancels == (mine,)
        assert (await bench.run(other)).cancel_requested_at is None
        assert (await bench.run(mine)).cancel_requested_at == bench.clock.now()
        assert await bench.events(mine) == ["run.cancel_requested"]
        assert "cancels" in heard

    async def test_a_worker_that_holds_nothing_can_retire(self, bench: Bench) -> None:
        await bench.worker("w1")
        await bench.store.write(retire_worker, "w1")
        assert await bench.store.read(list_workers) == []

    async def test_a_worker_that_holds_a_run_stays_known(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        await bench.worker("w1")
        await bench.claim()
        await bench.store.write(retire_worker, "w1")
        (view,) = await bench.store.read(list_workers)
        assert (view.id, view.running) == ("w1", 1)

    async def test_a_stuck_run_is_marked_once_and_only_by_its_epoch(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        await bench.store.write(mark_stuck, lease.run_id, lease.epoch - 1)
        assert not (await bench.run(lease.run_id)).stuck
        await bench.store.write(mark_stuck, lease.run_id, lease.epoch)
        await bench.store.write(mark_stuck, lease.run_id, lease.epoch)
        assert (await bench.run(lease.run_id)).stuck
        assert await bench.state(lease.run_id) is RunState.RUNNING
        assert await bench.events(lease.run_id) == ["run.stuck"]
        assert (await bench.store.read(view_queue)).stuck == 1


class TestExpiry:
    """Runs whose time has run out."""

    async def test_a_queued_run_expires_at_its_deadline(self, bench: Bench) -> None:
        (run_id,) = await bench.queue(await bench.task(deadline=MINUTE))
        bench.clock.advance(seconds=59)
        assert await bench.store.read(list_expired_runs, 10) == []
        bench.clock.advance(seconds=1)
        (found,) = await bench.store.read(list_expired_runs, 10)
        assert (found.run_id, found.state) == (run_id, RunState.QUEUED)

    async def test_a_running_run_does_not(self, bench: Bench) -> None:
        await bench.queue(await bench.task(deadline=MINUTE))
        await bench.claim_one()
        bench.clock.advance(hours=1)
        assert await bench.store.read(list_expired_runs, 10) == []

    async def test_a_delayed_run_counts_from_when_it_is_available(self, bench: Bench) -> None:
        task = await bench.task(deadline=MINUTE)
        await bench.queue(task, at=bench.clock.now() + timedelta(hours=1))
        bench.clock.advance(hours=1)
        assert await bench.store.read(list_expired_runs, 10) == []
        bench.clock.advance(MINUTE)
        assert len(await bench.store.read(list_expired_runs, 10)) == 1

    async def test_a_question_expires(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        await bench.end(lease, WaitingForAnswer(question="?", expires_in=MINUTE))
        assert await bench.store.read(list_expired_runs, 10) == []
        bench.clock.advance(MINUTE)
        (found,) = await bench.store.read(list_expired_runs, 10)
        assert (found.run_id, found.state) == (lease.run_id, RunState.WAITING)

    async def test_the_oldest_come_first_and_no_more_than_asked(self, bench: Bench) -> None:
        slow = await bench.task("slow", deadline=timedelta(minutes=2))
        quick = await bench.task("quick", deadline=MINUTE)
        await bench.queue(slow)
        (first,) = await bench.queue(quick)
        bench.clock.advance(hours=1)
        assert [run.run_id for run in await bench.store.read(list_expired_runs, 1)] == [first]


class TestPruning:
    """Old rows leave, their number stays."""

    async def test_pruning_removes_finished_runs_and_keeps_the_tally(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.queue(task, 5)
        for number in range(4):
            await bench.end(await bench.claim_one(), failed() if number == 3 else None)
        before = await bench.store.read(count_runs, task.id)
        assert before == {"succeeded": 3, "failed": 1, "queued": 1}
        bench.clock.advance(days=1)
        assert await bench.store.write(prune_runs, bench.store.now(), 1_000) > 0
        assert await bench.store.read(count_runs, task.id) == before
        (left,) = await bench.store.read(list_runs, RunFilter())
        assert left.state is RunState.QUEUED
        assert await bench.store.read(list_events, 0, 100) == []

    async def test_tallies_add_up_over_several_prunings(self, bench: Bench) -> None:
        task = await bench.task()
        for _ in range(3):
            await bench.queue(task, 2)
            for _ in range(2):
                await bench.end(await bench.claim_one())
            bench.clock.advance(days=1)
            while await bench.store.write(prune_runs, bench.store.now(), 2):
                assert (await bench.store.read(count_runs, task.id))["succeeded"] % 2 == 0
        assert await bench.store.read(count_runs, task.id) == {"succeeded": 6}

    async def test_what_is_newer_stays(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.queue(task, 2)
        old = await bench.claim_one()
        await bench.end(old)
        bench.clock.advance(days=2)
        new = await bench.claim_one()
        await bench.end(new)
        await bench.store.write(prune_runs, bench.store.now() - micros(timedelta(days=1)), 100)
        assert await bench.store.read(get_run, old.run_id) is None
        assert await bench.store.read(get_run, new.run_id) is not None
        assert len(await bench.store.read(list_attempts, new.run_id)) == 1

    async def test_attempts_and_questions_leave_with_their_run(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        await bench.ask(lease)
        await bench.end_open(lease.run_id, Cancelled(reason="no"))
        bench.clock.advance(days=1)
        await bench.store.write(prune_runs, bench.store.now(), 100)
        assert await bench.store.read(list_attempts, lease.run_id) == []
        assert await bench.store.read(list_questions, [lease.run_id]) == []
        assert await bench.store.read(list_run_events, lease.run_id) == []

    async def test_unfinished_runs_are_left_alone_however_old(self, bench: Bench) -> None:
        retry = Retry(attempts=9, base=timedelta(days=300), cap=timedelta(days=300))
        task = await bench.task(retry=retry)
        ids = await bench.queue(task, 4)
        await bench.worker("w1")
        await bench.end(await bench.claim_one(), failed())
        await bench.ask(await bench.claim_one())
        await bench.claim_one()
        bench.clock.advance(days=365)
        while await bench.store.write(prune_runs, bench.store.now(), 2):
            pass
        states = [await bench.state(run_id) for run_id in ids]
        assert states == [RunState.QUEUED, RunState.WAITING, RunState.RUNNING, RunState.QUEUED]

    async def test_an_unsent_message_outlives_its_run(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.queue(task)
        lease = await bench.claim_one()
        message = OutgoingMessage(client_id="m", channel="log", target="", body="hello")
        report = AttemptReport(outcome=Succeeded(), messages=(message,))
        context = SettlementContext(policy=task.policy, now=bench.store.now())
        await bench.store.write(store_settlement.settle, [settle(running(lease), report, context)])
        bench.clock.advance(days=1)
        await bench.store.write(prune_runs, bench.store.now(), 100)
        assert await bench.store.read(get_run, lease.run_id) is None
        (sent,) = await bench.store.write(claim_deliveries, "w1", 10)
        await bench.store.write(record_delivery, sent, DeliveryState.SENT, None, bench.store.now())
        bench.clock.advance(days=1)
        await bench.store.write(prune_runs, bench.store.now(), 100)
        assert await bench.store.read(list_deliveries, None, 10) == []

    async def test_fenced_workers_are_forgotten_when_they_hold_nothing(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        await bench.worker("empty", TTL)
        await bench.worker("busy", TTL)
        await bench.worker("alive", timedelta(days=9))
        lease = await bench.claim_one(worker="busy")
        bench.clock.advance(days=1)
        await bench.store.write(fence_workers)
        await bench.store.write(prune_runs, bench.store.now(), 100)
        assert {view.id for view in await bench.store.read(list_workers)} == {"busy", "alive"}
        await bench.end(lease)
        await bench.store.write(prune_runs, bench.store.now(), 100)
        assert {view.id for view in await bench.store.read(list_workers)} == {"alive"}

    async def test_a_fenced_worker_gets_nothing(self, bench: Bench) -> None:
        await bench.queue(await bench.task())
        await bench.worker("w1", TTL)
        bench.clock.advance(MINUTE)
        await bench.store.write(fence_workers)
        assert await bench.claim(worker="w1") == []
        assert len(await bench.claim(worker="w2")) == 1
