"""The worker: claims runs, executes them and settles them, within its slots.

Claiming and settling are two pollers that meet in `_ended`. While one batch of results is written,
the next one collects, so the number of commits depends on the disk, not on the number of runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self, TypeAlias

from rota.errors import Fenced, Unavailable
from rota.faultpoints import reach
from rota.flow.claim import claim
from rota.flow.settle import decide_attempts, settle_runs
from rota.model.attempts import (
    Assignment,
    AttemptReport,
    Cancelled,
    Expired,
    Failed,
    Lost,
    Released,
    Succeeded,
)
from rota.model.heartbeats import AttemptSample
from rota.model.ids import RunId
from rota.model.runs import RunState
from rota.model.settlement import Settlement
from rota.ports.clock import Clock, Random
from rota.ports.runner import Runner, failure
from rota.runtime.poller import Poller
from rota.store.settlement import settle
from rota.store.store import Store
from rota.store.workers import get_open_runs, mark_stuck

log = logging.getLogger(__name__)

SAFETY_POLL = 5.0
LEASE_POLL = 0.5
"""How often a worker without a valid lease checks it."""
PREVIOUS_ATTEMPT_WAIT = 10.0
"""How long a requeued run waits for its earlier, fenced attempt to end."""
MAX_CLAIMED = 1_000
MAX_SETTLED = 2_000
NOT_STOPPING = "its earlier attempt, which lost its lease, does not stop"


class Worker:
    """Executes runs in a number of slots."""

    def __init__(
        self,
        store: Store,
        runners: Sequence[Runner],
        worker_id: str,
        clock: Clock,
        chance: Random,
        *,
        slots: int,
        may_claim: Callable[[], bool] = lambda: True,
        on_failure: FailureHook | None = None,
    ) -> None:
        self._may_claim = may_claim
        self._on_failure = on_failure
        self._unknown_claims: set[RunId] = set()
        self.id = worker_id
        self.slots = slots
        self._store = store
        self._runners = runners
        self._chance = chance
        self._clock = clock
        self._by_route: dict[str, Runner] = {}
        self._group: asyncio.TaskGroup | None = None
        self._attempts: dict[int, WorkerSlot] = {}
        self._waiting: dict[int, Assignment] = {}
        self._ended: list[Ended] = []
        self._settling: list[Ended] = []
        self._claiming = True
        self._claim_lock = asyncio.Lock()
        self._full = False
        # With a remote database, claiming or settling one half of the slots overlaps with running
        # the other half. With SQLite both use this process, so splitting would only cost commits.
        self._max_claimed = max(1, min(MAX_CLAIMED, slots // 2 if store.database.remote else slots))
        self._idle = asyncio.Event()
        self._at_rest = asyncio.Event()
        self.rate_rest_micros: int | None = None
        """When a rate allows more, as the last claim that started nothing has found."""
        self._settled = asyncio.Event()
        self.claimer = Poller("claim", self._claim_step, clock, chance)
        self.settler = Poller("settle", self._settle_step, clock, chance)

    @property
    def running(self) -> int:
        """Number of runs this worker holds, unsettled ones included."""
        unsettled = len(self._ended) + len(self._settling)
        return len(self._attempts) + len(self._waiting) + unsettled

    def routes(self) -> list[str]:
        """Return all routes of its runners."""
        for runner in self._runners:
            for route in runner.routes():
                self._by_route.setdefault(route, runner)
        return list(self._by_route)

    async def run(self) -> None:
        """Work until stopped."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self.claimer.run())
            group.create_task(self.settler.run())

    def working_on(self, task: asyncio.Task[object]) -> str | None:
        """Return the name of the task whose run an asyncio task executes."""
        for attempt in tuple(self._attempts.values()):
            if attempt.task is task:
                return attempt.assignment.task.name
        return None

    def wake(self) -> None:
        """Claim now."""
        self._idle.clear()
        self._at_rest.clear()
        self.claimer.wake()

    async def idle(self, *, rates: bool = True) -> None:
        """Wait until a claim found nothing and all claimed runs are settled."""
        await (self._idle if rates else self._at_rest).wait()

    async def _claim_step(self) -> float:
        routes = self.routes()
        free = self.slots - len(self._attempts)
        unsettled = len(self._ended) + len(self._settling)
        self._full = free <= 0 or unsettled > 2 * self.slots
        if not routes and self.running == 0:
            self._rest(None)
        if not self._may_claim():
            return LEASE_POLL
        if not self._claiming or self._full or not routes:
            return SAFETY_POLL
        limit = min(free, self._max_claimed if self.running else MAX_CLAIMED)
        async with self._claim_lock:
            claimed = await claim(self._store, self.id, routes, limit)
            for assignment in claimed.assignments:
                self._start(assignment)
        if len(claimed.assignments) == limit or claimed.more:
            return 0.0
        if not claimed.assignments and self.running == 0:
            self._rest(claimed.rest_micros)
        rest = SAFETY_POLL if claimed.rest_micros is None else claimed.rest_micros / 1_000_000
        return min(SAFETY_POLL, max(rest, 0.001))

    def _rest(self, rate_rest_micros: int | None) -> None:
        self.rate_rest_micros = rate_rest_micros
        self._at_rest.set()
        if rate_rest_micros is None:
            self._idle.set()

    def _start(self, assignment: Assignment) -> None:
        loop = asyncio.get_running_loop()
        if assignment.lease.run_id in self._attempts:  # fenced, but still running
            self._waiting[assignment.lease.run_id] = assignment
            if assignment.kept is None:
                loop.call_later(PREVIOUS_ATTEMPT_WAIT, self._fail_waiting, assignment)
            return
        attempt = WorkerSlot(assignment, loop.create_task(self._attempt(assignment)))
        self._attempts[assignment.lease.run_id] = attempt
        if log.isEnabledFor(logging.INFO):
            attempt.began = self._clock.monotonic()
        attempt.started = loop.time()
        timeout = assignment.timeout
        if timeout is not None and not self._keeps(assignment):
            attempt.timer = loop.call_later(
                timeout.total_seconds(), self._stop, attempt, AttemptStop.TIMEOUT
            )

    def has(self, run_id: int) -> bool:
        """Whether this worker executes a run, or is about to start or settle it."""
        attempt = self._attempts.get(run_id)
        if (
            attempt is not None and attempt.stop is not AttemptStop.FENCED
        ) or run_id in self._waiting:
            return True
        return any(a.lease.run_id == run_id for a, *_ in (*self._ended, *self._settling))

    def _keeps(self, assignment: Assignment) -> bool:
        return self._by_route[assignment.lease.route].keeps

    def adopt(self, assignment: Assignment) -> None:
        """Adopt an attempt that an earlier process started."""
        self.routes()
        self._start(assignment)

    async def _attempt(self, assignment: Assignment) -> None:
        lease = assignment.lease
        attempt = self._attempts[lease.run_id]
        attempt.is_started = True
        try:
            reach("attempt.begin")
            if assignment.kept is not None:
                report = await self._carry_on(attempt)
            elif attempt.stop is not None:
                report = stop_report(attempt.stop, assignment)
            elif lease.expires_micros is not None and lease.expires_micros <= self._store.now():
                report = AttemptReport(
                    outcome=Expired(reason="it waited in the queue past its deadline")
                )
            else:
                report = await self._by_route[lease.route].run(assignment)
            reach("attempt.end")
        except asyncio.CancelledError:
            attempt.interrupted = True
            report = stop_report(attempt.stop, assignment)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what the work raised is its failure
            if isinstance(error, Fenced) and self._keeps(assignment):
                attempt.stop = AttemptStop.FENCED
            report = AttemptReport(outcome=failure(error))
        self._finish(assignment, report)

    async def _carry_on(self, attempt: WorkerSlot) -> AttemptReport:
        """Follow an attempt that is running already, even past its deadline to start."""
        if attempt.stop is AttemptStop.CANCEL:
            attempt.task.cancel()
        elif attempt.stop is not None:
            raise asyncio.CancelledError  # it keeps running, without being followed here
        return await self._by_route[attempt.assignment.lease.route].run(attempt.assignment)

    def _finish(self, assignment: Assignment, report: AttemptReport) -> None:
        attempt = self._attempts.pop(assignment.lease.run_id)
        if attempt.timer is not None:
            attempt.timer.cancel()
        self._start_waiting(assignment.lease.run_id)
        if attempt.stop is AttemptStop.FENCED or self._continues_elsewhere(attempt):
            return
        if attempt.stop is AttemptStop.TIMEOUT:
            report = stop_report(AttemptStop.TIMEOUT, assignment)
        elif attempt.stop is AttemptStop.CANCEL and not isinstance(report.outcome, Succeeded):
            outcome = stop_report(AttemptStop.CANCEL, assignment).outcome
            report = replace(report, outcome=outcome, messages=())
        took = 0.0
        if attempt.began:
            took = attempt.duration(report, self._clock.monotonic(), self._store.now())
        self._add_ended(assignment, report, took)
        if self._full:
            self._full = False
            self.claimer.wake()

    def _start_waiting(self, run_id: int) -> None:
        """Start a run that waited for its earlier attempt, unless the worker is draining."""
        if not self._claiming:
            self.stop_run(run_id, AttemptStop.DRAIN)
        elif run_id in self._waiting:
            self._start(self._waiting.pop(run_id))

    def _continues_elsewhere(self, attempt: WorkerSlot) -> bool:
        """Whether an attempt keeps running and the next process will adopt it."""
        left = attempt.stop is AttemptStop.DRAIN and attempt.interrupted
        return left and self._keeps(attempt.assignment)

    def _fail_waiting(self, assignment: Assignment) -> None:
        if self._waiting.get(assignment.lease.run_id) is assignment:
            del self._waiting[assignment.lease.run_id]
            self._add_ended(
                assignment, AttemptReport(outcome=Failed(code="stuck", message=NOT_STOPPING))
            )

    def _add_ended(self, assignment: Assignment, report: AttemptReport, took: float = 0.0) -> None:
        if not self._ended:
            self.settler.wake()
        self._ended.append((assignment, report, took))

    async def _settle_step(self) -> float:
        if not self._ended:
            return SAFETY_POLL
        batch, self._ended = self._ended[:MAX_SETTLED], self._ended[MAX_SETTLED:]
        self._settling = batch
        try:
            reports = [(assignment, report) for assignment, report, _ in batch]
            settlements = await decide_attempts(self._store, reports, self._chance)
            applied = await self._store.write(settle, settlements)
        except BaseException:
            self._ended = batch + self._ended
            raise
        finally:
            self._settling = []
            self._settled.set()
        for ended, settlement, accepted in zip(batch, settlements, applied, strict=True):
            assignment, report, took = ended
            if not accepted:
                log.warning("run.late_result", extra={"run_id": assignment.lease.run_id})
                continue
            if settlement.state is RunState.FAILED and self._on_failure is not None:
                call_hook(self._group, self._on_failure, RunFailure.of(assignment, settlement))
            if log.isEnabledFor(logging.INFO):
                log_settled(assignment, report, took)
        self.claimer.wake()
        return 0.0 if self._ended else SAFETY_POLL

    async def reconcile(self, held: Sequence[RunId]) -> None:
        """Requeue runs that the store assigned to this worker in a claim whose answer was lost.

        A run must be unknown in two calls in a row, because the answer to its claim may be on its
        way.
        """
        unsettled = {a.lease.run_id for a, *_ in (*self._ended, *self._settling)}
        working = {
            n for n, attempt in self._attempts.items() if attempt.stop is not AttemptStop.FENCED
        }
        unknown = set(held) - working - self._waiting.keys() - unsettled
        lost_claims = unknown & self._unknown_claims
        self._unknown_claims = unknown - lost_claims
        if lost_claims:
            log.warning("run.claim_unanswered", extra={"runs": len(lost_claims)})
            runs = await self._store.read(get_open_runs, sorted(lost_claims))
            report = AttemptReport(outcome=Lost(reason="the answer to its claim was lost"))
            ours = [(run, report) for run in runs if run.state is RunState.RUNNING]
            await settle_runs(self._store, ours, self._chance)

    def stop_run(self, run_id: int, reason: AttemptStop) -> None:
        """Stop the attempt of a run, or settle a run that has not started."""
        if run_id in self._waiting and self._waiting[run_id].kept is not None:
            if reason is AttemptStop.DRAIN:
                del self._waiting[run_id]  # it keeps running, and the next process adopts it
        elif run_id in self._waiting:
            behind = self._waiting.pop(run_id)
            self._add_ended(behind, stop_report(reason, behind))
        elif run_id in self._attempts:
            self._stop(self._attempts[run_id], reason)

    def _stop(self, attempt: WorkerSlot, reason: AttemptStop) -> None:
        """Stop an attempt; one that cannot be stopped is marked stuck and keeps its slot."""
        detaches = reason in {AttemptStop.DRAIN, AttemptStop.FENCED} and self._keeps(
            attempt.assignment
        )
        if attempt.stop is not None and not (detaches and attempt.stop is AttemptStop.CANCEL):
            return
        if reason is AttemptStop.TIMEOUT and self._restart_timer(attempt):
            return
        attempt.stop = reason
        if attempt.is_started:  # a task cancelled before its first step would never run
            if detaches:
                self._by_route[attempt.route].detach(attempt.assignment.lease.run_id)
            attempt.task.cancel()
        if self._group is not None and reason is AttemptStop.TIMEOUT:
            self._group.create_task(self._mark_stuck(attempt))

    def _restart_timer(self, attempt: WorkerSlot) -> bool:
        """Restart the timeout of an attempt that had to wait in its runner; false if it is over."""
        lease, timeout = attempt.assignment.lease, attempt.assignment.timeout
        waited = self._by_route[lease.route].queue_wait(lease.run_id)
        if timeout is None or waited == 0.0:
            return False
        loop = asyncio.get_running_loop()
        left = timeout.total_seconds()
        if waited is not None:
            left -= loop.time() - attempt.started - waited
        if left <= 0:
            return False
        attempt.timer = loop.call_later(left, self._stop, attempt, AttemptStop.TIMEOUT)
        return True

    async def _mark_stuck(self, attempt: WorkerSlot) -> None:
        lease = attempt.assignment.lease
        marked = False
        while not marked:
            done, _ = await asyncio.wait({attempt.task}, timeout=1.0)
            if done:
                return
            log.error("run.stuck", extra={"run_id": lease.run_id})
            try:
                await self._store.write(mark_stuck, lease.run_id, lease.epoch)
                marked = True
            except Unavailable as error:
                log.warning("run.mark_stuck_failed", extra={"error": str(error)})

    def take_samples(self) -> list[AttemptSample]:
        """Return samples of the attempts that no keeper holds."""
        newest = asyncio.get_running_loop().time() - MIN_SAMPLE_AGE
        old = [attempt for attempt in self._attempts.values() if attempt.started <= newest]
        return [a.sample(self._by_route[a.route]) for a in old if not self._keeps(a.assignment)]

    def stop_claiming(self) -> None:
        """Stop claiming."""
        self._claiming = False

    async def drain(self, seconds: float) -> None:
        """Wait for running attempts, then stop and requeue them; settle everything that has ended.

        Attempts with a keeper keep running, and are detached at once.
        """
        self.stop_claiming()
        async with self._claim_lock:  # runs being claimed right now are drained too
            for attempt in list(self._attempts.values()):
                if self._keeps(attempt.assignment):
                    self._stop(attempt, AttemptStop.DRAIN)
            tasks = {attempt.task for attempt in self._attempts.values()}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for attempt in list(self._attempts.values()) if late else []:
                self._stop(attempt, AttemptStop.DRAIN)
            if late:
                await asyncio.wait(late, timeout=1.0)
        for run_id in list(self._waiting):
            self.stop_run(run_id, AttemptStop.DRAIN)
        self.settler.wake()
        while self._ended or self._settling:
            self._settled.clear()
            await self._settled.wait()

    def fence(self) -> None:
        """Stop all attempts at once: their runs belong to somebody else now."""
        for attempt in list(self._attempts.values()):
            self._stop(attempt, AttemptStop.FENCED)
        self._waiting.clear()
        self._ended.clear()
        self._settled.set()

    def stop(self) -> None:
        """Stop both pollers."""
        self.claimer.stop()
        self.settler.stop()


