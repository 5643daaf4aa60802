"""Approvals at the terminal: the whole action is shown, and only its hash approves it."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from rota.flow.settle import running
from rota.model.attempts import AttemptReport, WaitingForAnswer
from rota.rules.approvals import action_text
from rota.rules.permissions import OWNER
from rota.rules.settlement import SettlementContext, settle
from rota.runtime.clock import SystemClock
from rota.store import settlement as store_settlement
from rota.store.claims import claim_runs
from rota.store.sqlite.database import SqliteDatabase

ACTION = action_text(
    {"argv": ["deploy", "\u202eprod"]}, run=1, attempt=1, task="hello", space="main"
)


@pytest.fixture
def approval(rota, hello):
    """A run that waits for an approval."""
    rota.ok("task", "run", hello)

    async def ask():
        store = SqliteDatabase(str(rota.home / "rota.db"), SystemClock())
        await store.open()
        claimed = await store.write(claim_runs, "w", ("background", "foreground"), ["python"], 1)
        (lease,) = claimed.leases
        policy = claimed.tasks[lease.task_id].policy
        report = AttemptReport(outcome=WaitingForAnswer(question="Deploy?", action=ACTION))
        context = SettlementContext(policy=policy, now=store.now())
        assert await store.write(
            store_settlement.settle, [settle(running(lease), report, context)]
        ) == [True]
        await store.close()

    asyncio.run(ask())
    return hashlib.sha256(ACTION.encode()).hexdigest()


def test_the_whole_action_is_shown_with_the_words_that_approve_it(rota, approval):
    out = rota.ok("questions").out
    assert ACTION in out
    assert "\\u202eprod" in out
    assert f"rota answer 1 approve --hash {approval}" in out
    (waiting,) = rota.json("questions")["questions"]
    asked = waiting["question"]
    assert (asked["kind"], asked["action"], asked["action_hash"]) == ("approval", ACTION, approval)


def test_an_approval_needs_the_hash_of_what_was_shown(rota, approval):
    assert "action_hash" in rota.refused("answer", "1", "approve")
    assert "action_hash" in rota.refused("answer", "1", "approve", "--hash", approval[:12])
    assert "look at the action again" in rota.refused(
        "answer", "1", "approve", "--hash", "0" * 64, code=5
    )
    assert "approve, deny" in rota.refused("answer", "1", "yes", "--hash", approval)
    assert rota.json("answer", "1", "deny", "--hash", approval)["state"] == "queued"
    assert "closed" in rota.refused("answer", "1", "approve", "--hash", approval, code=5)
    shown = rota.ok("run", "1").out
    assert "deny" in shown
    assert OWNER in shown
