"""The worker: claims runs while it has free slots, runs each as an attempt, and settles what ended.

Claiming and settling are two services that meet in `_ended`: while one batch of results is being
written, the next one collects, so the number of commits follows the disk and not the number of runs.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rota.flow.claim import claim
from rota.flow.settle import settle_attempts
from rota.model.outcomes import Cancelled, Drained, Expired, Failed, Report
from rota.ports.clock import Clock, Random
from rota.ports.executor import Assignment, Executor
from rota.ports.store import Store
from rota.runtime.service import Service

log = logging.getLogger(__name__)

SAFETY_POLL = 5.0
MOST_CLAIMED = 500
MOST_SETTLED = 2_000
LONGEST_TRACE = 4_000


class Stop(StrEnum):
    """Why an attempt was told to stop."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    DRAIN = "drain"
    FENCED = "fenced"


@dataclass(slots=True)
class _Attempt:
    assignment: Assignment
    task: asyncio.Task[None]
    timer: asyncio.TimerHandle | None = None
    stop: Stop | None = None


class Worker:
    """Has slots; fills them from the queue."""

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        store: Store,
        executors: Sequence[Executor],
        worker_id: str,
        clock: Clock,
        chance: Random,
        *,
        slots: int,
    ) -> None:
        self.id = worker_id
        self.slots = slots
        self._store = store
        self._executors = executors
        self._chance = chance
        self._by_route: dict[str, Executor] = {}
        self._group: asyncio.TaskGroup | None = None
        self._attempts: dict[int, _Attempt] = {}
        self._ended: list[tuple[Assignment, Report]] = []
        self._settling = 0
        self._claiming = True
        self._idle = asyncio.Event()
        self.claimer = Service("claim", self._claim_step, clock, chance)
        self.settler = Service("settle", self._settle_step, clock, chance)

    @property
    def running(self) -> int:
        """How many runs this worker holds, unsettled ones included."""
        return len(self._attempts) + len(self._ended) + self._settling

    def routes(self) -> list[str]:
        """Return every route its executors serve."""
        for executor in self._executors:
            for route in executor.routes():
                self._by_route.setdefault(route, executor)
        return list(self._by_route)

    async def run(self) -> None:
        """Work until stopped."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self.claimer.run())
            group.create_task(self.settler.run())

    def wake(self) -> None:
        """Look at the queue now."""
        self._idle.clear()
        self.claimer.wake()

    async def idle(self) -> None:
        """Wait until a claim found nothing and everything claimed has been settled."""
        await self._idle.wait()

    async def _claim_step(self) -> float:
        routes = self.routes()
        if not routes and self.running == 0:
            self._idle.set()
        free = self.slots - len(self._attempts) - len(self._ended)
        if not self._claiming or free <= 0 or not routes:
            return SAFETY_POLL
        want = min(free, MOST_CLAIMED)
        taken = await claim(self._store, self.id, routes, want)
        for assignment in taken.assignments:
            self._start(assignment)
        if len(taken.assignments) == want:
            return 0.0
        if not taken.assignments and self.running == 0:
            self._idle.set()
        rest = SAFETY_POLL if taken.rest_micros is None else taken.rest_micros / 1_000_000
        return min(SAFETY_POLL, max(rest, 0.001))

    def _start(self, assignment: Assignment) -> None:
        if self._group is None:
            message = "the worker is not running"
            raise RuntimeError(message)
        lease = assignment.lease
        task = self._group.create_task(self._attempt(assignment))
        attempt = _Attempt(assignment, task)
        timeout = assignment.timeout
        if timeout is not None:
            loop = asyncio.get_running_loop()
            attempt.timer = loop.call_later(
                timeout.total_seconds(), self.stop_run, lease.run_id, Stop.TIMEOUT
            )
        self._attempts[lease.run_id] = attempt

    async def _attempt(self, assignment: Assignment) -> None:
        lease = assignment.lease
        try:
            if lease.expires_micros is not None and lease.expires_micros <= self._store.now():
                report = Report(outcome=Expired(reason="it waited in the queue past its deadline"))
            else:
                report = await self._by_route[lease.route].run(assignment)
        except asyncio.CancelledError:
            report = self._stopped(assignment)
        except Exception as fault:  # noqa: BLE001 - whatever the work raised is its failure
            report = Report(outcome=failure(fault))
        self._end(assignment, report)

    def _end(self, assignment: Assignment, report: Report) -> None:
        attempt = self._attempts.pop(assignment.lease.run_id)
        if attempt.timer is not None:
            attempt.timer.cancel()
        if attempt.stop is Stop.FENCED:
            return
        if attempt.stop is Stop.TIMEOUT:
            report = Report(outcome=_timed_out(assignment))
        self._ended.append((assignment, report))
        self.settler.wake()

    def _stopped(self, assignment: Assignment) -> Report:
        match self._attempts[assignment.lease.run_id].stop:
            case Stop.TIMEOUT:
                return Report(outcome=_timed_out(assignment))
            case Stop.CANCEL:
                return Report(outcome=Cancelled(reason="somebody cancelled it"))
            case Stop.DRAIN | Stop.FENCED:
                return Report(outcome=Drained())
            case _:
                sentence = "the work cancelled itself (asyncio.CancelledError)"
                return Report(outcome=Failed(code="exception", message=sentence))

    async def _settle_step(self) -> float:
        if not self._ended:
            return SAFETY_POLL
        batch, self._ended = self._ended[:MOST_SETTLED], self._ended[MOST_SETTLED:]
        self._settling = len(batch)
        try:
            verdicts = await settle_attempts(self._store, batch, self._chance)
        except BaseException:
            self._ended = batch + self._ended
            raise
        finally:
            self._settling = 0
        for (assignment, report), accepted in zip(batch, verdicts, strict=True):
            if not accepted:
                log.warning("run.late_result", extra={"run_id": assignment.lease.run_id})
            elif log.isEnabledFor(logging.INFO):
                _log(assignment, report)
        self.claimer.wake()
        return 0.0 if self._ended else SAFETY_POLL

    def stop_run(self, run_id: int, reason: Stop) -> None:
        """Tell one attempt to stop; what cannot be stopped is marked stuck and keeps its slot."""
        attempt = self._attempts.get(run_id)
        if attempt is None or attempt.stop is not None:
            return
        attempt.stop = reason
        attempt.task.cancel()
        if self._group is not None and reason is Stop.TIMEOUT:
            self._group.create_task(self._watch(attempt))

    async def _watch(self, attempt: _Attempt) -> None:
        done, _ = await asyncio.wait({attempt.task}, timeout=1.0)
        if not done:
            lease = attempt.assignment.lease
            log.error("run.stuck", extra={"run_id": lease.run_id})
            await self._store.mark_stuck(lease.run_id, lease.epoch)

    def stop_claiming(self) -> None:
        """Take nothing new."""
        self._claiming = False

    async def drain(self, seconds: float) -> None:
        """Wait for what is going on, then stop it and give it back; everything ended is settled."""
        self.stop_claiming()
        tasks = {attempt.task for attempt in self._attempts.values()}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for run_id in list(self._attempts) if late else []:
                self.stop_run(run_id, Stop.DRAIN)
            if late:
                await asyncio.wait(late, timeout=1.0)
        while self._ended or self._settling:
            self.settler.wake()
            await asyncio.sleep(0.005)

    def fence(self) -> None:
        """Stop everything at once; somebody else owns these runs now."""
        for run_id in list(self._attempts):
            self.stop_run(run_id, Stop.FENCED)
        self._ended.clear()

    def stop(self) -> None:
        """End both services."""
        self.claimer.stop()
        self.settler.stop()


def failure(fault: BaseException) -> Failed:
    """Return an exception as a failure that a person can act on: the sentence, then the trace."""
    sentence = "".join(traceback.format_exception_only(fault)).strip()
    trace = "".join(traceback.format_exception(fault)).strip()
    return Failed(code="exception", message=f"{sentence}\n{trace[-LONGEST_TRACE:]}")


def _timed_out(assignment: Assignment) -> Failed:
    timeout = assignment.timeout
    seconds = 0.0 if timeout is None else timeout.total_seconds()
    return Failed(code="timeout", message=f"it took longer than its timeout of {seconds:g} s")


def _log(assignment: Assignment, report: Report) -> None:
    lease = assignment.lease
    log.info(
        "run.settled",
        extra={
            "task": assignment.task.name,
            "outcome": type(report.outcome).__name__.lower(),
            "run_id": lease.run_id,
            "attempt": lease.epoch,
        },
    )
