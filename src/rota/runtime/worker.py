"""The worker: claims, runs and settles within its slots.

Claiming and settling are two services that meet in `_ended`: while one batch of results is being
written, the next one collects, so the number of commits follows the disk and not the runs.
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
    Drained,
    Expired,
    Failed,
    Lost,
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
"""How soon a worker whose lease is in doubt looks whether it holds again."""
BEHIND = 10.0
"""How long a run that came back waits for its earlier attempt, which was fenced, to end."""
MAX_CLAIMED = 1_000
MAX_SETTLED = 2_000
NOT_STOPPING = "its earlier attempt, which lost its lease, does not stop"


class Worker:
    """Has slots; fills them from the queue."""

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
        self._strangers: set[RunId] = set()
        self.id = worker_id
        self.slots = slots
        self._store = store
        self._runners = runners
        self._chance = chance
        self._clock = clock
        self._by_route: dict[str, Runner] = {}
        self._group: asyncio.TaskGroup | None = None
        self._attempts: dict[int, WorkerSlot] = {}
        self._behind: dict[int, Assignment] = {}
        self._ended: list[Ended] = []
        self._settling: list[Ended] = []
        self._claiming = True
        self._taking = asyncio.Lock()
        self._full = False
        # Where another process does the store's work, a busy worker claims or settles one half of
        # its slots while the other half runs. Where it is done here, they would only take turns.
        self._most_claimed = max(
            1, min(MAX_CLAIMED, slots // 2 if store.database.remote else slots)
        )
        self._idle = asyncio.Event()
        self._settled = asyncio.Event()
        self.claimer = Poller("claim", self._claim_step, clock, chance)
        self.settler = Poller("settle", self._settle_step, clock, chance)

    @property
    def running(self) -> int:
        """How many runs this worker holds, unsettled ones included."""
        unsettled = len(self._ended) + len(self._settling)
        return len(self._attempts) + len(self._behind) + unsettled

    def routes(self) -> list[str]:
        """Return every route its runners serve."""
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
        """Return the name of the task whose run an asyncio task works for."""
        for attempt in tuple(self._attempts.values()):
            if attempt.task is task:
                return attempt.assignment.task.name
        return None

    def wake(self) -> None:
        """Look at the queue now."""
        self._idle.clear()
        self.claimer.wake()

    async def idle(self) -> None:
        """Wait until a claim found nothing and everything claimed has been settled."""
        await self._idle.wait()

    async def _claim_step(self) -> float:
        routes = self.routes()
        free = self.slots - len(self._attempts)
        unsettled = len(self._ended) + len(self._settling)
        self._full = free <= 0 or unsettled > 2 * self.slots
        if not routes and self.running == 0:
            self._idle.set()
        if not self._may_claim():
            return LEASE_POLL
        if not self._claiming or self._full or not routes:
            return SAFETY_POLL
        want = min(free, self._most_claimed if self.running else MAX_CLAIMED)
        async with self._taking:
            taken = await claim(self._store, self.id, routes, want)
            for assignment in taken.assignments:
                self._start(assignment)
        if len(taken.assignments) == want or taken.more:
            return 0.0
        if not taken.assignments and self.running == 0 and taken.rest_micros is None:
            self._idle.set()
        rest = SAFETY_POLL if taken.rest_micros is None else taken.rest_micros / 1_000_000
        return min(SAFETY_POLL, max(rest, 0.001))

    def _start(self, assignment: Assignment) -> None:
        loop = asyncio.get_running_loop()
        if assignment.lease.run_id in self._attempts:  # fenced, and not ended yet
            self._behind[assignment.lease.run_id] = assignment
            if assignment.kept is None:
                loop.call_later(BEHIND, self._give_up, assignment)
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
        """Whether a run is worked on here, or about to be, or about to be settled."""
        attempt = self._attempts.get(run_id)
        if (
            attempt is not None and attempt.stop is not AttemptStop.FENCED
        ) or run_id in self._behind:
            return True
        return any(a.lease.run_id == run_id for a, *_ in (*self._ended, *self._settling))

    def _keeps(self, assignment: Assignment) -> bool:
        return self._by_route[assignment.lease.route].keeps

    def adopt(self, assignment: Assignment) -> None:
        """Carry on an attempt that an earlier process has left."""
        self.routes()
        self._start(assignment)

    async def _attempt(self, assignment: Assignment) -> None:
        lease = assignment.lease
        attempt = self._attempts[lease.run_id]
        attempt.entered = True
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
            attempt.cut = True
            report = stop_report(attempt.stop, assignment)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what the work raised is its failure
            if isinstance(error, Fenced) and self._keeps(assignment):
                attempt.stop = AttemptStop.FENCED
            report = AttemptReport(outcome=failure(error))
        self._end(assignment, report)

    async def _carry_on(self, attempt: WorkerSlot) -> AttemptReport:
        """Carry on what is going on already, whatever became of its time to begin."""
        if attempt.stop is AttemptStop.CANCEL:
            attempt.task.cancel()
        elif attempt.stop is not None:
            raise asyncio.CancelledError  # it goes on, and nobody here has taken it up
        return await self._by_route[attempt.assignment.lease.route].run(attempt.assignment)

    def _end(self, assignment: Assignment, report: AttemptReport) -> None:
        attempt = self._attempts.pop(assignment.lease.run_id)
        if attempt.timer is not None:
            attempt.timer.cancel()
        self._let_in(assignment.lease.run_id)
        if attempt.stop is AttemptStop.FENCED or self._handed_on(attempt):
            return
        if attempt.stop is AttemptStop.TIMEOUT:
            report = stop_report(AttemptStop.TIMEOUT, assignment)
        elif attempt.stop is AttemptStop.CANCEL and not isinstance(report.outcome, Succeeded):
            outcome = stop_report(AttemptStop.CANCEL, assignment).outcome
            report = replace(report, outcome=outcome, messages=())
        took = 0.0
        if attempt.began:
            took = attempt.took(report, self._clock.monotonic(), self._store.now())
        self._add_ended(assignment, report, took)
        if self._full:
            self._full = False
            self.claimer.wake()

    def _let_in(self, run_id: int) -> None:
        """Begin a run that waited for its earlier attempt, unless nothing begins any more."""
        if not self._claiming:
            self.stop_run(run_id, AttemptStop.DRAIN)
        elif run_id in self._behind:
            self._start(self._behind.pop(run_id))

    def _handed_on(self, attempt: WorkerSlot) -> bool:
        """Tell whether an attempt goes on, to be carried on by the next process."""
        left = attempt.stop is AttemptStop.DRAIN and attempt.cut
        return left and self._keeps(attempt.assignment)

    def _give_up(self, assignment: Assignment) -> None:
        if self._behind.get(assignment.lease.run_id) is assignment:
            del self._behind[assignment.lease.run_id]
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
            told = [(assignment, report) for assignment, report, _ in batch]
            settlements = await decide_attempts(self._store, told, self._chance)
            verdicts = await self._store.write(settle, settlements)
        except BaseException:
            self._ended = batch + self._ended
            raise
        finally:
            self._settling = []
            self._settled.set()
        for ended, settlement, accepted in zip(batch, settlements, verdicts, strict=True):
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
        """Give back runs that the store says are ours but whose claim never reached us.

        A run is given back when two looks in a row find it unknown here, so that one whose claim is
        being answered at this moment is left alone.
        """
        unsettled = {a.lease.run_id for a, *_ in (*self._ended, *self._settling)}
        working = {
            n for n, attempt in self._attempts.items() if attempt.stop is not AttemptStop.FENCED
        }
        unknown = set(held) - working - self._behind.keys() - unsettled
        strangers = unknown & self._strangers
        self._strangers = unknown - strangers
        if strangers:
            log.warning("run.claim_unanswered", extra={"runs": len(strangers)})
            runs = await self._store.read(get_open_runs, sorted(strangers))
            report = AttemptReport(outcome=Lost(reason="the answer to its claim was lost"))
            ours = [(run, report) for run in runs if run.state is RunState.RUNNING]
            await settle_runs(self._store, ours, self._chance)

    def stop_run(self, run_id: int, reason: AttemptStop) -> None:
        """Tell the attempt of a run to stop, or one that has not begun not to."""
        if run_id in self._behind and self._behind[run_id].kept is not None:
            if reason is AttemptStop.DRAIN:
                del self._behind[run_id]  # it goes on, and the next process carries it on
        elif run_id in self._behind:
            behind = self._behind.pop(run_id)
            self._add_ended(behind, stop_report(reason, behind))
        elif run_id in self._attempts:
            self._stop(self._attempts[run_id], reason)

    def _stop(self, attempt: WorkerSlot, reason: AttemptStop) -> None:
        """Tell one attempt to stop; what cannot be stopped is marked stuck and keeps its slot."""
        lets_go = reason in {AttemptStop.DRAIN, AttemptStop.FENCED} and self._keeps(
            attempt.assignment
        )
        if attempt.stop is not None and not (lets_go and attempt.stop is AttemptStop.CANCEL):
            return
        if reason is AttemptStop.TIMEOUT and self._time_left(attempt):
            return
        attempt.stop = reason
        if attempt.entered:  # a task that is cancelled before its first step never takes it
            if lets_go:
                self._by_route[attempt.route].detach(attempt.assignment.lease.run_id)
            attempt.task.cancel()
        if self._group is not None and reason is AttemptStop.TIMEOUT:
            self._group.create_task(self._watch(attempt))

    def _time_left(self, attempt: WorkerSlot) -> bool:
        """Wind the timer of an attempt again that has waited for its turn in its runner."""
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

    async def _watch(self, attempt: WorkerSlot) -> None:
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
                log.warning("run.stuck_unmarked", extra={"error": str(error)})

    def signs(self) -> list[AttemptSample]:
        """Return what can be seen of the attempts that are not kept: their tasks are alive."""
        then = asyncio.get_running_loop().time() - FRESH
        old = [attempt for attempt in self._attempts.values() if attempt.started <= then]
        return [a.sign(self._by_route[a.route]) for a in old if not self._keeps(a.assignment)]

    def stop_claiming(self) -> None:
        """Take nothing new."""
        self._claiming = False

    async def drain(self, seconds: float) -> None:
        """Wait for what is going on, then stop it and give it back; everything ended is settled.

        What is kept goes on, and is let go at once.
        """
        self.stop_claiming()
        async with self._taking:  # what is being claimed at this moment is drained too
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
        for run_id in list(self._behind):
            self.stop_run(run_id, AttemptStop.DRAIN)
        self.settler.wake()
        while self._ended or self._settling:
            self._settled.clear()
            await self._settled.wait()

    def fence(self) -> None:
        """Stop everything at once; somebody else owns these runs now."""
        for attempt in list(self._attempts.values()):
            self._stop(attempt, AttemptStop.FENCED)
        self._behind.clear()
        self._ended.clear()
        self._settled.set()

    def stop(self) -> None:
        """End both services."""
        self.claimer.stop()
        self.settler.stop()


CANCELLED = "somebody cancelled it"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
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


FailureHook: TypeAlias = Callable[[RunFailure], object]
"""Called once for each run that failed for good, after that was recorded; may be a coroutine."""


Ended: TypeAlias = tuple[Assignment, AttemptReport, float]
"""An attempt that is to be settled, and for how many seconds it worked, if anybody logs that."""

FRESH = 1.0
"""How old an attempt is before it is told of: most have ended by then."""


class AttemptStop(StrEnum):
    """Why an attempt was told to stop."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    DRAIN = "drain"
    FENCED = "fenced"


