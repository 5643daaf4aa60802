"""Budgets of attempts: set aside before they begin, held while they run, asked about at the end."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from rota.flow.attempt.budget import cheaper, models_of
from rota.flow.claim import make_assignments
from rota.flow.define.runs import answer_question
from rota.flow.settle import settle_attempts
from rota.model.attempts import Cancelled, Drained, Succeeded, WaitingForAnswer
from rota.model.budgets import BudgetCaps, BudgetScope
from rota.model.runs import RunState
from rota.model.tasks import TaskKind
from rota.rules.budgets import CHEAPER, CONTINUE, PAUSE, STOP, options_for
from rota.rules.permissions import LOCAL
from rota.store.budgets import set_budget, usage_of_run
from rota.store.tasks import get_tasks
from rota.store.views import list_questions
from tests.unit.attempt.keeper_home_fake import assignment, work_on
from tests.unit.attempt.programs_fake import Counting, ManyYard

WISH = {"instructions": "Do it", "agent": "command", "output": "lines"}
RESULT = b'{"rota": "result", "text": "done"}\n'


def usage(tokens, cost=None):
    told = {"rota": "usage", "input_tokens": tokens}
    return json.dumps(told if cost is None else {**told, "cost_usd": cost}).encode() + b"\n"


async def given_to(desk, **caps):
    given = await assignment(desk, kind=TaskKind.AGENT, **WISH)
    for scope, cap in caps.items():
        key = given.lease.space_id if scope == "space" else given.lease.task_id
        await desk.store.write(set_budget, BudgetScope(scope), key, cap, "me")
    return given


async def test_what_an_agent_used_is_on_record_without_any_budget(desk, chance):
    given = await given_to(desk)
    yard = ManyYard({"out": usage(120, 0.5) + b'{"rota": "tool", "name": "Read"}\n' + RESULT})
    report = await work_on(desk.store, yard, chance).run(given)
    assert report.outcome == Succeeded(result='"done"')
    await settle_attempts(desk.store, [(given, report)], chance)
    (spent,) = await desk.store.read(usage_of_run, given.lease.run_id)
    assert (spent.used.tokens, spent.used.cost, spent.used.tools) == (120, 500_000, 1)
    assert spent.priced


async def test_at_the_cap_of_a_run_its_program_is_ended_politely_and_a_person_asked(desk, chance):
    given = await given_to(desk, run=BudgetCaps(tokens=100))
    yard = ManyYard({"out": usage(150), "goes_on": True})
    report = await work_on(desk.store, yard, chance).run(given)
    assert isinstance(report.outcome, WaitingForAnswer)
    assert report.outcome.options == (CONTINUE, STOP, PAUSE)
    assert "150 tokens" in report.outcome.context
    assert yard.cancelled == ["budget: this run may use 100 tokens"]
    await settle_attempts(desk.store, [(given, report)], chance)
    assert await desk.state(given.lease.run_id) is RunState.WAITING
    (spent,) = await desk.store.read(usage_of_run, given.lease.run_id)
    assert spent.stopped == "budget: this run may use 100 tokens"


async def stopped(desk, chance, **wish):
    """Return a run that waits for an answer about its budget."""
    given = await assignment(desk, kind=TaskKind.AGENT, **WISH, **wish)
    await desk.store.write(
        set_budget, BudgetScope.RUN, given.lease.task_id, BudgetCaps(tokens=100), "me"
    )
    yard = ManyYard({"out": usage(150), "goes_on": True})
    report = await work_on(desk.store, yard, chance).run(given)
    await settle_attempts(desk.store, [(given, report)], chance)
    return given.lease.run_id


async def answered(desk, run_id, text):
    """Answer, claim the run again and return it as an assignment."""
    question = (await desk.store.read(list_questions, [run_id]))[-1]
    await answer_question(desk.store, LOCAL, question.id, text)
    claimed = await desk.claimed(1, routes=["agent"])
    return make_assignments(claimed, desk.store.database.incarnation)[0]


async def test_an_answer_grants_as_much_once_more(desk, chance):
    again = await answered(desk, await stopped(desk, chance), CONTINUE)
    yard = ManyYard({"out": usage(30) + RESULT})
    report = await work_on(desk.store, yard, Counting()).run(again)
    assert isinstance(report.outcome, Succeeded)


async def test_more_is_granted_once_and_not_for_ever(desk, chance):
    again = await answered(desk, await stopped(desk, chance), CONTINUE)
    yard = ManyYard({"out": usage(60), "goes_on": True})
    report = await work_on(desk.store, yard, Counting()).run(again)
    assert isinstance(report.outcome, WaitingForAnswer)
    assert yard.cancelled == ["budget: this run may use 200 tokens"]


@pytest.mark.parametrize("text", [STOP, PAUSE])
async def test_an_answer_stops_the_run_or_pauses_its_task(desk, chance, text):
    again = await answered(desk, await stopped(desk, chance), text)
    yard = ManyYard()
    report = await work_on(desk.store, yard, Counting()).run(again)
    assert isinstance(report.outcome, Cancelled)
    (task,) = await desk.store.read(get_tasks, [again.lease.task_id])
    assert task.enabled is (text == STOP)
    assert yard.started == []


async def test_a_question_of_the_agent_raises_no_budget(desk, chance):
    given = await given_to(desk, run=BudgetCaps(tokens=100))
    ask = {"rota": "question", "text": "It has used up its budget. What now?"}
    yard = ManyYard({"out": usage(90) + json.dumps(ask | {"options": [CONTINUE]}).encode()})
    report = await work_on(desk.store, yard, chance).run(given)
    await settle_attempts(desk.store, [(given, report)], chance)
    again = await answered(desk, given.lease.run_id, CONTINUE)
    yard = ManyYard({"out": usage(20), "goes_on": True})
    report = await work_on(desk.store, yard, Counting()).run(again)
    assert yard.cancelled == ["budget: this run may use 100 tokens"]


async def test_a_day_that_is_spent_holds_the_next_start_back(desk, chance):
    given = await given_to(desk, task=BudgetCaps(tokens=100))
    yard = ManyYard({"out": usage(100) + RESULT})
    report = await work_on(desk.store, yard, chance).run(given)
    await settle_attempts(desk.store, [(given, report)], chance)
    await desk.queue((await desk.store.read(get_tasks, [given.lease.task_id]))[0])
    claimed = await desk.claimed(1, routes=["agent"])
    (next_,) = make_assignments(claimed, desk.store.database.incarnation)
    report = await work_on(desk.store, ManyYard(), chance).run(next_)
    assert isinstance(report.outcome, Drained)
    assert report.outcome.reason == "the task's budget of 100 tokens for today has 0 tokens left"
    assert report.outcome.until > desk.store.now()
    assert report.outcome.until - desk.store.now() <= timedelta(days=1) / timedelta(microseconds=1)


async def test_more_of_the_day_is_set_aside_while_there_is_more(desk, chance):
    given = await given_to(desk, space=BudgetCaps(tokens=1_000))
    out = usage(300) + usage(300) + RESULT
    report = await work_on(desk.store, ManyYard({"out": out}), chance).run(given)
    assert isinstance(report.outcome, Succeeded)


async def test_a_run_that_finds_the_day_spent_by_others_is_ended_and_asks(desk, chance):
    given = await given_to(desk, space=BudgetCaps(tokens=1_000))
    yard = ManyYard({"out": usage(300), "goes_on": True})
    work = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    await yard.going.wait()
    await desk.store.write(
        set_budget, BudgetScope.SPACE, given.lease.space_id, BudgetCaps(tokens=200), "me"
    )
    report = await work
    assert isinstance(report.outcome, WaitingForAnswer)
    assert yard.cancelled == ["budget: the space today may use 200 tokens"]


async def test_time_is_a_budget_like_any_other(desk, chance, clock):
    given = await given_to(desk, run=BudgetCaps(seconds=60))
    yard = ManyYard(None)
    work = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    await yard.going.wait()
    clock.advance(timedelta(seconds=61))
    assert isinstance((await work).outcome, WaitingForAnswer)


async def test_a_cheaper_model_is_the_last_one_to_fall_back_on(desk):
    given = await assignment(desk, kind=TaskKind.AGENT, fallback_models=["middle", "small"])
    assert options_for(models_of(given)) == (CONTINUE, CHEAPER, STOP, PAUSE)
    assert cheaper(given).task.spec["model"] == "small"
