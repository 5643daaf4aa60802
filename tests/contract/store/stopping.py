"""Stopping what runs: it ends, whatever its end was to be, and tells who wanted that."""

from __future__ import annotations

from datetime import timedelta

from rota.flow.settle import running
from rota.model.attempts import Cancelled, Drained, Lost, WaitingForAnswer
from rota.model.runs import RunState
from rota.model.tasks import Retry
from rota.store.settlement import request_cancel, settle
from rota.store.views import list_attempts
from tests.tools.store_bench import Bench, failed

RETRY = Retry(attempts=3, base=timedelta(minutes=1), jitter=0)


class StoppingContract:
    """What becomes of a run that somebody wants stopped."""

    async def test_a_run_somebody_wants_stopped_never_goes_back_to_the_queue(
        self, bench: Bench
    ) -> None:
        task = await bench.task(retry=RETRY)
        for outcome in (
            failed(),
            WaitingForAnswer(question="Shall I?"),
            Drained(),
            Lost(reason="gone"),
        ):
            await bench.queue(task)
            lease = await bench.claim_one()
            decided = await bench.decide(running(lease), outcome)
            await bench.store.write(request_cancel, [lease.run_id], "cancelled by ann")
            assert await bench.store.write(settle, [decided]) == [True]
            run = await bench.run(lease.run_id)
            assert (run.state, run.error) == (RunState.CANCELLED, "cancelled by ann")
            assert await bench.claim() == []

    async def test_what_was_stopped_tells_who_wanted_that(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 3)
        asked, itself, done = await bench.claim(3)
        for lease in (asked, done):
            await bench.store.write(request_cancel, [lease.run_id], "cancelled by ann")
        for lease in (asked, itself):
            assert await bench.end(lease, Cancelled(reason="it was cancelled"))
        assert await bench.end(done)
        ends = [await bench.run(lease.run_id) for lease in (asked, itself, done)]
        assert [run.error for run in ends] == ["cancelled by ann", "it was cancelled", None]
        assert ends[-1].state is RunState.SUCCEEDED
        (attempt,) = await bench.store.read(list_attempts, asked.run_id)
        assert attempt.error == "cancelled by ann"
