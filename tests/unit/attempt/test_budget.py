"""Budgets of attempts: reserved before they begin, held while they run, asked about at the end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from rota.agents.claude.agent import ClaudeAgent
from rota.agents.codex.agent import CodexAgent
from rota.agents.command.agent import CommandAgent
from rota.errors import Invalid
from rota.flow.attempt.budget import cheaper, models_of
from rota.flow.attempt.runner import AttemptRunner
from rota.flow.claim import make_assignments
from rota.flow.define.budgets import check_priced, forecast_of, set_task_budget
from rota.flow.define.policies import resolve_agent
from rota.flow.define.runs import answer_question
from rota.flow.settle import settle_attempts
from rota.model.agents import AgentUsage
from rota.model.attempts import Cancelled, Failed, Released, Succeeded, WaitingForAnswer
from rota.model.budgets import Amounts, BudgetCaps, BudgetScope, Price
from rota.model.instants import from_micros
from rota.model.runs import RunState
from rota.model.tasks import TaskKind
from rota.ports.agent import AgentRegistry
from rota.rules.budgets import (
    CHEAPER,
    CONTINUE,
    PAUSE,
    RETRY_RESERVATION,
    STOP,
    add_price,
    local_date,
    options_for,
)
from rota.rules.permissions import LOCAL
from rota.store.attempts import list_kept_attempts
from rota.store.budgets import reserve_budget, set_budget, usage_of_run
from rota.store.tasks import get_tasks
from rota.store.views import list_questions
from tests.contract.store.test_budgets import spender_of
from tests.tools.plugins import EXECUTORS
from tests.unit.attempt.keeper_home_fake import Counting, ManyYard, assignment, work_on

# amounts

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
    assert spent.stop_reason == "budget: this run may use 100 tokens"


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
    assert isinstance(report.outcome, Released)
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


# prices of models

PRICES = {"small": Price(1.0, 5.0, 0.1), "plain": Price(2.0, 4.0)}
KNOWN = {agent.name: agent for agent in (ClaudeAgent(), CodexAgent(), CommandAgent())}
TIERS = {"claude": {"low": "haiku", "medium": "sonnet", "high": "opus"}}
AGENTS = AgentRegistry(KNOWN, "claude", PRICES, TIERS)
MONEY = BudgetCaps(cost=1_000_000)


def usage_of(tokens, **more):
    told = {"rota": "usage", "input_tokens": tokens, **more}
    return json.dumps(told).encode() + b"\n"


@pytest.mark.parametrize(
    ("said", "model", "cost"),
    [
        (AgentUsage(input=1_000_000, output=100_000, model="small"), None, 1.5),
        (AgentUsage(input=1_000_000, cached=900_000, model="small"), None, 0.19),
        (AgentUsage(input=1_000_000, cached=900_000, model="plain"), None, 2.0),
        (AgentUsage(input=1_000_000), "plain", 2.0),
        (AgentUsage(input=1_000_000, model="new"), "plain", 2.0),
        (AgentUsage(input=1_000_000, cost=0.25, model="small"), None, 0.25),
        (AgentUsage(input=1_000_000, cost=0.0, model="small"), None, 1.0),
        (AgentUsage(input=10, cached=90, model="plain"), None, 90 * 2e-6),
        (AgentUsage(input=1_000_000, model="new"), None, None),
        (AgentUsage(model="small"), None, None),
    ],
)
def test_usage_costs_what_its_agent_tells_or_else_what_its_model_does(said, model, cost):
    found = add_price(said, model, PRICES).cost
    assert found == (None if cost is None else pytest.approx(cost))


async def test_tokens_are_charged_on_record_and_shown(desk, chance):
    given = await given_to(desk, run=BudgetCaps(cost=2_000_000))
    yard = ManyYard({"out": usage_of(500_000, model="small") + RESULT})
    report = await work_on(desk.store, yard, chance, prices=PRICES).run(given)
    assert isinstance(report.outcome, Succeeded)
    await settle_attempts(desk.store, [(given, report)], chance)
    (spent,) = await desk.store.read(usage_of_run, given.lease.run_id)
    assert (spent.used.cost, spent.priced) == (500_000, True)


async def test_a_run_that_is_charged_stops_at_its_cap_of_money(desk, chance):
    given = await given_to(desk, run=BudgetCaps(cost=2_000_000))
    yard = ManyYard({"out": usage_of(3_000_000, model="small"), "goes_on": True})
    report = await work_on(desk.store, yard, chance, prices=PRICES).run(given)
    assert isinstance(report.outcome, WaitingForAnswer)
    assert yard.cancelled == ["budget: this run may use $2.00"]


async def test_what_nobody_can_price_is_not_counted_as_nothing(desk, chance):
    given = await given_to(desk, space=MONEY)
    yard = ManyYard({"out": usage_of(10, model="new"), "goes_on": True})
    report = await work_on(desk.store, yard, chance, prices=PRICES).run(given)
    assert isinstance(report.outcome, WaitingForAnswer)
    assert "the cost of its tokens is unknown" in report.outcome.question


async def test_an_agent_that_tells_no_money_begins_nothing_under_a_cap_of_it(desk, chance):
    wish = {**WISH, "agent": "codex", "command": [], "output": "text", "model": "new"}
    given = await assignment(desk, kind=TaskKind.AGENT, **wish)
    await desk.store.write(set_budget, BudgetScope.SPACE, given.lease.space_id, MONEY, "me")
    yard = ManyYard()
    work = AttemptRunner(desk.store, yard, KNOWN, lambda: "w1", chance, executors=EXECUTORS,
                    usual_agent="codex", offered={}, prices=PRICES)  # fmt: skip
    report = await work.run(given)
    assert isinstance(report.outcome, Failed)
    assert (report.outcome.code, report.outcome.retryable) == ("no_price", False)
    assert yard.started == []


async def test_a_budget_of_money_is_refused_where_nobody_knows_the_price(desk):
    given = await assignment(desk, kind=TaskKind.AGENT, instructions="x", agent="codex")
    with pytest.raises(Invalid, match="does not report its cost"):
        await set_task_budget(desk.store, LOCAL, given.task, BudgetScope.TASK, MONEY, AGENTS)
    await set_task_budget(
        desk.store, LOCAL, given.task, BudgetScope.TASK, BudgetCaps(tokens=5), AGENTS
    )
    check_priced(AGENTS, {"agent": "codex", "model": "small"}, MONEY)
    check_priced(AGENTS, {"agent": "claude"}, MONEY)


def test_a_tier_is_the_model_that_the_settings_name_when_the_task_is_made():
    spec = {"instructions": "x", "model_tier": "high"}
    made = resolve_agent(AGENTS, TaskKind.AGENT, spec)
    assert (made["model"], made["cheaper_model"]) == ("opus", "haiku")
    assert "model_tier" not in made
    later = AgentRegistry(KNOWN, "claude", PRICES, {"claude": {"high": "another"}})
    assert resolve_agent(later, TaskKind.AGENT, made)["model"] == "opus"
    low = resolve_agent(AGENTS, TaskKind.AGENT, {"instructions": "x", "model_tier": "low"})
    assert (low["model"], low.get("cheaper_model")) == ("haiku", None)


@pytest.mark.parametrize(
    ("agent", "tier"), [("codex", "low"), ("command", "low"), ("claude", "huge")]
)
def test_a_tier_without_a_model_is_refused(agent, tier):
    spec = {"instructions": "x", "agent": agent, "model_tier": tier}
    with pytest.raises(Invalid, match="the settings name no model"):
        resolve_agent(AGENTS, TaskKind.AGENT, spec)


async def test_a_cheaper_model_is_that_of_the_lowest_tier(desk):
    given = await assignment(desk, kind=TaskKind.AGENT, model="opus", cheaper_model="haiku")
    assert models_of(given) == ("haiku",)
    assert cheaper(given).task.spec["model"] == "haiku"


# budgets of scripts

QUESTION = b'{"rota": "question", "text": "Which colour?"}\n'


async def script_with(desk, **caps):
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


async def script_after(desk, run_id, text):
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
    given = await script_with(desk, run=BudgetCaps(seconds=60))
    yard = ManyYard(None)
    report = await going_for(desk, given, clock, 61, yard)
    assert isinstance(report.outcome, WaitingForAnswer)
    assert report.outcome.options == (CONTINUE, STOP, PAUSE)
    assert "61 seconds" in report.outcome.context
    assert yard.cancelled == ["budget: this run may use 60 seconds"]
    assert await desk.state(given.lease.run_id) is RunState.WAITING
    (spent,) = await desk.store.read(usage_of_run, given.lease.run_id)
    assert spent.used == Amounts(seconds=61)
    assert spent.stop_reason == "budget: this run may use 60 seconds"


async def test_a_script_is_not_held_to_what_it_cannot_use(desk):
    given = await script_with(
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
    given = await script_with(desk, space=BudgetCaps(seconds=60, tokens=5))
    report = await going_for(desk, given, clock, 60)
    assert isinstance(report.outcome, WaitingForAnswer)
    next_ = await queued_again(desk, given)
    report = await work_on(desk.store, ManyYard(), Counting()).run(next_)
    assert isinstance(report.outcome, Released)
    assert report.outcome.reason == "the space's budget of 60 seconds for today has 0 seconds left"
    assert report.outcome.until - desk.store.now() > RETRY_RESERVATION / timedelta(microseconds=1)


async def test_what_is_only_set_aside_for_others_is_looked_for_again_soon(desk, clock):
    given = await script_with(desk, task=BudgetCaps(seconds=1))
    yard = ManyYard(None)
    work = asyncio.ensure_future(work_on(desk.store, yard, Counting()).run(given))
    await yard.going.wait()
    next_ = await queued_again(desk, given)
    report = await work_on(desk.store, ManyYard(), Counting()).run(next_)
    assert isinstance(report.outcome, Released)
    assert report.outcome.until - desk.store.now() == RETRY_RESERVATION / timedelta(microseconds=1)
    assert report.outcome.reason.endswith("1 seconds are reserved by running attempts")
    clock.advance(timedelta(seconds=2))
    await work


async def test_an_answer_grants_its_time_once_more_and_is_none_of_the_scripts_own(desk, clock):
    given = await script_with(desk, run=BudgetCaps(seconds=60))
    report = await work_on(desk.store, ManyYard({"out": QUESTION}), Counting()).run(given)
    await settle_attempts(desk.store, [(given, report)], Counting())
    again = await script_after(desk, given.lease.run_id, "red")
    assert isinstance((await going_for(desk, again, clock, 60)).outcome, WaitingForAnswer)
    again = await script_after(desk, given.lease.run_id, CONTINUE)
    assert again.answers == ("red", CONTINUE)
    yard = ManyYard({"out": RESULT})
    report = await work_on(desk.store, yard, Counting()).run(again)
    assert isinstance(report.outcome, Succeeded)
    assert json.loads(yard.started[0].env["ROTA_ANSWERS"]) == ["red"]


@pytest.mark.parametrize("text", [STOP, PAUSE])
async def test_an_answer_stops_the_script_or_pauses_its_task(desk, clock, text):
    given = await script_with(desk, run=BudgetCaps(seconds=5))
    await going_for(desk, given, clock, 5)
    again = await script_after(desk, given.lease.run_id, text)
    yard = ManyYard()
    report = await work_on(desk.store, yard, Counting()).run(again)
    assert isinstance(report.outcome, Cancelled)
    (task,) = await desk.store.read(get_tasks, [again.lease.task_id])
    assert task.enabled is (text == STOP)
    assert yard.started == []


async def test_the_time_of_scripts_is_known_without_any_budget(desk, clock):
    given = await script_with(desk)
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
    assert (known.runs, known.median) == (1, Amounts(seconds=7))


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
