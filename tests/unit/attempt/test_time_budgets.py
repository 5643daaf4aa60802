"""Budgets of scripts: they use time and nothing else, and are stopped and asked about like all."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from rota.errors import Invalid
from rota.flow.claim import make_assignments
from rota.flow.define.budgets import forecast_of, set_task_budget
from rota.flow.define.runs import answer_question
from rota.flow.settle import settle_attempts
from rota.model.attempts import Cancelled, Drained, Succeeded, WaitingForAnswer
from rota.model.budgets import Amounts, BudgetCaps, BudgetScope
from rota.model.instants import from_micros
from rota.model.runs import RunState
from rota.model.tasks import TaskKind
from rota.rules.budgets import CONTINUE, PAUSE, RETRY_RESERVATION, STOP, local_date
from rota.rules.permissions import LOCAL
from rota.store.attempts import list_kept_attempts
from rota.store.budgets import reserve_budget, set_budget, usage_of_run
from rota.store.tasks import get_tasks
from rota.store.views import list_questions
from tests.contract.store.spending import spender_of
from tests.unit.attempt.keeper_home_fake import assignment, work_on
from tests.unit.attempt.programs_fake import Counting, ManyYard

RESULT = b'{"rota": "result", "text": "done"}\n'
QUESTION = b'{"rota": "question", "text": "Which colour?"}\n'


async def given_to(desk, **caps):
    given = await assignment(desk, output="lines")
    for scope, cap in caps.items():
        key = given.lease.space_id if scope == "space" else given.lease.task_id
        await desk.store.write(set_budget, BudgetScope(scope), key, cap, "me")
    return given


async def next_of(desk):
    claimed = await desk.claimed(1, routes=["script"])
    return make_assignments(claimed, desk.store.database.incarnation)[0]


async def queued_again(desk, given):
    await desk.queue((await desk.store.read(get_tasks, [given.lease.task_id]))[0])
    return await next_of(desk)


async def answered(desk, run_id, text):
    question = (await desk.store.read(list_questions, [run_id]))[-1]
    await answer_question(desk.store, LOCAL, question.id, text)
    return await next_of(desk)


async def going_for(desk, given, clock, seconds, yard=None):
    """Return the report of a script that goes on until its budget ends it."""
    yard = yard or ManyYard(None)
    work = asyncio.ensure_future(work_on(desk.store, yard, Counting()).run(given))
    await yard.going.wait()
    clock.advance(timedelta(seconds=seconds))
    report = await work
    await settle_attempts(desk.store, [(given, report)], Counting())
    return report


async def test_at_the_cap_of_its_time_a_script_is_ended_politely_and_a_person_asked(desk, clock):
    given = await given_to(desk, run=BudgetCaps(seconds=60))
    yard = ManyYard(None)
    report = await going_for(desk, given, clock, 61, yard)
    assert isinstance(report.outcome, WaitingForAnswer)
    assert report.outcome.options == (CONTINUE, STOP, PAUSE)
    assert "61 seconds" in report.outcome.context
    assert yard.cancelled == ["budget: this run may use 60 seconds"]
    assert await desk.state(given.lease.run_id) is RunState.WAITING
    (spent,) = await desk.store.read(usage_of_run, given.lease.run_id)
    assert spent.used == Amounts(seconds=61)
    assert spent.stopped == "budget: this run may use 60 seconds"


async def test_a_script_is_not_held_to_what_it_cannot_use(desk):
    given = await given_to(
        desk, space=BudgetCaps(tokens=1, cost=1, turns=1), run=BudgetCaps(tools=1)
    )
    other = await queued_again(desk, given)
    today = local_date(from_micros(desk.store.now()), "UTC")
    agent = replace(spender_of(other.lease), day=today)
    most = Amounts(tokens=1, cost=1, turns=1)
    assert (
        await desk.store.write(reserve_budget, agent, "w1", Amounts(), most) == most
    )  # nothing is left of it
    report = await work_on(desk.store, ManyYard({"out": RESULT}), Counting()).run(given)
    assert isinstance(report.outcome, Succeeded)


async def test_a_day_whose_time_is_used_holds_the_next_script_back(desk, clock):
    given = await given_to(desk, space=BudgetCaps(seconds=60, tokens=5))
    report = await going_for(desk, given, clock, 60)
    assert isinstance(report.outcome, WaitingForAnswer)
    next_ = await queued_again(desk, given)
    report = await work_on(desk.store, ManyYard(), Counting()).run(next_)
    assert isinstance(report.outcome, Drained)
    assert report.outcome.reason == "the space's budget of 60 seconds for today has 0 seconds left"
    assert report.outcome.until - desk.store.now() > RETRY_RESERVATION / timedelta(microseconds=1)


async def test_what_is_only_set_aside_for_others_is_looked_for_again_soon(desk, clock):
    given = await given_to(desk, task=BudgetCaps(seconds=1))
    yard = ManyYard(None)
    work = asyncio.ensure_future(work_on(desk.store, yard, Counting()).run(given))
    await yard.going.wait()
    next_ = await queued_again(desk, given)
    report = await work_on(desk.store, ManyYard(), Counting()).run(next_)
    assert isinstance(report.outcome, Drained)
    assert report.outcome.until - desk.store.now() == RETRY_RESERVATION / timedelta(microseconds=1)
    assert report.outcome.reason.endswith("1 seconds are reserved by running attempts")
    clock.advance(timedelta(seconds=2))
    await work


async def test_an_answer_grants_its_time_once_more_and_is_none_of_the_scripts_own(desk, clock):
    given = await given_to(desk, run=BudgetCaps(seconds=60))
    report = await work_on(desk.store, ManyYard({"out": QUESTION}), Counting()).run(given)
    await settle_attempts(desk.store, [(given, report)], Counting())
    again = await answered(desk, given.lease.run_id, "red")
    assert isinstance((await going_for(desk, again, clock, 60)).outcome, WaitingForAnswer)
    again = await answered(desk, given.lease.run_id, CONTINUE)
    assert again.answers == ("red", CONTINUE)
    yard = ManyYard({"out": RESULT})
    report = await work_on(desk.store, yard, Counting()).run(again)
    assert isinstance(report.outcome, Succeeded)
    assert json.loads(yard.started[0].env["ROTA_ANSWERS"]) == ["red"]


@pytest.mark.parametrize("text", [STOP, PAUSE])
async def test_an_answer_stops_the_script_or_pauses_its_task(desk, clock, text):
    given = await given_to(desk, run=BudgetCaps(seconds=5))
    await going_for(desk, given, clock, 5)
    again = await answered(desk, given.lease.run_id, text)
    yard = ManyYard()
    report = await work_on(desk.store, yard, Counting()).run(again)
    assert isinstance(report.outcome, Cancelled)
    (task,) = await desk.store.read(get_tasks, [again.lease.task_id])
    assert task.enabled is (text == STOP)
    assert yard.started == []


async def test_the_time_of_scripts_is_known_without_any_budget(desk, clock):
    given = await given_to(desk)
    yard = ManyYard({"out": RESULT, "goes_on": True})
    work = asyncio.ensure_future(work_on(desk.store, yard, Counting()).run(given))
    await yard.going.wait()
    clock.advance(timedelta(seconds=7))
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    yard.finish(kept)
    report = await work
    assert isinstance(report.outcome, Succeeded)
    await settle_attempts(desk.store, [(given, report)], Counting())
    known = await forecast_of(desk.store, given.task)
    assert (known.runs, known.usual) == (1, Amounts(seconds=7))


@pytest.mark.parametrize(
    ("kind", "caps", "advice"),
    [
        (TaskKind.SCRIPT, BudgetCaps(tokens=1), "a script uses no tokens: cap its time"),
        (
            TaskKind.SCRIPT,
            BudgetCaps(tools=1, seconds=1),
            "a script uses no tool calls: cap its time",
        ),
        (
            TaskKind.PYTHON,
            BudgetCaps(seconds=1),
            "a callable has no budget: give this task a timeout",
        ),
    ],
)
async def test_a_cap_that_a_kind_cannot_use_is_refused(desk, kind, caps, advice):
    given = await assignment(desk, kind=kind)
    with pytest.raises(Invalid, match=advice):
        await set_task_budget(desk.store, LOCAL, given.task, BudgetScope.RUN, caps)