CANCELLED = "it was cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """A run that has finally failed."""

    run_id: RunId
    task: str
    attempts: int
    code: str
    error: str

    @classmethod
    def of(cls, assignment: Assignment, settlement: Settlement) -> Self:
        """Return the failure recorded by a settlement."""
        return cls(
            run_id=settlement.run_id,
            task=assignment.task.name,
            attempts=settlement.epoch,
            code=settlement.extras.error_code or "failed",
            error=settlement.extras.error or "",
        )


FailureHook: TypeAlias = Callable[[RunFailure], object]
"""Called once for each run that finally failed, after that was recorded; may be a coroutine."""


Ended: TypeAlias = tuple[Assignment, AttemptReport, float]
"""An attempt to be settled, with its duration in seconds if it is logged."""

MIN_SAMPLE_AGE = 1.0
"""Age from which an attempt is sampled: most have ended by then."""


class AttemptStop(StrEnum):
    """Why an attempt is stopped."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    DRAIN = "drain"
    FENCED = "fenced"


class WorkerSlot:
    """A running attempt; a plain class for speed, as a busy worker creates very many."""

    __slots__ = (
        "assignment",
        "began",
        "interrupted",
        "is_started",
        "started",
        "stop",
        "task",
        "timer",
    )

    def __init__(self, assignment: Assignment, task: asyncio.Task[None]) -> None:
        self.assignment = assignment
        self.task = task
        self.timer: asyncio.TimerHandle | None = None
        self.stop: AttemptStop | None = None
        self.began = 0.0
        self.is_started = False
        self.interrupted = False
        """Whether it was interrupted; an attempt with a keeper keeps running then."""
        self.started = 0.0

    @property
    def route(self) -> str:
        """The route, which selects its runner."""
        return self.assignment.lease.route

    def duration(self, report: AttemptReport, monotonic: float, now: int) -> float:
        """Return its duration in seconds; an adopted attempt started in an earlier process."""
        seconds, kept = monotonic - self.began, self.assignment.kept
        if kept is not None and kept.started_at:
            seconds = (now - kept.started_at) / 1_000_000
        return max(0.0, seconds - report.away / 1_000_000)

    def sample(self, runner: Runner) -> AttemptSample:
        """Return a sample of it."""
        lease = self.assignment.lease
        state = "running" if self.stop is None else "ending"
        if runner.queue_wait(lease.run_id) is None:
            state = "starting"
        return AttemptSample(run_id=lease.run_id, epoch=lease.epoch, state=state)


