"""Budgets of tasks and spaces, and their usage today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rota.errors import Invalid
from rota.model.budgets import MICROS, NO_CAPS, USABLE, BudgetCaps, BudgetScope, BudgetUsage
from rota.model.instants import from_micros
from rota.model.spaces import Space
from rota.model.tasks import Task, TaskKind
from rota.ports.agent import AgentRegistry
from rota.rules.budgets import (
    UNIT_NAMES,
    UsageForecast,
    forecast,
    local_date,
    unpriced_models,
    unusable_caps,
)
from rota.rules.permissions import Caller, check_main, check_space
from rota.store.budgets import (
    budgets_for_task,
    duration_history,
    set_budget,
    usage_history,
    usage_on_day,
)
from rota.store.store import Store
from rota.store.tasks import find_space

MOST_HISTORY = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStatus:
    """A budget with its usage today; a budget for each run has no day."""

    scope: BudgetScope
    caps: BudgetCaps
    used: BudgetUsage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetReport:
    """All budgets of a task or a space for the current day."""

    day: str
    budgets: list[BudgetStatus]
    known: UsageForecast | None = None


async def set_task_budget(
    store: Store,
    caller: Caller,
    task: Task,
    scope: BudgetScope,
    caps: BudgetCaps,
    agents: AgentRegistry | None = None,
) -> BudgetReport:
    """Set the budget of a task, for each run or for each day; without caps it is removed."""
    if caps and not USABLE[task.kind]:
        raise Invalid("task", task.name, "a callable has no budget: give this task a timeout")
    for unit in unusable_caps(task.kind, caps):
        advice = f"a {task.kind} uses no {UNIT_NAMES[unit]}: cap its time"
        raise Invalid("task", task.name, advice)
    if agents is not None and task.kind is TaskKind.AGENT:
        check_priced(agents, task.spec, caps)
    await store.write(set_budget, scope, task.id, caps, caller.name)
    return await task_accounts(store, task)


def check_priced(agents: AgentRegistry, spec: Mapping[str, Any], caps: BudgetCaps) -> None:
    """Refuse a cost budget for an agent whose cost is unknown."""
    agent = agents.get(spec.get("agent"))
    tells, model = agent.capabilities.money, spec.get("model")
    why = unpriced_models(agent.name, model, agents.prices, tells=tells)
    if caps.cost is not None and why is not None:
        raise Invalid("cost_usd", f"{caps.cost / MICROS:g}", why)


async def set_space_budget(
    store: Store, caller: Caller, space: str, caps: BudgetCaps
) -> BudgetReport:
    """Set the daily budget of a space; only a `main` space may do so."""
    check_space(caller, space)
    check_main(caller)
    found = await store.read(find_space, space)
    await store.write(set_budget, BudgetScope.SPACE, found.id, caps, caller.name)
    return await space_accounts(store, caller, space)


async def task_accounts(store: Store, task: Task) -> BudgetReport:
    """Return the budgets of a task with today's usage and its average usage."""
    space = await store.read(find_space, task.space)
    caps = await store.read(budgets_for_task, task.id, task.space_id)
    day = _today(store, space)
    found = [
        BudgetStatus(scope=BudgetScope.RUN, caps=caps.get(BudgetScope.RUN, NO_CAPS), used=None)
    ]
    for scope, key in ((BudgetScope.TASK, task.id), (BudgetScope.SPACE, space.id)):
        used = await store.read(usage_on_day, scope, key, day)
        found.append(BudgetStatus(scope=scope, caps=caps.get(scope, NO_CAPS), used=used))
    return BudgetReport(day=day, budgets=found, known=await forecast_of(store, task))


async def space_accounts(store: Store, caller: Caller, name: str) -> BudgetReport:
    """Return the budget of a space with today's usage."""
    check_space(caller, name)
    space = await store.read(find_space, name)
    caps = (await store.read(budgets_for_task, 0, space.id)).get(BudgetScope.SPACE, NO_CAPS)
    day = _today(store, space)
    used = await store.read(usage_on_day, BudgetScope.SPACE, space.id, day)
    return BudgetReport(
        day=day, budgets=[BudgetStatus(scope=BudgetScope.SPACE, caps=caps, used=used)]
    )


async def forecast_of(store: Store, task: Task) -> UsageForecast | None:
    """Return the expected usage of a run; None if it is unknown."""
    if not USABLE[task.kind]:
        return None
    history = usage_history if task.kind is TaskKind.AGENT else duration_history
    return forecast(await store.read(history, task.id, MOST_HISTORY))


def _today(store: Store, space: Space) -> str:
    return local_date(from_micros(store.now()), space.timezone)
