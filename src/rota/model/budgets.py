"""Budgets: how much runs may use, how much is set aside for them, and how much they have used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import NamedTuple

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


NO_CAPS = Caps()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spender:
    """The attempt that something is set aside for, and the day it counts for."""

    run_id: int
    epoch: int
    space_id: int
    task_id: int
    day: str
    began: int


class Refusal(NamedTuple):
    """Which budget of the day has too little left."""

    scope: BudgetScope
    unit: str
    cap: int
    left: int


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
