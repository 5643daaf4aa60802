"""Runners: execute a claimed run and return a report."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Protocol

from rota.model.attempts import Assignment, AttemptReport, Failed, KeptAttempt
from rota.model.heartbeats import AttemptSample

MAX_TRACE = 4_000


class Runner(Protocol):
    """Runs attempts of its routes.

    `run` returns a report or raises; an exception is a failure of the attempt. It must end soon
    after its task is cancelled; if the work cannot be stopped, `run` ends with the work.

    A runner that `keeps` attempts lets them outlive this process and enforces their timeouts. After
    `detach`, which is called while `run` is active, cancelling `run` leaves the work running.
    """

    keeps: bool

    def routes(self) -> Sequence[str]:
        """Return the routes that this runner serves now."""

    def queue_wait(self, run_id: int) -> float | None:
        """Return how many seconds an attempt waited for its turn; None while it waits.

        Its timeout starts after that wait.
        """

    async def run(self, assignment: Assignment) -> AttemptReport:
        """Run one attempt to its end, or adopt the one that an earlier process kept."""

    def detach(self, run_id: int) -> None:
        """Leave an attempt running without this process, if one is kept."""


class DurableRunner(Protocol):
    """A runner whose attempts outlive this process, in keepers."""

    @property
    def home(self) -> str:
        """Name of this home in the store."""

    async def open(self) -> bool:
        """Acquire the home for this process; false if another process has it."""

    async def renew(self) -> tuple[float, Sequence[KeptAttempt]]:
        """Extend the lease of the keepers; return when to do so again, and the kept attempts."""

    async def close(self) -> None:
        """Release the home; its keepers continue until their lease ends."""

    async def take_samples(self) -> list[AttemptSample]:
        """Return samples of the kept attempts."""


def failure(fault: BaseException) -> Failed:
    """Return an exception as a failure: the sentence first, then the traceback."""
    sentence = "".join(traceback.format_exception_only(fault)).strip()
    trace = "".join(traceback.format_exception(fault)).strip()
    return Failed(code="exception", message=f"{sentence}\n{trace[-MAX_TRACE:]}")
