"""Runs that wait or go on, as the terminal shows them."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from rota.flow.settle import running
from rota.model.attempts import AttemptReport, Failed, Lost, Succeeded, WaitingForAnswer
from rota.model.checks import SuppressionReason
from rota.model.settlement import AttemptNotes
from rota.rules.settlement import SettlementContext, settle
from rota.runtime.clock import SystemClock
from rota.store import settlement as store_settlement
from rota.store.claims import claim_runs
from rota.store.sqlite.database import SqliteDatabase

ASKED = WaitingForAnswer(
    question="Which one?",
    context="There are two drafts.\nBoth are short.",
    default="the first",
    expires_in=timedelta(hours=1),
)


@pytest.fixture
def ended(rota, hello):
    """Lets an attempt of the run come to something."""
    rota.ok("task", "run", hello)

    def end(outcome=None, aside=None):
        async def work():
            store = SqliteDatabase(str(rota.home / "rota.db"), SystemClock())
            await store.open()
            claimed = await store.write(
                claim_runs, "w", ("background", "foreground"), ["python"], 1
            )
            (lease,) = claimed.leases
            if outcome is not None:
                context = SettlementContext(
                    policy=claimed.tasks[lease.task_id].policy, now=store.now()
                )
                report = AttemptReport(outcome=outcome, notes=aside)
                assert await store.write(
                    store_settlement.settle, [settle(running(lease), report, context)]
                ) == [True]
            await store.close()

        asyncio.run(work())

    return end


def test_a_question_is_shown_with_its_context_and_its_default(rota, ended):
    ended(ASKED)
    for words in (("questions",), ("run", "1")):
        out = rota.ok(*words).out
        assert "  There are two drafts.\n  Both are short.\n" in out
        assert "  Default if not answered in time: the first\n" in out
    waits = rota("run", "1", "--wait").err
    assert "Which one?" in waits
    assert "  Both are short.\n  Default if not answered in time: the first\n" in waits


def test_what_an_earlier_attempt_came_to_is_not_told_as_the_outcome(rota, ended):
    ended(Lost(reason="its keeper was killed"))
    ended()
    shown = rota.ok("run", "1").out
    assert "earlier" in shown
    assert "attempt 1: its keeper was killed" in shown
    assert "\nerror " not in shown
    assert any(line.split()[:3] == ["2", "lost", "running"] for line in shown.splitlines())
    logs = rota.ok("logs", "1")
    assert logs.out.splitlines()[-1] == "earlier  attempt 1: its keeper was killed"
    assert "Run 1 is running." in logs.err


def test_waiting_tells_a_result_whole_and_nothing_that_a_terminal_obeys(rota, ended):
    lines = [f"line {number}" for number in range(300)]
    said = "\n".join(["\x1b]0;title\x07\x1b[2Jfirst", *lines]) + "\n"
    ended(Succeeded(result=json.dumps(said)))
    told = rota.ok("run", "1", "--wait").out
    assert told.splitlines() == ["first", *lines]
    for words in (("run", "1"), ("logs", "1"), ("runs",)):
        shown = rota.ok(*words).out
        assert "first" in shown
        assert "\x1b" not in shown


def test_the_sentence_of_a_failure_is_told_with_its_remedy(rota, ended):
    sentence = f"no agent {'x' * 200} is installed here; install its program or name another"
    ended(Failed(code="failed", message=f"{sentence}\nTraceback: here", retryable=False))
    waited = rota("run", "1", "--wait")
    assert waited.err == f"Run 1 of hello failed: {sentence}.\n"
    assert sentence in rota.ok("why", "1").out
    assert "install its program" not in rota.ok("runs").out


def test_a_gate_that_woke_nobody_is_told_as_that(rota, ended):
    ended(Succeeded(result='"no new mail"'), AttemptNotes(suppressed=SuppressionReason.BY_GATE))
    assert rota.ok("run", "1", "--wait").out == "The gate found no work: no new mail\n"
    for words in ((), ("--task", "hello"), ("--state", "succeeded")):
        assert (
            rota.ok("runs", *words).out == "No runs found. 1 suppressed run not shown: use --all\n"
        )
    assert "no new mail" in rota.ok("runs", "--all").out
    assert rota.ok("runs", "--all", "--state", "failed").out == "No runs found.\n"
    assert rota.ok("runs", "--state", "failed").out == "No runs found.\n"


def test_a_pause_without_an_end_names_the_command_that_has_none(rota, hello):
    assert "`rota task disable hello`" in rota.refused("task", "pause", hello)


def test_artifacts_of_a_task_are_those_of_its_newest_run(rota, hello):
    assert "rota run hello" in rota.refused("artifacts", hello, code=3)
    rota.ok("task", "run", hello)
    rota.ok("task", "run", hello)
    assert rota.json("artifacts", hello) == rota.json("artifacts", "2")
    assert "did you mean hello?" in rota.refused("artifacts", "helo", code=3)
