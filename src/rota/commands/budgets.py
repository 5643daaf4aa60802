"""Budgets of tasks and spaces, and what has been used today."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import (
    WHOLE,
    Length,
    SpaceName,
    length,
    resolve_task,
)
from rota.commands.responses import From, RequestModel, ResponseModel, TaskSelector
from rota.errors import Invalid
from rota.flow.define import budgets
from rota.flow.define.budgets import BudgetStatus
from rota.model.budgets import MICROS, BudgetCaps, BudgetScope, BudgetUsage
from rota.model.keys import KeyScope
from rota.model.tasks import Task
from rota.store.budgets import set_budget

MOST = 10**12
DEAREST = 1_000_000.0

Count = Annotated[int, Field(ge=1, le=MOST), WHOLE]


class BudgetInput(RequestModel):
    """The most of everything; what is left out has no cap, and nothing at all takes it away."""

    tokens: Count | None = Field(default=None, description="In and out, cached ones included.")
    cost_usd: float | None = Field(default=None, gt=0, le=DEAREST)
    turns: Count | None = None
    tool_calls: Count | None = None
    time: Length | None = None

    def caps(self) -> BudgetCaps:
        """Return what may be used."""
        span = length(self.time, "time")
        seconds = None if span is None else int(span.total_seconds())
        if seconds is not None and seconds < 1:
            raise Invalid("time", self.time, "give a second at least")
        cost = None if self.cost_usd is None else max(1, round(self.cost_usd * MICROS))
        return BudgetCaps(
            tokens=self.tokens, cost=cost, turns=self.turns, tools=self.tool_calls, seconds=seconds
        )


class SetTaskBudget(TaskSelector, BudgetInput):
    """What each run of a task may use, or all of them in a day."""

    per: Literal["run", "day"] = "day"


class SpaceSelector(RequestModel):
    """One space."""

    space: SpaceName


class SetSpaceBudget(SpaceSelector, BudgetInput):
    """What all runs of a space may use in a day."""


class AmountsResponse(ResponseModel):
    """How much of everything; money is in US dollars, time in seconds."""

    tokens: int | None
    cost_usd: Annotated[float | None, From("cost", lambda micros: micros / MICROS)]
    turns: int | None
    tool_calls: Annotated[int | None, From("tools")]
    seconds: int | None


def _amounts_of(name: str) -> Callable[[BudgetUsage], AmountsResponse]:
    return lambda usage: AmountsResponse.from_model(getattr(usage, name))


def _period_of(budget: BudgetStatus) -> str:
    return "run" if budget.used is None else "day"


class BudgetResponse(ResponseModel):
    """A budget, and what the day has used; `aside` is set aside beyond that for what goes on."""

    scope: BudgetScope
    per: Annotated[Literal["run", "day"], From("", _period_of)]
    caps: AmountsResponse
    used: Annotated[
        AmountsResponse | None, From("used", lambda day: AmountsResponse.from_model(day.used))
    ]
    aside: Annotated[
        AmountsResponse | None, From("used", lambda day: AmountsResponse.from_model(day.aside))
    ]


class ForecastResponse(ResponseModel):
    """What a run usually uses, and used at most, in so many runs before it."""

    runs: int
    usual: AmountsResponse
    most: AmountsResponse


class BudgetListResponse(ResponseModel):
    """What holds on a day; no forecast means that nothing is known yet."""

    day: str
    budgets: list[BudgetResponse]
    forecast: Annotated[ForecastResponse | None, From("known")]


@command("GET", "/v1/tasks/{task}/budget", KeyScope.READ)
async def show_task_budget(office: RequestContext, asked: TaskSelector) -> BudgetListResponse:
    """Return what the runs of a task may use, what today has used, and what one usually uses."""
    task = await resolve_task(office, asked.task, asked.space)
    return BudgetListResponse.from_model(await budgets.task_accounts(office.store, task))


@command("PUT", "/v1/tasks/{task}/budget", KeyScope.ADMIN)
async def set_task_budget(office: RequestContext, asked: SetTaskBudget) -> BudgetListResponse:
    """Set what each run of a task, or the task in a day, may use; runs held back begin again."""
    task = await resolve_task(office, asked.task, asked.space)
    scope = BudgetScope.RUN if asked.per == "run" else BudgetScope.TASK
    store, caller, caps = office.store, office.caller, asked.caps()

    async def standing(within: RequestContext, _: object) -> BudgetListResponse:
        return BudgetListResponse.from_model(await budgets.task_accounts(within.store, task))

    office.keep_seen(standing, set_budget)
    agents = office.app.plugins.agents
    return BudgetListResponse.from_model(
        await budgets.set_task_budget(store, caller, task, scope, caps, agents)
    )


@command("GET", "/v1/spaces/{space}/budget", KeyScope.READ)
async def show_space_budget(office: RequestContext, asked: SpaceSelector) -> BudgetListResponse:
    """Return what a space may use in a day, and what today has used."""
    return BudgetListResponse.from_model(
        await budgets.space_accounts(office.store, office.caller, asked.space)
    )


@command("PUT", "/v1/spaces/{space}/budget", KeyScope.ADMIN)
async def set_space_budget(office: RequestContext, asked: SetSpaceBudget) -> BudgetListResponse:
    """Set what a space may use in a day; runs that were held back begin again."""
    store, caller = office.store, office.caller

    async def standing(within: RequestContext, _: object) -> BudgetListResponse:
        return BudgetListResponse.from_model(
            await budgets.space_accounts(within.store, caller, asked.space)
        )

    office.keep_seen(standing, set_budget)
    return BudgetListResponse.from_model(
        await budgets.set_space_budget(store, caller, asked.space, asked.caps())
    )


async def forecast_task(office: RequestContext, task: Task) -> ForecastResponse | None:
    """Return what a run of a task will probably use, as it goes over a wire."""
    known = await budgets.forecast_of(office.store, task)
    return None if known is None else ForecastResponse.from_model(known)
