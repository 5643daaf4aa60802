"""Asides: what goes on record beside the end of an attempt."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from rota.flow.settle import running
from rota.model.attempts import AttemptReport, Failed, Outcome, Succeeded
from rota.model.checks import CheckState, SuppressionReason
from rota.model.runs import Lease, QueueState, RunBatch, RunState
from rota.model.settlement import AttemptNotes
from rota.model.tasks import Policy
from rota.model.views import RunFilter
from rota.rules.checks import next_run
from rota.rules.settlement import SettlementContext, settle
from rota.store import settlement as store_settlement
from rota.store.tasks import get_state, get_tasks
from rota.store.views import count_runs, list_attempts, list_deliveries, list_runs
from tests.tools.store_bench import Bench

FOUND = json.dumps([{"check": "min_length", "passed": False, "evidence": "too short"}])
BOUNDS: dict[str, object] = {"next_check": {"min": "10m", "max": "1d"}}


class AsideContract:
    """What holds for marks, evidence, memories and next checks."""

    async def _lease(self, bench: Bench) -> Lease:
        await bench.worker("w1", timedelta(days=9))
        await bench.queue(await bench.task())
        return await bench.claim_one()

    async def _end(
        self,
        bench: Bench,
        lease: Lease,
        aside: AttemptNotes,
        outcome: Outcome | None = None,
        deliver_to: str | None = None,
    ) -> bool:
        (task,) = await bench.store.read(get_tasks, [lease.task_id])
        context = SettlementContext(
            policy=replace(task.policy, deliver_to=deliver_to), now=bench.store.now()
        )
        report = AttemptReport(outcome=outcome or Succeeded(), aside=aside)
        return (
            await bench.store.write(
                store_settlement.settle, [settle(running(lease), report, context)]
            )
        )[0]

    async def test_what_checks_found_stays_with_the_attempt(self, bench: Bench) -> None:
        lease = await self._lease(bench)
        against = AttemptNotes(checks=FOUND, checked=CheckState.CONTRADICTED)
        outcome = Failed(code="check_failed", message="too short")
        assert await self._end(bench, lease, against, outcome)
        run = await bench.run(lease.run_id)
        assert (run.state, run.checked) == (RunState.FAILED, CheckState.CONTRADICTED)
        (attempt,) = await bench.store.read(list_attempts, lease.run_id)
        assert attempt.checks == json.loads(FOUND)

    async def test_quiet_runs_are_counted_and_left_out(self, bench: Bench) -> None:
        lease = await self._lease(bench)
        quiet = AttemptNotes(mark=SuppressionReason.QUIET, remembered='{"seen": 3}')
        assert await self._end(bench, lease, quiet, deliver_to="test:ann")
        assert (await bench.run(lease.run_id)).mark is SuppressionReason.QUIET
        assert await bench.store.read(list_runs, RunFilter(quiet=False)) == []
        assert len(await bench.store.read(list_runs, RunFilter())) == 1
        assert (await bench.store.read(count_runs, lease.task_id))["quiet"] == 1
        kept = await bench.store.read(get_state, lease.task_id, "gate")
        assert kept is not None
        assert kept.value == '{"seen": 3}'
        assert await bench.store.read(list_deliveries, lease.run_id, 10) == []

    async def test_a_silent_success_is_delivered_to_nobody(self, bench: Bench) -> None:
        lease = await self._lease(bench)
        done = Succeeded(result='"nothing new"', silent=True)
        assert await self._end(bench, lease, AttemptNotes(), done, deliver_to="test:ann")
        run = await bench.run(lease.run_id)
        assert (run.state, run.mark, run.result) == (
            RunState.SUCCEEDED,
            SuppressionReason.SILENT,
            '"nothing new"',
        )
        assert await bench.store.read(list_deliveries, lease.run_id, 10) == []

    async def test_a_failure_remembers_and_queues_nothing(self, bench: Bench) -> None:
        lease = await self._lease(bench)
        aside = AttemptNotes(remembered="1", next_check=await self._next(bench, lease, "1h"))
        assert await self._end(bench, lease, aside, Failed(code="x", message="x"))
        assert await bench.store.read(get_state, lease.task_id, "gate") is None
        assert len(await bench.store.read(list_runs, RunFilter())) == 1

    async def _next(self, bench: Bench, lease: Lease, words: str) -> RunBatch | None:
        (task,) = await bench.store.read(get_tasks, [lease.task_id])
        bound = replace(task, spec=dict(BOUNDS), policy=Policy())
        return next_run(bound, lease.run_id, words, bench.store.now())

    async def test_a_task_has_one_next_check_at_most(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.worker("w1", timedelta(days=9))
        await bench.queue(task, 2)
        first, second = await bench.claim(2)
        assert await self._end(
            bench, first, AttemptNotes(next_check=await self._next(bench, first, "6h"))
        )
        assert await self._end(
            bench, second, AttemptNotes(next_check=await self._next(bench, second, "1s"))
        )
        (later,) = await bench.store.read(list_runs, RunFilter(state=RunState.QUEUED))
        assert (later.place, later.upstream_id) == (QueueState.LATER, first.run_id)
        assert later.available_at - bench.clock.now() == timedelta(minutes=10)
