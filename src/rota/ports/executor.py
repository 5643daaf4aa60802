"""Where an attempt runs: something that turns a lease into a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from rota.model.outcomes import Report
from rota.model.runs import Lease
from rota.model.tasks import Task


@dataclass(frozen=True, slots=True)
class Assignment:
    """A lease with the task it belongs to and the answers people have given so far."""

    lease: Lease
    task: Task
    answers: tuple[str, ...] = ()

    @property
    def timeout(self) -> timedelta | None:
        """How long the attempt may take."""
        return self.task.policy.timeout


class Executor(Protocol):
    """Runs attempts of the routes it names.

    `run` returns a report or raises; what it raises is a failure of the attempt. It must stop soon
    when its task is cancelled. When the work cannot be stopped, `run` ends only with the work.
    """

    def routes(self) -> Sequence[str]:
        """Return the routes this executor serves now."""

    async def run(self, assignment: Assignment) -> Report:
        """Run one attempt to its end."""