def timeout_outcome(assignment: Assignment) -> Failed:
    """Return the outcome of an attempt that exceeded its timeout."""
    timeout = assignment.timeout
    seconds = 0.0 if timeout is None else timeout.total_seconds()
    return Failed(code="timeout", message=f"it exceeded its timeout of {seconds:g} s")


def stop_report(reason: AttemptStop | None, assignment: Assignment) -> AttemptReport:
    """Return the report of a stopped attempt."""
    match reason:
        case AttemptStop.TIMEOUT:
            return AttemptReport(outcome=timeout_outcome(assignment))
        case AttemptStop.CANCEL:
            return AttemptReport(outcome=Cancelled(reason=CANCELLED))
        case AttemptStop.DRAIN | AttemptStop.FENCED:
            return AttemptReport(outcome=Released())
        case _:
            sentence = "the work cancelled itself (asyncio.CancelledError)"
            return AttemptReport(outcome=Failed(code="exception", message=sentence))


def log_settled(assignment: Assignment, report: AttemptReport, took: float) -> None:
    """Log an attempt whose end was recorded."""
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


def call_hook(group: asyncio.TaskGroup | None, hook: FailureHook, failure: RunFailure) -> None:
    """Call a failure hook; its errors are only logged."""
    try:
        answer = hook(failure)
    except Exception:
        log.exception("hook.failed", extra={"run_id": failure.run_id})
        return
    if isinstance(answer, Coroutine) and group is not None:
        group.create_task(_await_hook(answer, failure))


async def _await_hook(answer: Coroutine[Any, Any, object], failure: RunFailure) -> None:
    try:
        await answer
    except Exception:
        log.exception("hook.failed", extra={"run_id": failure.run_id})
