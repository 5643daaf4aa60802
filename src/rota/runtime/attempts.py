"""Attempts as a worker sees them: what goes on, why it was stopped, what is told of its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self, TypeAlias

from rota.model.beats import Sign
from rota.model.ids import RunId
from rota.model.outcomes import Cancelled, Drained, Failed, Report
from rota.model.settlements import Settlement
from rota.ports.runner import Assignment, Runner

log = logging.getLogger(__name__)

CANCELLED = "somebody cancelled it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A run that has failed for good."""

    run_id: RunId
    task: str
    attempts: int
    code: str
    error: str

    @classmethod
    def of(cls, assignment: Assignment, settlement: Settlement) -> Self:
        """Return the failure a settlement records."""
        return cls(
            run_id=settlement.run_id,
            task=assignment.task.name,
            attempts=settlement.epoch,
            code=settlement.extras.error_code or "failed",
            error=settlement.extras.error or "",
        )


FailureHook: TypeAlias = Callable[[Failure], object]
"""Called once for each run that failed for good, after that was recorded; may be a coroutine."""


Ended: TypeAlias = tuple[Assignment, Report, float]
"""An attempt that is to be settled, and for how many seconds it worked, if anybody logs that."""

FRESH = 1.0
"""How old an attempt is before it is told of: most have ended by then."""


class Stop(StrEnum):
    """Why an attempt was told to stop."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    DRAIN = "drain"
    FENCED = "fenced"


class Attempt:
    """One attempt that is going on; a plain class, because a busy worker makes very many."""

    __slots__ = ("assignment", "began", "cut", "entered", "started", "stop", "task", "timer")

    def __init__(self, assignment: Assignment, task: asyncio.Task[None]) -> None:
        self.assignment = assignment
        self.task = task
        self.timer: asyncio.TimerHandle | None = None
        self.stop: Stop | None = None
        self.began = 0.0
        self.entered = False
        self.cut = False
        """Whether its work was cut off, which leaves what is kept going on."""
        self.started = 0.0

    @property
    def route(self) -> str:
        """Which runner it is for."""
        return self.assignment.lease.route

    def took(self, report: Report, count: float, now: int) -> float:
        """Return for how many seconds it has worked; what is carried on began in another life."""
        gone_on, kept = count - self.began, self.assignment.kept
        if kept is not None and kept.began:
            gone_on = (now - kept.began) / 1_000_000
        return max(0.0, gone_on - report.away / 1_000_000)

    def sign(self, runner: Runner) -> Sign:
        """Return what can be seen of it: that it is here, and whether it has begun."""
        lease = self.assignment.lease
        state = "running" if self.stop is None else "ending"
        if runner.waited(lease.run_id) is None:
            state = "starting"
        return Sign(run_id=lease.run_id, epoch=lease.epoch, state=state)


def timed_out(assignment: Assignment) -> Failed:
    """Return what becomes of an attempt that took too long."""
    timeout = assignment.timeout
    seconds = 0.0 if timeout is None else timeout.total_seconds()
    return Failed(code="timeout", message=f"it took longer than its timeout of {seconds:g} s")


def stopped(reason: Stop | None, assignment: Assignment) -> Report:
    """Return the report of an attempt that was told to stop."""
    match reason:
        case Stop.TIMEOUT:
            return Report(outcome=timed_out(assignment))
        case Stop.CANCEL:
            return Report(outcome=Cancelled(reason=CANCELLED))
        case Stop.DRAIN | Stop.FENCED:
            return Report(outcome=Drained())
        case _:
            sentence = "the work cancelled itself (asyncio.CancelledError)"
            return Report(outcome=Failed(code="exception", message=sentence))


def log_settled(assignment: Assignment, report: Report, took: float) -> None:
    """Tell of an attempt whose end was recorded."""
    lease, outcome = assignment.lease, report.outcome
    facts: dict[str, object] = {
        "task": assignment.task.name,
        "outcome": type(outcome).__name__.lower(),
        "run_id": lease.run_id,
        "attempt": lease.epoch,
        "ms": round(took * 1_000, 1),
    }
    if isinstance(outcome, Failed):
        facts["error"] = outcome.message.partition("\n")[0]
    log.info("run.settled", extra=facts)


def tell(group: asyncio.TaskGroup | None, hook: FailureHook, failure: Failure) -> None:
    """Tell somebody of a failure; their own faults are only logged."""
    try:
        answer = hook(failure)
    except Exception:
        log.exception("hook.failed", extra={"run_id": failure.run_id})
        return
    if isinstance(answer, Coroutine) and group is not None:
        group.create_task(_await_hook(answer, failure))


async def _await_hook(answer: Coroutine[Any, Any, object], failure: Failure) -> None:
    try:
        await answer
    except Exception:
        log.exception("hook.failed", extra={"run_id": failure.run_id})
