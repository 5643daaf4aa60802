"""Budgets, amounts, usage, and prices of models."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from rota.model.tasks import TaskKind

MICROS = 1_000_000
"""Money is counted in millionths of a US dollar."""


class BudgetScope(StrEnum):
    """What a budget is for: each run of a task, or a task or a space in a day."""

    RUN = "run"
    TASK = "task"
    SPACE = "space"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """How much of everything: `tokens` in and out, `cost` in micros, times, and whole seconds."""

    tokens: int = 0
    cost: int = 0
    turns: int = 0
    tools: int = 0
    seconds: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        """Return both together."""
        return Amounts(**{unit: mine + getattr(other, unit) for unit, mine in self})

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield each unit with its amount."""
        return ((field.name, getattr(self, field.name)) for field in fields(self))

    def __bool__(self) -> bool:
        """Whether it is anything at all."""
        return any(amount for _, amount in self)


UNITS = tuple(field.name for field in fields(Amounts))
USABLE: Mapping[TaskKind, tuple[str, ...]] = MappingProxyType(
    {TaskKind.AGENT: UNITS, TaskKind.SCRIPT: ("seconds",), TaskKind.PYTHON: ()}
)
"""Which units the runs of a kind can use; no other cap holds for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCaps:
    """The most of everything; None is no cap."""

    tokens: int | None = None
    cost: int | None = None
    turns: int | None = None
    tools: int | None = None
    seconds: int | None = None

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield each unit that has a cap, with it."""
        told = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ((unit, cap) for unit, cap in told if cap is not None)

    def __bool__(self) -> bool:
        """Whether there is any cap."""
        return any(True for _ in self)

    def only(self, units: Collection[str]) -> BudgetCaps:
        """Return the caps of some units alone."""
        return BudgetCaps(**{unit: cap for unit, cap in self if unit in units})


NO_CAPS = BudgetCaps()


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetHolder:
    """The attempt that something is set aside for, the day it counts for, and what it can use."""

    run_id: int
    epoch: int
    space_id: int
    task_id: int
    day: str
    started_at: int
    units: tuple[str, ...] = UNITS


class BudgetRefusal(NamedTuple):
    """A daily budget with too little left; `reserved` is what other attempts may give back."""

    scope: BudgetScope
    unit: str
    cap: int
    left: int
    reserved: int = 0


class BudgetUsage(NamedTuple):
    """What a day has used, and what is set aside beside that for what goes on."""

    used: Amounts = Amounts()
    reserved: Amounts = Amounts()


class DailyUsage(NamedTuple):
    """What one attempt has used; `stop_reason` names the budget that ended it, if one did.

    `priced` says that the agent told what it costs.
    """

    run_id: int
    epoch: int
    used: Amounts
    priced: bool
    stop_reason: str | None = None


MILLION = 1_000_000


class Price(NamedTuple):
    """US dollars for a million tokens; cached ones cost as much as others if nothing is said."""

    input: float
    output: float
    cached: float | None = None


Prices: TypeAlias = Mapping[str, Price]
NO_PRICES: Prices = MappingProxyType({})
