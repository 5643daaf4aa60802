"""Where an attempt runs: something that turns a lease into a report."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from rota.model.ids import trace_id
from rota.model.outcomes import Failed, Report
from rota.model.runs import Lease
from rota.model.tasks import Task

LONGEST_TRACE = 4_000


class Assignment(NamedTuple):
    """A lease with its task, the answers people have given, and the database it is of."""

    lease: Lease
    task: Task
    answers: tuple[str, ...] = ()
    incarnation: str = ""

    @property
    def trace_id(self) -> str:
        """What the run is called in every log."""
        return trace_id(self.incarnation, self.lease.run_id)

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

    def waited(self, run_id: int) -> float | None:
        """Return how many seconds an attempt waited for its turn here; None while it still does.

        A timeout counts from the end of that wait.
        """

    async def run(self, assignment: Assignment) -> Report:
        """Run one attempt to its end."""


def failure(fault: BaseException) -> Failed:
    """Return an exception as a failure that a person can act on: the sentence, then the trace."""
    sentence = "".join(traceback.format_exception_only(fault)).strip()
    trace = "".join(traceback.format_exception(fault)).strip()
    return Failed(code="exception", message=f"{sentence}\n{trace[-LONGEST_TRACE:]}")
