"""Tasks that run until they have succeeded, and what is in the slots of workers."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

from rota.flow.observe.why import explain
from rota.flow.observe.why_facts import load_facts
from rota.flow.settle import running
from rota.model.attempts import AttemptReport, Cancelled, Succeeded
from rota.model.checks import SuppressionReason
from rota.model.events import EventName
from rota.model.runs import RunState
from rota.model.settlement import AttemptNotes
from rota.model.tasks import Task
from rota.rules.settlement import SettlementContext, settle
from rota.store import settlement as store_settlement
from rota.store.tasks import enable_task
from rota.store.views import list_busy_slots, list_events
from tests.tools.store_bench import Bench, failed


class FinishingContract:
    """A task that is to run until it has succeeded."""

    async def _task(self, bench: Bench) -> Task:
        task = await bench.task(until_success=True)
        await bench.worker("w1", timedelta(days=1))
        await bench.planned(task, every="1m")
        return task

    async def _slot(self, bench: Bench) -> None:
        bench.clock.advance(minutes=1)
        await bench.plan()

    async def test_ist_25_a_failure_keeps_the_task_and_the_first_success_ends_it(
        self, bench: Bench
    ) -> None:
        task = await self._task(bench)
        for outcome in (failed(), Cancelled(reason="not now")):
            await self._slot(bench)
            await bench.end(await bench.claim_one(), outcome)
            assert (await bench.task_of(task)).enabled
        await self._slot(bench)
        lease = await bench.claim_one()
        await self._slot(bench)  # the next one waits already
        assert await bench.end(lease)
        found = await bench.task_of(task)
        assert (found.enabled, found.disabled_reason) == (
            False,
            "it has succeeded, and was to run until then",
        )
        assert found.disabled_at == bench.clock.now()
        states = [run.state for run in await bench.slots(task)]
        assert states[-2:] == [RunState.SUCCEEDED, RunState.CANCELLED]
        await self._slot(bench)
        assert (await bench.claimed()).leases == []
        names = [
            e.name for e in await bench.store.read(list_events, 0, 1_000) if e.task_id == task.id
        ]
        assert names.count(EventName.TASK_DISABLED) == 1
        told = explain(await load_facts(bench.store, found, None), ZoneInfo("UTC"))
        assert any("it has succeeded, and was to run until then" in note for note in told.notes)

    async def test_a_success_that_comes_late_or_twice_ends_it_once(self, bench: Bench) -> None:
        task = await self._task(bench)
        await bench.queue(task, 2)
        one, two = await bench.claim_one(), await bench.claim_one()
        assert await bench.end(one)
        assert await bench.end(one)
        await bench.store.write(enable_task, task)
        assert await bench.end(one), "it stands already, and ends nothing again"
        assert (await bench.task_of(task)).enabled
        assert await bench.end(two)
        assert not (await bench.task_of(task)).enabled

    async def test_a_gate_that_woke_nobody_is_no_success_of_the_task(self, bench: Bench) -> None:
        task = await self._task(bench)
        await bench.queue(task)
        lease = await bench.claim_one()
        report = AttemptReport(
            outcome=Succeeded(), aside=AttemptNotes(mark=SuppressionReason.QUIET)
        )
        context = SettlementContext(policy=task.policy, now=bench.store.now())
        assert await bench.store.write(
            store_settlement.settle, [settle(running(lease), report, context)]
        ) == [True]
        assert (await bench.task_of(task)).enabled

    async def test_zub_38_what_is_in_the_slots_is_told_the_longest_first(
        self, bench: Bench
    ) -> None:
        await bench.worker("w1", timedelta(days=1))
        runs = []
        for space in ("ann", "bob", "ann"):
            await bench.queue(await bench.task(f"job-{space}", space=space))
            bench.clock.advance(minutes=1)
            runs.append((await bench.claim_one(), bench.clock.now()))
        await bench.queue(await bench.task("waits"))
        found = await bench.store.read(list_busy_slots, None, 10)
        assert [(slot.run_id, slot.since) for slot in found] == [
            (lease.run_id, at) for lease, at in runs
        ]
        assert (found[0].task, found[0].space, found[0].worker) == ("job-ann", "ann", "w1")
        assert await bench.store.read(list_busy_slots, None, 2) == found[:2]
        ann = await bench.space("ann")
        assert await bench.store.read(list_busy_slots, ann.id, 10) == [found[0], found[2]]
        await bench.end(runs[0][0])
        assert await bench.store.read(list_busy_slots, None, 10) == found[1:]
