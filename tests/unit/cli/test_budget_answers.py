"""Answers to a run that has used up its budget: what becomes of it is said at once."""

from __future__ import annotations

import asyncio

import pytest

from rota.flow.settle import running
from rota.model.attempts import AttemptReport, WaitingForAnswer
from rota.model.budgets import USABLE, Amounts, BudgetCaps, BudgetHolder, BudgetScope
from rota.model.settlement import AttemptNotes
from rota.model.tasks import TaskKind
from rota.rules.budgets import CONTINUE, PAUSE, STOP
from rota.rules.settlement import SettlementContext, settle
from rota.runtime.clock import SystemClock
from rota.store import settlement as store_settlement
from rota.store.budgets import reserve_budget, set_budget
from rota.store.claims import claim_runs
from rota.store.sqlite.database import SqliteDatabase


@pytest.fixture
def over(rota, hello):
    """Let a run wait at its budget, or for what its program asks."""

    def wait(stopped):
        rota.ok("task", "run", hello)

        async def ask():
            store = SqliteDatabase(str(rota.home / "rota.db"), SystemClock())
            await store.open()
            claimed = await store.write(
                claim_runs, "w", ("background", "foreground"), ["python"], 1
            )
            (lease,) = claimed.leases
            await store.write(
                set_budget, BudgetScope.RUN, lease.task_id, BudgetCaps(tokens=9), "me"
            )
            spender = BudgetHolder(
                run_id=lease.run_id, epoch=lease.epoch, space_id=lease.space_id,
                task_id=lease.task_id, day="2026-03-01", started_at=store.now(),
                units=USABLE[TaskKind.AGENT],
            )  # fmt: skip
            await store.write(reserve_budget, spender, "w", Amounts(), Amounts(tokens=9))
            asked = WaitingForAnswer(question="Go on?", options=(CONTINUE, STOP, PAUSE))
            report = AttemptReport(outcome=asked, notes=AttemptNotes(stop_reason=stopped))
            context = SettlementContext(policy=claimed.tasks[lease.task_id].policy, now=store.now())
            assert await store.write(
                store_settlement.settle, [settle(running(lease), report, context)]
            ) == [True]
            await store.close()

        asyncio.run(ask())

    return wait


@pytest.mark.parametrize(
    ("answer", "then"),
    [
        (STOP, ": it will be cancelled when it is claimed."),
        (PAUSE, ": it will be cancelled when it is claimed, and its task will be paused."),
        (CONTINUE, "."),
    ],
)
def test_an_answer_that_ends_the_run_says_so(rota, over, answer, then):
    over("budget: 9 tokens")
    out = rota.ok("answer", "1", answer).out
    assert out == f"Answered. Run 1 of hello is queued{then}\n"


def test_the_same_word_to_a_question_of_the_program_ends_nothing(rota, over):
    over(None)
    assert rota.json("answer", "1", STOP)["then"] is None
