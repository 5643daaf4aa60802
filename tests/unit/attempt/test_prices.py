"""Agents that tell only tokens are charged by the prices of their models, and never nothing."""

from __future__ import annotations

import json

import pytest

from rota.agents.claude.agent import ClaudeAgent
from rota.agents.codex.agent import CodexAgent
from rota.agents.command.agent import CommandAgent
from rota.errors import Invalid
from rota.flow.attempt.budget import cheaper, models_of
from rota.flow.attempt.runner import AttemptRunner
from rota.flow.define.budgets import check_priced, set_task_budget
from rota.flow.define.policies import resolve_agent
from rota.flow.settle import settle_attempts
from rota.model.agents import AgentUsage
from rota.model.attempts import Failed, Succeeded, WaitingForAnswer
from rota.model.budgets import BudgetCaps, BudgetScope, Price
from rota.model.tasks import TaskKind
from rota.ports.agent import AgentRegistry
from rota.rules.budgets import add_price
from rota.rules.permissions import LOCAL
from rota.store.budgets import set_budget, usage_of_run
from tests.unit.attempt.keeper_home_fake import assignment, work_on
from tests.unit.attempt.programs_fake import ManyYard
from tests.unit.attempt.test_budget import RESULT, WISH, given_to

PRICES = {"small": Price(1.0, 5.0, 0.1), "plain": Price(2.0, 4.0)}
KNOWN = {agent.name: agent for agent in (ClaudeAgent(), CodexAgent(), CommandAgent())}
TIERS = {"claude": {"low": "haiku", "medium": "sonnet", "high": "opus"}}
AGENTS = AgentRegistry(KNOWN, "claude", PRICES, TIERS)
MONEY = BudgetCaps(cost=1_000_000)


def usage(tokens, **more):
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
    yard = ManyYard({"out": usage(500_000, model="small") + RESULT})
    report = await work_on(desk.store, yard, chance, prices=PRICES).run(given)
    assert isinstance(report.outcome, Succeeded)
    await settle_attempts(desk.store, [(given, report)], chance)
    (spent,) = await desk.store.read(usage_of_run, given.lease.run_id)
    assert (spent.used.cost, spent.priced) == (500_000, True)


async def test_a_run_that_is_charged_stops_at_its_cap_of_money(desk, chance):
    given = await given_to(desk, run=BudgetCaps(cost=2_000_000))
    yard = ManyYard({"out": usage(3_000_000, model="small"), "goes_on": True})
    report = await work_on(desk.store, yard, chance, prices=PRICES).run(given)
    assert isinstance(report.outcome, WaitingForAnswer)
    assert yard.cancelled == ["budget: this run may use $2.00"]


async def test_what_nobody_can_price_is_not_counted_as_nothing(desk, chance):
    given = await given_to(desk, space=MONEY)
    yard = ManyYard({"out": usage(10, model="new"), "goes_on": True})
    report = await work_on(desk.store, yard, chance, prices=PRICES).run(given)
    assert isinstance(report.outcome, WaitingForAnswer)
    assert "the cost of its tokens is unknown" in report.outcome.question


async def test_an_agent_that_tells_no_money_begins_nothing_under_a_cap_of_it(desk, chance):
    wish = {**WISH, "agent": "codex", "command": [], "output": "text", "model": "new"}
    given = await assignment(desk, kind=TaskKind.AGENT, **wish)
    await desk.store.write(set_budget, BudgetScope.SPACE, given.lease.space_id, MONEY, "me")
    yard = ManyYard()
    work = AttemptRunner(desk.store, yard, KNOWN, lambda: "w1", chance, usual_agent="codex",
                    offered={}, prices=PRICES)  # fmt: skip
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
