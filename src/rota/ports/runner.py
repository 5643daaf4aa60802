"""Runners: a lease becomes a report."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Protocol

from rota.model.attempts import Assignment, AttemptReport, Failed, KeptAttempt
from rota.model.heartbeats import AttemptSample

MAX_TRACE = 4_000


class Runner(Protocol):
    """Runs attempts of the routes it names.

    `run` returns a report or raises; what it raises is a failure of the attempt. It must stop soon
    when its task is cancelled. When the work cannot be stopped, `run` ends only with the work.

    One that `keeps` attempts lets them outlive this process and holds them to their timeouts. After
    `let_go` of a run, which is said while `run` goes on, the work goes on when `run` is cancelled.
    """

    keeps: bool

    def routes(self) -> Sequence[str]:
        """Return the routes this runner serves now."""

    def waited(self, run_id: int) -> float | None:
        """Return how many seconds an attempt waited for its turn here; None while it still does.

        A timeout counts from the end of that wait.
        """

    async def run(self, assignment: Assignment) -> AttemptReport:
        """Run one attempt to its end, or carry on what was kept of it."""

    def let_go(self, run_id: int) -> None:
        """Let an attempt go on without this process; nothing happens where none is kept."""


class DurableRunner(Protocol):
    """The keepers of this home: what lets attempts outlive a process."""

    @property
    def home(self) -> str:
        """What this home is called in the store."""

    async def open(self) -> bool:
        """Take the home for this process; false if another one has it."""

    async def renew(self) -> tuple[float, Sequence[KeptAttempt]]:
        """Promise the keepers some more time; return when to do it again, and what is kept."""

    async def close(self) -> None:
        """Let go of the home; its keepers go on until the promise ends."""

    async def signs(self) -> list[AttemptSample]:
        """Return what can be seen of the attempts that are kept here."""


def failure(fault: BaseException) -> Failed:
    """Return an exception as a failure that a person can act on: the sentence, then the trace."""
    sentence = "".join(traceback.format_exception_only(fault)).strip()
    trace = "".join(traceback.format_exception(fault)).strip()
    return Failed(code="exception", message=f"{sentence}\n{trace[-MAX_TRACE:]}")
