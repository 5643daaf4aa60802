"""Budgets of tasks and spaces, and their usage today."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import (
    WHOLE,
    Length,
    SpaceName,
    parse_length,
    resolve_task,
)
from rota.commands.responses import From, RequestModel, ResponseModel, TaskSelector
from rota.errors import Invalid
from rota.flow.define import budgets
from rota.flow.define.budgets import BudgetStatus
from rota.model.budgets import MICROS, BudgetCaps, BudgetScope
from rota.model.keys import KeyScope
from rota.model.tasks import Task
from rota.store.budgets import set_budget

MAX_AMOUNT = 10**12
MAX_COST = 1_000_000.0

Count = Annotated[int, Field(ge=1, le=MAX_AMOUNT), WHOLE]


class BudgetInput(RequestModel):
    """Limits of a budget; without any, the budget is removed."""

    tokens: Count | None = Field(
        default=None, description="Input and output tokens, including cached ones."
    )
    cost_usd: float | None = Field(default=None, gt=0, le=MAX_COST)
    turns: Count | None = None
    tool_calls: Count | None = None
    time: Length | None = None

    def caps(self) -> BudgetCaps:
        """Return the limits."""
        span = parse_length(self.time, "time")
        seconds = None if span is None else int(span.total_seconds())
        if seconds is not None and seconds < 1:
            raise Invalid("time", self.time, "use at least 1 s")
        cost = None if self.cost_usd is None else max(1, round(self.cost_usd * MICROS))
        return BudgetCaps(
            tokens=self.tokens, cost=cost, turns=self.turns, tools=self.tool_calls, seconds=seconds
        )


class SetTaskBudget(TaskSelector, BudgetInput):
    """A budget for each run of a task, or for all its runs of a day."""

    per: Literal["run", "day"] = "day"


class SpaceSelector(RequestModel):
    """A space."""

    space: SpaceName


class SetSpaceBudget(SpaceSelector, BudgetInput):
    """A budget for all runs of a space in a day."""


class AmountsResponse(ResponseModel):
    """Amounts of usage; cost in US dollars, time in seconds."""

    tokens: int | None
    cost_usd: Annotated[float | None, From("cost", lambda micros: micros / MICROS)]
    turns: int | None
    tool_calls: Annotated[int | None, From("tools")]
    seconds: int | None


def _period_of(budget: BudgetStatus) -> str:
    return "run" if budget.used is None else "day"


class BudgetResponse(ResponseModel):
    """A budget with its usage today; `reserved` is reserved for running attempts in addition."""

    scope: BudgetScope
    per: Annotated[Literal["run", "day"], From("", _period_of)]
    caps: AmountsResponse
    used: Annotated[
        AmountsResponse | None, From("used", lambda day: AmountsResponse.from_model(day.used))
    ]
    reserved: Annotated[
        AmountsResponse | None, From("used", lambda day: AmountsResponse.from_model(day.reserved))
    ]


class ForecastResponse(ResponseModel):
    """Average and maximum usage of earlier runs."""

    runs: int
    median: AmountsResponse
    max: AmountsResponse


class BudgetListResponse(ResponseModel):
    """Budgets on a day; the forecast is null until usage is known."""

    day: str
    budgets: list[BudgetResponse]
    forecast: Annotated[ForecastResponse | None, From("known")]


@command("GET", "/v1/tasks/{task}/budget", KeyScope.READ)
async def show_task_budget(context: RequestContext, request: TaskSelector) -> BudgetListResponse:
    """Return the budgets of a task, their usage today, and the forecast."""
    task = await resolve_task(context, request.task, request.space)
    return BudgetListResponse.from_model(await budgets.task_accounts(context.store, task))


@command("PUT", "/v1/tasks/{task}/budget", KeyScope.ADMIN)
async def set_task_budget(context: RequestContext, request: SetTaskBudget) -> BudgetListResponse:
    """Set a budget of a task, for each run or for a day; runs waiting for budget can start."""
    task = await resolve_task(context, request.task, request.space)
    scope = BudgetScope.RUN if request.per == "run" else BudgetScope.TASK
    store, caller, caps = context.store, context.caller, request.caps()

    async def report(within: RequestContext, _: object) -> BudgetListResponse:
        return BudgetListResponse.from_model(await budgets.task_accounts(within.store, task))

    context.record_with(report, set_budget)
    agents = context.app.plugins.agents
    return BudgetListResponse.from_model(
        await budgets.set_task_budget(store, caller, task, scope, caps, agents)
    )


@command("GET", "/v1/spaces/{space}/budget", KeyScope.READ)
async def show_space_budget(context: RequestContext, request: SpaceSelector) -> BudgetListResponse:
    """Return the budget of a space and its usage today."""
    return BudgetListResponse.from_model(
        await budgets.space_accounts(context.store, context.caller, request.space)
    )


@command("PUT", "/v1/spaces/{space}/budget", KeyScope.ADMIN)
async def set_space_budget(context: RequestContext, request: SetSpaceBudget) -> BudgetListResponse:
    """Set the daily budget of a space; runs waiting for budget can start."""
    store, caller = context.store, context.caller

    async def report(within: RequestContext, _: object) -> BudgetListResponse:
        return BudgetListResponse.from_model(
            await budgets.space_accounts(within.store, caller, request.space)
        )

    context.record_with(report, set_budget)
    return BudgetListResponse.from_model(
        await budgets.set_space_budget(store, caller, request.space, request.caps())
    )


async def forecast_task(context: RequestContext, task: Task) -> ForecastResponse | None:
    """Return the expected usage of a run of a task."""
    known = await budgets.forecast_of(context.store, task)
    return None if known is None else ForecastResponse.from_model(known)
