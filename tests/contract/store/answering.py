"""An answer and what Rota does itself because of it: one transaction, whole or not at all."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from rota.flow.define.runs import end_of
from rota.flow.observe.verification import verify
from rota.model.runs import Lease, RunState
from rota.model.settlement import ApprovedAction, Settlement
from rota.rules.approvals import APPROVE, DECISIONS, ROTA, action_text
from rota.rules.settlement import SettlementContext, settle_answer
from rota.store.settlement import approve
from rota.store.views import list_questions
from rota.store.workers import get_open_runs
from rota.testing.fakes import FixedChance
from tests.tools.store_bench import Bench


class AnsweringContract:
    """What is approved is done with the answer, once, and what came of it is written down."""

    async def test_a_run_is_queued_with_the_answer_and_its_number_kept(self, bench: Bench) -> None:
        lease, approved = await _asked(bench)
        other = await bench.task("other")
        deed = ApprovedAction(queues=bench.batch(other, [{"n": 1}]))
        came = await bench.store.write(approve, approved, deed)
        (run_id,) = await bench.claim_ids(routes=[other.route])
        assert came is not None
        assert json.loads(came) == {"ok": True, "run": run_id, "created": True}
        (question,) = await bench.store.read(list_questions, [lease.run_id])
        assert (question.answer, question.outcome) == (APPROVE, came)
        claimed = await bench.claimed(1)
        assert claimed.answers[lease.run_id] == (f"{APPROVE} sha256:{question.digest} {came}",)
        assert (await verify(bench.store)).violations == ()

    async def test_a_second_answer_does_nothing(self, bench: Bench) -> None:
        _, approved = await _asked(bench)
        other = await bench.task("other")
        deed = ApprovedAction(queues=bench.batch(other, [None]))
        assert await bench.store.write(approve, approved, deed) is not None
        assert await bench.store.write(approve, approved, deed) is None
        assert len(await bench.claim_ids(routes=[other.route])) == 1

    async def test_a_key_that_stands_for_something_else_is_told(self, bench: Bench) -> None:
        _, approved = await _asked(bench)
        other = await bench.task("other")
        await bench.enqueue(bench.batch(other, [1], ["k"]))
        came = await bench.store.write(
            approve, approved, ApprovedAction(queues=bench.batch(other, [2], ["k"]))
        )
        assert _told(came) == (False, "conflict")

    @pytest.mark.parametrize("state", [RunState.CANCELLED, RunState.RUNNING])
    async def test_a_run_is_ended_as_it_stands_then(self, bench: Bench, state: RunState) -> None:
        _, approved = await _asked(bench)
        (run_id,) = await bench.queue(await bench.task("other"))
        deed = ApprovedAction(ends=await _end(bench, run_id))
        lease = await bench.claim_one()
        if state is RunState.CANCELLED:  # it waits by then, and nobody works on it
            await bench.ask(lease)
        came = await bench.store.write(approve, approved, deed)
        assert json.loads(came or "") == {"ok": True, "run": run_id, "state": state.value}
        assert (await bench.state(run_id)) is state
        (facts,) = await bench.store.read(get_open_runs, [run_id])
        assert facts.cancel_requested is (state is RunState.RUNNING)
        assert (await verify(bench.store)).violations == ()

    async def test_a_run_that_has_ended_meanwhile_is_left_alone(self, bench: Bench) -> None:
        _, approved = await _asked(bench)
        other = await bench.task("other")
        (run_id,) = await bench.queue(other)
        deed = ApprovedAction(ends=await _end(bench, run_id))
        assert await bench.end(await bench.claim_one())
        assert _told(await bench.store.write(approve, approved, deed)) == (False, "illegal_move")
        assert await bench.state(run_id) is RunState.SUCCEEDED

    async def test_what_is_known_already_is_kept_as_it_is(self, bench: Bench) -> None:
        lease, approved = await _asked(bench)
        known = '{"ok": true, "rows": [["ä"]]}'
        assert await bench.store.write(approve, approved, ApprovedAction(known=known)) == known
        (question,) = await bench.store.read(list_questions, [lease.run_id])
        assert question.outcome == known


async def _asked(bench: Bench) -> tuple[Lease, Settlement]:
    """Return a run that waits for an approval, and the answer that approves it."""
    task = await bench.task("asks")
    await bench.queue(task)
    lease = await bench.claim_one()
    action = action_text({}, run=lease.run_id, attempt=1, task="asks", space="main", by=ROTA)
    options: dict[str, Any] = {"action": action, "expires_in": timedelta(days=1)}
    question = await bench.ask(lease, options=DECISIONS, **options)
    (facts,) = await bench.store.read(get_open_runs, [lease.run_id])
    (asked,) = await bench.store.read(list_questions, [lease.run_id])
    context = SettlementContext(policy=task.policy, now=bench.store.now())
    assert asked.id == question
    return lease, settle_answer(facts, asked.id, asked.kind, APPROVE, "ann", context)


async def _end(bench: Bench, run_id: int) -> Settlement:
    return await end_of(bench.store, await bench.run(run_id), "not wanted", FixedChance())


def _told(came: str | None) -> tuple[bool, str]:
    record = json.loads(came or "")
    return record["ok"], record["error"]["code"]