class WorkerSlot:
    """One attempt that is going on; a plain class, because a busy worker makes very many."""

    __slots__ = ("assignment", "began", "cut", "entered", "started", "stop", "task", "timer")

    def __init__(self, assignment: Assignment, task: asyncio.Task[None]) -> None:
        self.assignment = assignment
        self.task = task
        self.timer: asyncio.TimerHandle | None = None
        self.stop: AttemptStop | None = None
        self.began = 0.0
        self.entered = False
        self.cut = False
        """Whether its work was cut off, which leaves what is kept going on."""
        self.started = 0.0

    @property
    def route(self) -> str:
        """Which runner it is for."""
        return self.assignment.lease.route

    def took(self, report: AttemptReport, count: float, now: int) -> float:
        """Return for how many seconds it has worked; what is carried on began in another life."""
        gone_on, kept = count - self.began, self.assignment.kept
        if kept is not None and kept.began:
            gone_on = (now - kept.began) / 1_000_000
        return max(0.0, gone_on - report.away / 1_000_000)

    def sign(self, runner: Runner) -> AttemptSample:
        """Return what can be seen of it: that it is here, and whether it has begun."""
        lease = self.assignment.lease
        state = "running" if self.stop is None else "ending"
        if runner.queue_wait(lease.run_id) is None:
            state = "starting"
        return AttemptSample(run_id=lease.run_id, epoch=lease.epoch, state=state)


def timed_out(assignment: Assignment) -> Failed:
    """Return what becomes of an attempt that took too long."""
    timeout = assignment.timeout
    seconds = 0.0 if timeout is None else timeout.total_seconds()
    return Failed(code="timeout", message=f"it took longer than its timeout of {seconds:g} s")


def stop_report(reason: AttemptStop | None, assignment: Assignment) -> AttemptReport:
    """Return the report of an attempt that was told to stop."""
    match reason:
        case AttemptStop.TIMEOUT:
            return AttemptReport(outcome=timed_out(assignment))
        case AttemptStop.CANCEL:
            return AttemptReport(outcome=Cancelled(reason=CANCELLED))
        case AttemptStop.DRAIN | AttemptStop.FENCED:
            return AttemptReport(outcome=Drained())
        case _:
            sentence = "the work cancelled itself (asyncio.CancelledError)"
            return AttemptReport(outcome=Failed(code="exception", message=sentence))


def log_settled(assignment: Assignment, report: AttemptReport, took: float) -> None:
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


def call_hook(group: asyncio.TaskGroup | None, hook: FailureHook, failure: RunFailure) -> None:
    """Tell somebody of a failure; their own faults are only logged."""
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
