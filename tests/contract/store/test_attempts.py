"""Attempts under keepers: carried on by the next worker of their home, and recorded once."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from rota.flow.settle import running
from rota.model.attempts import (
    AgentSessionRef,
    AttemptReport,
    Cancelled,
    Drained,
    KeptAttempt,
    Lost,
    NewEvent,
    OutputChunk,
    OutputStream,
    ProgressNotice,
    Relaunch,
    Succeeded,
)
from rota.model.events import EventName
from rota.model.ids import Epoch
from rota.model.notifications import DeliveryKind
from rota.model.runs import Lease, RunState
from rota.model.settlement import NewDelivery
from rota.rules.settlement import SettlementContext, settle
from rota.store import settlement as store_settlement
from rota.store.attempt_requests import list_started_attempts
from rota.store.attempts import (
    adopt_attempt,
    begin_checks,
    count_output_events,
    drop_kept_attempt,
    fence_home,
    list_kept_attempts,
    record_launch,
    record_output,
    renew_home_lease,
    schedule_relaunch,
)
from rota.store.settlement import request_cancel
from rota.store.views import list_attempts, list_deliveries, list_run_events, list_run_output
from rota.store.workers import fence_workers, list_lost_runs, renew_worker
from tests.tools.store_bench import Bench, failed, micros

HOME = "/home"
SHORT = timedelta(seconds=30)
LONG = timedelta(minutes=15)
OVERLOAD = NewEvent(EventName.FAULT, {"kind": "overload"})
TALK = AgentSessionRef("codex", "s-1", 11, 7)


def kept_for(lease: Lease, nonce: str = "n1") -> KeptAttempt:
    """Return the record of a keeper that is about to start."""
    return KeptAttempt(
        run_id=lease.run_id, epoch=lease.epoch, home=HOME, nonce=nonce, boot="b", executor="process"
    )


def said(start: int, end: int, *texts: str, stream: OutputStream = OutputStream.OUT) -> OutputChunk:
    """Return a part of a stream with the lines it came to."""
    lines = [{"stream": stream.value, "at": start, "text": text} for text in texts]
    return OutputChunk(
        stream, start, end, tuple(NewEvent(EventName.OUTPUT, line) for line in lines)
    )


def aloud(lease: Lease, body: str, kind: DeliveryKind = DeliveryKind.NOTICE) -> NewDelivery:
    """Return a message for people that is known by its words."""
    return NewDelivery(
        space_id=lease.space_id, channel="log", target="", body=body, dedupe_key=body, kind=kind
    )


class TestKeptAttempts:
    """What holds for attempts whose processes outlive their worker."""

    async def _begun(self, bench: Bench) -> Lease:
        await bench.worker("w1", SHORT)
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        await bench.store.write(renew_home_lease, HOME, "here", bench.store.now() + micros(LONG))
        assert await bench.store.write(record_launch, kept_for(lease), "w1")
        return lease

    async def _texts(self, bench: Bench, lease: Lease) -> list[str]:
        return [
            str(e.data["text"])
            for e in await bench.store.read(list_run_output, lease.run_id, 1_000)
        ]

    async def test_a_kept_run_is_not_lost_with_its_worker(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        bench.clock.advance(SHORT + timedelta(seconds=1))
        await bench.store.write(fence_workers)
        assert await bench.store.read(list_lost_runs, 10) == []
        bench.clock.advance(LONG)
        assert [run.run_id for run in await bench.store.read(list_lost_runs, 10)] == [lease.run_id]

    async def test_who_was_begun_and_could_write_to_somewhere_outside_is_known(
        self, bench: Bench
    ) -> None:
        lease = await self._begun(bench)
        assert await bench.store.read(list_started_attempts, [lease.run_id]) == {
            lease.run_id: False
        }
        for nonce, writes in (("n2", True), ("n3", False)):  # two tries of one attempt
            kept = replace(kept_for(lease, nonce), writes=writes)
            assert await bench.store.write(record_launch, kept, "w1")
        (found,) = await bench.store.read(list_kept_attempts, HOME)
        assert (found.nonce, found.writes) == ("n3", True)
        assert await bench.store.read(list_started_attempts, [lease.run_id, lease.run_id + 1]) == {
            lease.run_id: True
        }
        assert await bench.end(lease, Drained())
        later = await bench.claim_one()
        assert await bench.store.read(list_started_attempts, [later.run_id]) == {}
        assert await bench.store.write(record_launch, kept_for(later), "w1")
        assert await bench.store.read(list_started_attempts, [later.run_id]) == {
            later.run_id: False
        }

    async def test_the_promise_of_a_home_never_moves_back(self, bench: Bench) -> None:
        await self._begun(bench)
        await bench.store.write(renew_home_lease, HOME, "here", bench.store.now())
        bench.clock.advance(SHORT + timedelta(seconds=1))
        await bench.store.write(fence_workers)
        assert await bench.store.read(list_lost_runs, 10) == []

    async def test_a_run_that_is_not_kept_is_lost_at_once(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        (other,) = await bench.queue(await bench.task("other"))
        await bench.claim()
        bench.clock.advance(SHORT + timedelta(seconds=1))
        await bench.store.write(fence_workers)
        assert [run.run_id for run in await bench.store.read(list_lost_runs, 10)] == [other]
        await bench.store.write(drop_kept_attempt, lease.run_id, lease.epoch)
        lost = {run.run_id for run in await bench.store.read(list_lost_runs, 10)}
        assert lost == {other, lease.run_id}

    async def test_nobody_keeps_a_run_that_is_not_theirs(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        assert not await bench.store.write(record_launch, kept_for(lease), "w2")
        older = lease._replace(epoch=Epoch(lease.epoch - 1))
        assert not await bench.store.write(record_launch, kept_for(older), "w1")
        await bench.end(lease)
        assert not await bench.store.write(record_launch, kept_for(lease), "w1")

    async def test_a_fenced_worker_keeps_nothing_new(self, bench: Bench) -> None:
        await bench.worker("w1", SHORT)
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        bench.clock.advance(SHORT + timedelta(seconds=1))
        await bench.store.write(fence_workers)
        assert not await bench.store.write(record_launch, kept_for(lease), "w1")
        assert [run.run_id for run in await bench.store.read(list_lost_runs, 10)] == [lease.run_id]

    async def test_only_who_holds_attempts_of_a_home_is_fenced_for_it(self, bench: Bench) -> None:
        await self._begun(bench)
        await bench.worker("beside", SHORT)
        await bench.worker("w2", SHORT)
        assert await bench.store.write(fence_home, HOME, "w2") == 1
        assert (
            await bench.store.write(renew_worker, "beside", bench.store.now() + micros(LONG))
        ).alive
        assert not (
            await bench.store.write(renew_worker, "w1", bench.store.now() + micros(LONG))
        ).alive

    async def test_one_that_was_adopted_meanwhile_is_not_lost(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        bench.clock.advance(timedelta(hours=1))
        await bench.store.write(fence_workers)
        lost = await bench.store.read(list_lost_runs, 10)
        assert [run.run_id for run in lost] == [lease.run_id]
        await bench.worker("w2", timedelta(hours=1))
        assert (await bench.store.write(adopt_attempt, lease.run_id, lease.epoch, "w2")).leases == [
            lease
        ]
        settlement = (await bench.decide(lost[0], Lost(reason="gone")))._replace(holder="w1")
        assert lost[0].holder == "w1"
        assert await bench.store.write(store_settlement.settle, [settlement]) == [False]
        assert await bench.state(lease.run_id) is RunState.RUNNING

    async def test_a_kept_run_is_not_taken_for_a_claim_without_an_answer(
        self, bench: Bench
    ) -> None:
        lease = await self._begun(bench)
        await bench.store.write(request_cancel, [lease.run_id], "cancelled by ann")
        renewal = await bench.store.write(renew_worker, "w1", bench.store.now() + micros(LONG))
        assert (renewal.held, renewal.cancels) == ((), (lease.run_id,))

    async def test_what_was_heard_is_recorded_once(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        run_id, epoch = lease.run_id, lease.epoch
        assert await bench.store.write(
            record_output, run_id, epoch, "w1", [said(0, 4, "one"), said(4, 8, "two")]
        )
        assert not await bench.store.write(record_output, run_id, epoch, "w1", [said(4, 8, "two")])
        assert not await bench.store.write(record_output, run_id, epoch, "w1", [said(9, 12, "gap")])
        assert await bench.store.write(
            record_output, run_id, epoch, "w1", [said(0, 5, "oops", stream=OutputStream.ERR)]
        )
        both = [said(8, 14, "three"), said(5, 9, "four", stream=OutputStream.ERR)]
        assert await bench.store.write(record_output, run_id, epoch, "w1", both)
        assert await self._texts(bench, lease) == ["one", "two", "oops", "three", "four"]
        (kept,) = await bench.store.read(list_kept_attempts, HOME)
        assert (kept.out_at, kept.err_at, kept.current) == (14, 9, True)
        newest = await bench.store.read(list_run_output, run_id, 2)
        assert [event.data["text"] for event in newest] == ["three", "four"]
        assert await bench.store.read(list_run_events, run_id) == []
        now = bench.store.now()
        for since, count in ((0, 5), (now, 5), (now + 1, 0)):
            assert await bench.store.read(count_output_events, run_id, since) == count
        assert await bench.store.read(count_output_events, run_id + 1, 0) == 0

    async def test_one_stream_out_of_step_records_nothing_of_the_other(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        wrong = [said(0, 4, "one"), said(3, 9, "late", stream=OutputStream.ERR)]
        assert not await bench.store.write(record_output, lease.run_id, lease.epoch, "w1", wrong)
        assert await self._texts(bench, lease) == []

    async def test_a_worker_that_is_not_the_holder_records_nothing(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        assert not await bench.store.write(
            record_output, lease.run_id, lease.epoch, "w2", [said(0, 4, "one")]
        )
        await bench.end(lease)
        assert not await bench.store.write(
            record_output, lease.run_id, lease.epoch, "w1", [said(0, 4, "one")]
        )
        assert await self._texts(bench, lease) == []

    async def _told(self, bench: Bench, lease: Lease) -> list[tuple[str, DeliveryKind]]:
        found = await bench.store.read(list_deliveries, lease.run_id, 100)
        return [(one.body, one.kind) for one in reversed(found)]

    async def test_what_is_for_people_is_sent_with_what_says_it_once(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        run_id, epoch = lease.run_id, lease.epoch
        answer = ProgressNotice(aloud(lease, "one", DeliveryKind.RESULT))
        part = said(0, 4)._replace(for_people=(answer,))
        assert not await bench.store.write(record_output, run_id, epoch, "w2", [part])
        assert await self._told(bench, lease) == []
        assert await bench.store.write(record_output, run_id, epoch, "w1", [part])
        assert not await bench.store.write(record_output, run_id, epoch, "w1", [part])
        assert await bench.store.write(
            record_output, run_id, epoch, "w1", [part._replace(start=4, end=8)]
        )
        assert await self._told(bench, lease) == [("one", DeliveryKind.RESULT)]
        late = said(8, 8)._replace(for_people=(answer, ProgressNotice(aloud(lease, "two"))))
        assert [
            await bench.store.write(record_output, run_id, epoch, who, [late])
            for who in ("w2", "w1")
        ] == [False, True]
        assert len(await self._told(bench, lease)) == 2, "without a byte more"
        assert await bench.end(lease)

    async def test_of_notices_on_the_way_there_are_few_and_far_between(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        gap = timedelta(seconds=8)
        for at, waited in enumerate((0, 1, 6, 1, 8, 8)):
            bench.clock.advance(timedelta(seconds=waited))
            step = ProgressNotice(aloud(lease, f"step {at}"), 2, micros(gap))
            both = (step, step._replace(delivery=aloud(lease, f"and {at}")))
            part = said(at, at + 1)._replace(for_people=both)
            assert await bench.store.write(record_output, lease.run_id, lease.epoch, "w1", [part])
        assert [body for body, _ in await self._told(bench, lease)] == ["step 0", "step 3"]
        assert await bench.end(lease)

    async def test_that_an_attempt_begins_is_told_once(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        begun = aloud(lease, "On it.")
        assert not await bench.store.write(record_launch, kept_for(lease), "w2", begun)
        assert await self._told(bench, lease) == []
        for nonce in ("n2", "n3"):
            assert await bench.store.write(record_launch, kept_for(lease, nonce), "w1", begun)
        assert await self._told(bench, lease) == [("On it.", DeliveryKind.NOTICE)]
        assert await bench.end(lease)

    async def test_the_next_worker_of_the_home_adopts_it(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        await bench.store.write(record_output, lease.run_id, lease.epoch, "w1", [said(0, 4, "one")])
        await bench.worker("w2", SHORT)
        assert (
            await bench.store.write(adopt_attempt, lease.run_id, lease.epoch, "w2")
        ).leases == []
        assert await bench.store.write(fence_home, HOME, "w2") == 1
        adopted = await bench.store.write(adopt_attempt, lease.run_id, lease.epoch, "w2")
        assert adopted.leases == [lease]
        assert list(adopted.tasks) == [lease.task_id]
        assert not await bench.store.write(
            record_output, lease.run_id, lease.epoch, "w1", [said(4, 8, "two")]
        )
        assert await bench.store.write(
            record_output, lease.run_id, lease.epoch, "w2", [said(4, 8, "two")]
        )
        assert await self._texts(bench, lease) == ["one", "two"]
        assert await bench.end(lease)
        assert await bench.state(lease.run_id) is RunState.SUCCEEDED

    async def test_a_run_that_went_on_is_not_adopted(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        await bench.worker("w2", SHORT)
        await bench.store.write(fence_home, HOME, "w2")
        await bench.end_open(lease.run_id, Lost(reason="gone"))
        assert (
            await bench.store.write(adopt_attempt, lease.run_id, lease.epoch, "w2")
        ).leases == []
        (kept,) = await bench.store.read(list_kept_attempts, HOME)
        assert not kept.current

    async def test_only_who_keeps_a_run_is_adopted_from(self, bench: Bench) -> None:
        await bench.worker("w1", SHORT)
        await bench.queue(await bench.task())
        lease = await bench.claim_one()
        await bench.worker("w2", SHORT)
        await bench.store.write(fence_home, HOME, "w2")
        assert (
            await bench.store.write(adopt_attempt, lease.run_id, lease.epoch, "w2")
        ).leases == []

    async def test_a_fenced_worker_adopts_nothing(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        await bench.worker("w2", SHORT)
        bench.clock.advance(SHORT + timedelta(seconds=1))
        await bench.worker("w3", SHORT)
        await bench.store.write(fence_workers)
        assert (
            await bench.store.write(adopt_attempt, lease.run_id, lease.epoch, "w2")
        ).leases == []
        assert (await bench.store.write(adopt_attempt, lease.run_id, lease.epoch, "w3")).leases == [
            lease
        ]

    async def test_a_new_attempt_begins_at_the_start(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        await bench.store.write(record_output, lease.run_id, lease.epoch, "w1", [said(0, 4, "one")])
        await bench.end(lease, Lost(reason="gone"))
        again = await bench.claim_one()
        assert await bench.store.write(record_launch, kept_for(again, "n2"), "w1")
        (kept,) = await bench.store.read(list_kept_attempts, HOME)
        assert (kept.epoch, kept.nonce, kept.out_at) == (again.epoch, "n2", 0)
        await bench.store.write(drop_kept_attempt, lease.run_id, lease.epoch)
        assert await bench.store.read(list_kept_attempts, HOME) == [kept]

    async def test_looks_at_checks_are_counted_for_each_attempt(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        assert [
            await bench.store.write(begin_checks, lease.run_id, lease.epoch) for _ in range(2)
        ] == [1, 2]
        assert await bench.store.write(begin_checks, lease.run_id, lease.epoch + 1) == 0
        await bench.end(lease, Lost(reason="gone"))
        assert await bench.store.write(begin_checks, lease.run_id, lease.epoch) == 0
        again = await bench.claim_one()
        assert await bench.store.write(record_launch, kept_for(again, "n2"), "w1")
        assert await bench.store.write(begin_checks, again.run_id, again.epoch) == 1

    async def test_a_try_in_vain_is_noted_once(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        await bench.store.write(record_output, lease.run_id, lease.epoch, "w1", [said(0, 4, "one")])
        until = bench.store.now() + micros(SHORT)
        paused = replace(kept_for(lease), tries=1, until=until)
        assert not await bench.store.write(schedule_relaunch, Relaunch(paused, OVERLOAD), "w2")
        assert not await bench.store.write(
            schedule_relaunch, Relaunch(replace(paused, nonce="n0"), OVERLOAD), "w1"
        )
        assert await bench.store.write(schedule_relaunch, Relaunch(paused, OVERLOAD), "w1")
        assert await bench.store.write(schedule_relaunch, Relaunch(paused, OVERLOAD), "w1")
        (kept,) = await bench.store.read(list_kept_attempts, HOME)
        assert (kept.tries, kept.until, kept.nonce, kept.out_at) == (1, until, "n1", 4)
        events = await bench.store.read(list_run_events, lease.run_id)
        assert [event.data for event in events] == [{"kind": "overload"}]

    async def test_the_next_try_begins_at_the_start_and_counts_on(self, bench: Bench) -> None:
        lease = await self._begun(bench)
        await bench.store.write(record_output, lease.run_id, lease.epoch, "w1", [said(0, 4, "one")])
        paused = replace(kept_for(lease), tries=1, until=bench.store.now())
        await bench.store.write(schedule_relaunch, Relaunch(paused, OVERLOAD), "w1")
        again = replace(paused, nonce="n2", until=None, began=5, session=TALK)
        assert await bench.store.write(record_launch, again, "w1")
        assert await bench.store.read(list_kept_attempts, HOME) == [again]
        assert not await bench.store.write(schedule_relaunch, Relaunch(paused, OVERLOAD), "w1")
        assert await bench.store.write(
            record_output, lease.run_id, lease.epoch, "w1", [said(0, 4, "two")]
        )
        assert await self._texts(bench, lease) == ["one", "two"]

    async def test_an_attempt_with_processes_tells_how_they_ended(self, bench: Bench) -> None:
        task = await bench.task()
        told = {"reason": "hard_timeout", "killed": True, "proven": True}
        for outcome in (Succeeded(), failed("timeout", "too slow"), Cancelled(reason="no")):
            await bench.queue(task)
            lease = await bench.claim_one()
            report = AttemptReport(outcome=outcome, ending=json.dumps(told))
            context = SettlementContext(policy=task.policy, now=bench.store.now())
            settlement = settle(running(lease), report, context)
            assert await bench.store.write(store_settlement.settle, [settlement]) == [True]
            (attempt,) = await bench.store.read(list_attempts, lease.run_id)
            assert attempt.ending == told
