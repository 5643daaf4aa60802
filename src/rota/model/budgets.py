"""Budgets, amounts, usage, and prices of models."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from rota.model.tasks import TaskKind

MICROS = 1_000_000
"""Costs are counted in millionths of a US dollar."""


class BudgetScope(StrEnum):
    """What a budget limits: each run of a task, or one day of a task or of a space."""

    RUN = "run"
    TASK = "task"
    SPACE = "space"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """Amounts in each unit: `tokens` in and out, `cost` in micros, counts, and whole seconds."""

    tokens: int = 0
    cost: int = 0
    turns: int = 0
    tools: int = 0
    seconds: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        """Return the sum."""
        return Amounts(**{unit: mine + getattr(other, unit) for unit, mine in self})

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield each unit with its amount."""
        return ((field.name, getattr(self, field.name)) for field in fields(self))

    def __bool__(self) -> bool:
        """Whether any amount is not zero."""
        return any(amount for _, amount in self)


UNITS = tuple(field.name for field in fields(Amounts))
USABLE: Mapping[TaskKind, tuple[str, ...]] = MappingProxyType(
    {TaskKind.AGENT: UNITS, TaskKind.SCRIPT: ("seconds",), TaskKind.PYTHON: ()}
)
"""Units that runs of a kind can use; caps on other units do not apply to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCaps:
    """Upper bounds in each unit; None is no cap."""

    tokens: int | None = None
    cost: int | None = None
    turns: int | None = None
    tools: int | None = None
    seconds: int | None = None

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield each capped unit with its cap."""
        told = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ((unit, cap) for unit, cap in told if cap is not None)

    def __bool__(self) -> bool:
        """Whether there is any cap."""
        return any(True for _ in self)

    def only(self, units: Collection[str]) -> BudgetCaps:
        """Return the caps of these units only."""
        return BudgetCaps(**{unit: cap for unit, cap in self if unit in units})


NO_CAPS = BudgetCaps()


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetHolder:
    """The attempt that reserves budget, the day it counts for, and the units it can use."""

    run_id: int
    epoch: int
    space_id: int
    task_id: int
    day: str
    started_at: int
    units: tuple[str, ...] = UNITS


class BudgetRefusal(NamedTuple):
    """The daily budget with too little left; others may return what is `reserved`."""

    scope: BudgetScope
    unit: str
    cap: int
    left: int
    reserved: int = 0


class BudgetUsage(NamedTuple):
    """Used and reserved amounts of a day."""

    used: Amounts = Amounts()
    reserved: Amounts = Amounts()


class DailyUsage(NamedTuple):
    """Usage of one attempt; `stop_reason` names the budget that stopped it, if one did.

    `priced` means that the agent reported its cost.
    """

    run_id: int
    epoch: int
    used: Amounts
    priced: bool
    stop_reason: str | None = None


MILLION = 1_000_000


class Price(NamedTuple):
    """US dollars per million tokens; `cached` None means the price of `input`."""

    input: float
    output: float
    cached: float | None = None


Prices: TypeAlias = Mapping[str, Price]
NO_PRICES: Prices = MappingProxyType({})
