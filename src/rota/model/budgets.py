"""Budgets: how much runs may use, how much is set aside for them, and how much they have used."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

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
class Caps:
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

    def only(self, units: Collection[str]) -> Caps:
        """Return the caps of some units alone."""
        return Caps(**{unit: cap for unit, cap in self if unit in units})


NO_CAPS = Caps()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spender:
    """The attempt that something is set aside for, the day it counts for, and what it can use."""

    run_id: int
    epoch: int
    space_id: int
    task_id: int
    day: str
    began: int
    units: tuple[str, ...] = UNITS


class Refusal(NamedTuple):
    """Which budget of the day has too little left; `aside` is what others may still give back."""

    scope: BudgetScope
    unit: str
    cap: int
    left: int
    aside: int = 0


class Used(NamedTuple):
    """What a day has used, and what is set aside beside that for what goes on."""

    used: Amounts = Amounts()
    aside: Amounts = Amounts()


class Spent(NamedTuple):
    """What one attempt has used; `stopped` names the budget that ended it, if one did.

    `priced` says that the agent told what it costs.
    """

    run_id: int
    epoch: int
    used: Amounts
    priced: bool
    stopped: str | None = None
