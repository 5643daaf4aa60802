"""What the judge knows: the rows as transactions wrote them, and who wrote them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.tools.simulation.database import Row

LONGEST_DECISION = 60.0
"""How many seconds may lie between what a planner sees and what it writes."""

FINISHED = frozenset({"succeeded", "failed", "cancelled", "expired"})


PLANNING = frozenset({"apply_plans", "plan_due"})
"""The operations that turn due slots into runs and ledger rows."""


class Commit(NamedTuple):
    """A transaction: who asked for it, what it was called, and what that process thought of time.

    `asked` is the instant its process began to look at its task, `now` the one it was decided for,
    `at` the one it was committed at, `instant` the same in the seconds of the history.
    """

    process: str
    operation: str
    asked: int
    now: int
    at: int
    instant: float
    args: tuple[Any, ...]


@dataclass
class Picture:
    """The rows as the judge knows them."""

    runs: dict[int, Row] = field(default_factory=dict)
    tasks: dict[int, Row] = field(default_factory=dict)
    schedules: dict[int, Row] = field(default_factory=dict)
    workers: dict[str, Row] = field(default_factory=dict)
    deliveries: dict[int, Row] = field(default_factory=dict)
    questions: dict[int, Row] = field(default_factory=dict)
    slots: dict[tuple[int, str], int] = field(default_factory=dict)
    keys: dict[tuple[int, str], int] = field(default_factory=dict)
    tasks_left: dict[int, float] = field(default_factory=dict)

    def was_busy(self, task_id: int, instant: float) -> bool:
        """Return whether a task had an unfinished run, now or just before."""
        if self.tasks_left.get(task_id, -LONGEST_DECISION) > instant - LONGEST_DECISION:
            return True
        return any(r.task_id == task_id and r.state not in FINISHED for r in self.runs.values())


def process_of(worker: str) -> str:
    """Return the process behind a worker's id, which changes when the worker fences itself."""
    return worker.partition("~")[0]
