"""One running attempt, and the outcome of its end: report, relaunch or loss.

A transient error of an agent leads to another launch in the same attempt, with a keeper of its own.
The failed launch, its number and the time of the next one are recorded before anything waits, so
that a crash neither loses nor adds a launch. A limit that ends later than that returns the run to
the queue until then, except in a conversation, where somebody waits.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple, TypeVar

from rota.errors import Exhausted, RotaError, Unavailable
from rota.flow.attempt.prepare import USUAL, result_line
from rota.flow.attempt.programs import ProgramControl
from rota.model.agents import AgentErrorKind, AgentResult, ProcessExit, StopReason
from rota.model.attempts import (
    CANNOT_START,
    UNBEGUN,
    Assignment,
    AttemptReport,
    Cancelled,
    ExitReason,
    ExitRecord,
    Failed,
    KeptAttempt,
    Lost,
    NewEvent,
    Outcome,
    OutputStream,
    Relaunch,
    Released,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.events import EventName
from rota.model.heartbeats import AttemptSample
from rota.model.instants import from_micros, to_micros
from rota.model.programs import ResourceLimits
from rota.model.tasks import TaskKind
from rota.ports.agent import OutputReader
from rota.ports.keeper import KeeperHome
from rota.rules.notifications import public_result, public_text

Answer = TypeVar("Answer")


@dataclass
class CheckInterrupt:
    """Interrupts checks early; `holding` is the program that runs beside the attempt."""

    halted: asyncio.Event = field(default_factory=asyncio.Event)
    holding: KeptAttempt | None = None

    def hold(self, kept: KeptAttempt | None) -> bool:
        """Set the program that runs beside the attempt; return whether it must end at once."""
        self.holding = kept
        return self.halted.is_set()

    async def unless(self, looking: Awaitable[Answer]) -> Answer | None:
        """Return the result of a check, or None if it is interrupted."""
        look = asyncio.ensure_future(looking)
        halt = asyncio.ensure_future(self.halted.wait())
        try:
            await asyncio.wait({look, halt}, return_when=asyncio.FIRST_COMPLETED)
            return look.result() if look.done() else None
        finally:
            look.cancel()
            halt.cancel()
            await asyncio.gather(look, halt, return_exceptions=True)


@dataclass
class Attempt:
    """One attempt of this worker.

    `written` says that it may be recorded, so that the next process continues it; `resting`, that
    it waits between two launches without a program; `left`, that it was let go, so that its program
    continues when this task is cancelled. `gate` is the answer of its gate as JSON, empty while
    unknown; `budgeted` says whether a budget applies. `away` is for how many microseconds no
    process followed it while it had no living program. `begun` says whether a program may have read
    its input.
    """

    assignment: Assignment
    holder: str
    kept: KeptAttempt | None
    written: bool
    grace: float = USUAL.grace_seconds
    stopped: bool = False
    resting: bool = False
    left: bool = False
    gate: str | None = None
    budgeted: bool | None = None
    halting: CheckInterrupt = field(default_factory=CheckInterrupt)
    away: int = 0
    begun: bool = field(init=False)

    def __post_init__(self) -> None:
        """Treat an attempt that is continued as started, until its exit record is read."""
        self.begun = self.written

    def sign(self) -> AttemptSample:
        """Return a sample of the attempt without a followed program."""
        lease = self.assignment.lease
        between = "resting" if self.resting else "concluding" if self.begun else "preparing"
        return AttemptSample(run_id=lease.run_id, epoch=lease.epoch, state=between)

    def reported(self, report: AttemptReport) -> AttemptReport:
        """Return the report with facts that only this process knows, such as whether it began."""
        unbegun = not self.begun and self.assignment.lease.thread is not None
        return replace(report, unbegun=True) if unbegun else report

    def ended(self, report: AttemptReport) -> AttemptReport:
        """Return the report, replaced if somebody stopped the attempt and it has ended."""
        return self.reported(stopped_report(report) if self.stopped else report)

    def starts(self, now: int) -> bool:
        """Return whether to start a program; one that waited continues as if never interrupted.

        An attempt that was recorded and never started should have started at once.
        """
        if self.kept is None or self.kept.relaunch_at is None:
            return self.kept is None
        late = max(0, now - self.kept.relaunch_at)
        self.kept = replace(self.kept, started_at=self.kept.started_at + late)
        self.away += late
        return True

    def told(self, report: AttemptReport) -> AttemptReport:
        """Return the report with the time without a following process."""
        return replace(report, away=report.away + self.away) if self.away else report


class KeeperLeaseTerms(NamedTuple):
    """How long keepers run without hearing from this home.

    `doubt` covers slack, grace and clocks: a keeper ends at most that much later than its lease.
    """

    seconds: float = 15 * 60.0
    doubt: float = 180.0
    renew: float = 10.0

    @property
    def promise(self) -> timedelta:
        """How long after the last renewal keepers of a home may be alive."""
        return timedelta(seconds=self.seconds + self.doubt)


TERMS = KeeperLeaseTerms()

STOPS = {
    ExitReason.CANCELLED: StopReason.CANCELLED,
    ExitReason.HARD_TIMEOUT: StopReason.TIMEOUT,
    ExitReason.IDLE_TIMEOUT: StopReason.IDLE,
}
TIMEOUTS = frozenset({ExitReason.HARD_TIMEOUT, ExitReason.IDLE_TIMEOUT})
UNTOLD = {
    ExitReason.LEASE_EXPIRED: "nobody renewed its keeper's lease",
    ExitReason.KEEPER_SIGTERM: "its keeper was asked to stop",
    ExitReason.KEEPER_ERROR: "its keeper failed",
    ExitReason.INIT_KILLED: "the init or guard process of its tree was killed",
    ExitReason.LOST_REBOOT: "the machine was restarted",
    ExitReason.LOST_NEVER_STARTED: "it was never started",
    ExitReason.LOST_KEEPER_DIED: "its keeper was killed",
    ExitReason.LOST_UNSWEPT: "processes that it left behind could not be ended",
}
"""Exit reasons that say nothing about the work: the attempt is lost."""

WROTE = {
    True: "; it had written through the gateway",
    False: "",
    None: "; whether it had an effect outside is not known",
}
WITHOUT_WORDS = "It asks for an answer without saying what about."
NOT_RUN = frozenset(
    {ExitReason.EXEC_FAILED, ExitReason.SPAWN_FAILED, ExitReason.TOO_MANY_PROCESSES}
)


def refusal_report(fault: RotaError, kind: TaskKind) -> AttemptReport:
    """Return the report of an attempt that could not start; lost if it can start later."""
    if isinstance(fault, Exhausted):
        return AttemptReport(outcome=Lost(reason=f"it was never started: {fault}", wrote=False))
    code = f"{kind.value}_unavailable" if isinstance(fault, Unavailable) else fault.code
    return AttemptReport(outcome=Failed(code=code, message=str(fault), retryable=False))


def missing_files_report(why: str) -> AttemptReport:
    """Return the report of an attempt without its message files; another attempt may have them."""
    return AttemptReport(outcome=Failed(code="files_unavailable", message=why, retryable=True))


def result_from_output(ending: ExitRecord, reader: OutputReader) -> AgentResult | None:
    """Return the result of an agent; None if the exit record says nothing about the work."""
    if ending.reason in UNTOLD or ending.reason in NOT_RUN:
        return None
    stopped = STOPS.get(ending.reason)
    told = ProcessExit(
        code=ending.code,
        signal=ending.signal,
        stopped=stopped,
        stderr_tail=ending.err.tail,
        begun=ending.begun,
    )
    return reader.end(told)


def attempt_report(
    ending: ExitRecord, verdict: AgentResult | None, kind: TaskKind, bounds: ResourceLimits
) -> AttemptReport:
    """Return the report of an ended attempt."""
    whole = _outcome(ending, verdict, kind)
    outcome = public_report(whole) if kind is TaskKind.AGENT else whole
    if ending.reason in TIMEOUTS and isinstance(outcome, Failed):
        message = f"{_overdue(ending.reason, bounds)}, and {_end_of(ending)}"
        outcome = replace(outcome, message=message)
    return AttemptReport(outcome=outcome, exit=exit_text(ending), away=gone_report(ending))


def gone_report(ending: ExitRecord) -> int:
    """Return for how many microseconds nobody followed an ended program."""
    return max(0, round(ending.ago * 1_000_000))


def public_report(outcome: Outcome) -> Outcome:
    """Return an outcome without internal text, which stays in the output.

    A result without remaining text is not delivered.
    """
    match outcome:
        case Succeeded(result=result):
            shown = public_result(result)
            rest = outcome.rest and (public_result(outcome.rest) or "")
            silent = outcome.silent or (shown is None and result is not None) or rest == ""
            return replace(outcome, result=shown, silent=silent, rest=rest)
        case WaitingForAnswer(question=question, context=context):
            shown = public_text(question) or WITHOUT_WORDS
            return replace(outcome, question=shown, context=public_text(context))
    return outcome


def stopped_report(report: AttemptReport) -> AttemptReport:
    """Return the report of an attempt that was stopped and has ended."""
    return replace(report, outcome=Cancelled(reason="it was cancelled"), messages=())


def explain_loss(
    report: AttemptReport, why: str | None, wrote: Callable[[], bool | None]
) -> AttemptReport:
    """Return the report of a lost attempt with the reason, which only the caller knows.

    The report also says whether the attempt has written through the gateway.
    """
    if not isinstance(report.outcome, Lost):
        return report
    reason, seen = report.outcome.reason, wrote()
    reason = (reason if why is None else f"{why}: {reason}") + WROTE[seen]
    return replace(report, outcome=Lost(reason=reason, wrote=seen))


def explain_failure(report: AttemptReport, why: str | None) -> AttemptReport:
    """Return the report of an attempt that misused its mailbox; it is not retried."""
    if why is None:
        return report
    outcome = Failed(code="mailbox_misused", message=why, retryable=False)
    return replace(report, outcome=outcome, messages=())


def exit_text(ending: ExitRecord) -> str:
    """Return the exit record as stored text."""
    facts = {
        "reason": ending.reason.value,
        "detail": ending.detail or None,
        "code": ending.code,
        "signal": ending.signal,
        "tree": ending.tree or None,
        "cpu_seconds": ending.cpu_seconds or None,
        "memory_bytes": ending.rss_bytes or None,
        "out_bytes": ending.out.total,
        "err_bytes": ending.err.total,
    }
    known = {name: fact for name, fact in facts.items() if fact is not None}
    return json.dumps({**known, "killed": ending.killed, "proven": ending.proven})


def _overdue(reason: ExitReason, bounds: ResourceLimits) -> str:
    if reason is ExitReason.IDLE_TIMEOUT:
        return f"it wrote nothing for {bounds.idle_seconds or 0.0:g} s (idle timeout)"
    return f"it took longer than its timeout of {bounds.hard_seconds or 0.0:g} s"


def _end_of(ending: ExitRecord) -> str:
    how = "was killed" if ending.killed else "ended after SIGTERM"
    return (
        how if ending.proven else f"{how}; whether all its processes have ended could not be proven"
    )


def _outcome(ending: ExitRecord, verdict: AgentResult | None, kind: TaskKind) -> Outcome:
    untold = UNTOLD.get(ending.reason)
    if untold is not None:
        proof = (
            "" if ending.proven else "; whether all its processes have ended could not be proven"
        )
        detail = f" ({ending.detail})" if ending.detail else ""
        return Lost(reason=f"{untold}{detail}{proof}")
    if verdict is None:
        return _not_run(ending, kind)
    outcome = verdict.outcome
    if verdict.error is AgentErrorKind.NOT_STARTED and isinstance(outcome, Failed):
        outcome = replace(outcome, code=f"{kind.value}_unavailable", retryable=False)
    return outcome


def _not_run(ending: ExitRecord, kind: TaskKind) -> Outcome:
    if ending.reason is ExitReason.TOO_MANY_PROCESSES:
        message = f"it reached its limit of processes: {ending.detail}"
        return Failed(code="too_many_processes", message=message)
    message = f"its program cannot be started: {ending.detail}"
    return Failed(code=f"{kind.value}_unavailable", message=message, retryable=False)


def timeout_report() -> AttemptReport:
    """Return the report of an attempt whose timeout has passed before the next launch."""
    kind = AgentErrorKind.TIMEOUT
    return AttemptReport(outcome=Failed(code=kind.value, message=kind.sentence))


LAST_WORDS = 16 * 1024
"""Enough for the longest stack trace after an out-of-memory error."""


async def add_last_output(
    minding: ProgramControl, kept: KeptAttempt, ending: ExitRecord
) -> ExitRecord:
    """Return the exit record with the last output, and whether the program has started."""
    err = ending.err
    words = await minding.read(kept, OutputStream.ERR, max(0, err.size - LAST_WORDS), LAST_WORDS)
    begun = await _begun_now(minding, kept, ending)
    return replace(ending, err=replace(err, tail=words + err.tail), begun=begun)


async def has_started(minding: ProgramControl, kept: KeptAttempt, ending: ExitRecord) -> bool:
    """Return whether a program of the attempt has started, in this launch or an earlier one.

    A program that started may have read its input, whatever its outcome.
    """
    return kept.launches > 0 or await _begun_now(minding, kept, ending)


async def _begun_now(minding: ProgramControl, kept: KeptAttempt, ending: ExitRecord) -> bool:
    """Return whether this launch started; an executor reports a failed start first and alone."""
    if ending.reason in UNBEGUN:
        return False
    if ending.reason is not ExitReason.EXITED or not ending.code:
        return True
    first = {await minding.read(kept, stream, 0, len(CANNOT_START)) for stream in OutputStream}
    return first != {CANNOT_START, b""}


async def read_result(
    minding: ProgramControl, kept: KeptAttempt, assignment: Assignment, reader: OutputReader
) -> None:
    """Read the result file of a script as its last line."""
    line = result_line(await minding.result(kept, assignment) or b"")
    if line is not None:
        reader.feed(line)


def has_written(yard: KeeperHome, kept: KeptAttempt, *, unseen: bool) -> bool | None:
    """Return whether an attempt has written outside; None if unknown.

    With `unseen` it could do so without the gateway.
    """
    seen = yard.has_written(kept)
    if unseen:
        return seen or None
    return seen if seen is not None or kept.can_write_outside else False


OF_THE_SESSION = frozenset({AgentErrorKind.SESSION_LOST, AgentErrorKind.CONTEXT_TOO_LONG})
"""Errors that a new session solves."""
SHORTEST, LONGEST = 60 * 1_000_000, 8 * 86_400 * 1_000_000
"""Range in microseconds in which a run is returned to the queue; a weekly limit is the longest."""
MOST_BEGUN = 20
"""Maximum attempts of a run that is returned to the queue once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRetryPolicy:
    """How often and after which waits an agent is launched again."""

    retries: int = 3
    wait: timedelta = timedelta(seconds=5)


def decide_relaunch(
    kept: KeptAttempt,
    verdict: AgentResult | None,
    patience: LaunchRetryPolicy,
    hard_seconds: float | None,
    now: int,
) -> Relaunch | None:
    """Return what to wait for after a failed launch; None if the attempt is over.

    The launch must start before the timeout of the attempt.
    """
    if verdict is None or verdict.error is None:
        return None
    fault = verdict.error
    if fault in OF_THE_SESSION and kept.session is not None:
        why: dict[str, object] = {
            "kind": fault.value,
            "message": fault.sentence,
            "new_session": True,
        }
        return Relaunch(
            replace(kept, session=None, relaunch_at=now),
            NewEvent(EventName.AGENT_ERROR, why),
            kept.session,
        )
    wait, lifted = patience.wait // timedelta(microseconds=1), limit_lifted_at(verdict)
    until = max(now + wait, lifted)
    timeout = None if hard_seconds is None else kept.started_at + int(hard_seconds * 1_000_000)
    too_late = timeout is not None and until >= timeout
    if not verdict.transient or kept.launches >= patience.retries or too_late:
        return None
    if lifted > now + wait * patience.retries:
        return None
    why = {
        "kind": fault.value,
        "message": fault.sentence,
        "retry": kept.launches + 1,
        "of": patience.retries,
        "at": from_micros(until).isoformat(),
    }
    return Relaunch(
        replace(kept, launches=kept.launches + 1, relaunch_at=until),
        NewEvent(EventName.AGENT_ERROR, why),
    )


def limit_lifted_at(verdict: AgentResult) -> int:
    """Return when the limit of a provider ends; 0 if unknown."""
    return 0 if verdict.until is None else to_micros(verdict.until)


def requeue_until_lifted(
    report: AttemptReport, verdict: AgentResult | None, assignment: Assignment, now: int
) -> AttemptReport:
    """Return a report of a later limit as one that returns the run to the queue until then."""
    if verdict is None or not verdict.transient or not isinstance(report.outcome, Failed):
        return report
    lifted, lease = limit_lifted_at(verdict), assignment.lease
    soon = max(lifted, now + SHORTEST)
    if not now < lifted <= now + LONGEST or lease.thread or lease.epoch >= MOST_BEGUN:
        return report
    reason = f"its model's provider accepts no requests until {from_micros(lifted):%F %H:%M} UTC"
    return replace(report, outcome=Released(until=soon, reason=reason), messages=())


def remaining_limits(bounds: ResourceLimits, gone: int) -> ResourceLimits:
    """Return the limits of another launch; all launches share the timeout of the attempt."""
    if bounds.hard_seconds is None:
        return bounds
    return replace(bounds, hard_seconds=bounds.hard_seconds - gone / 1_000_000)


def ended_before_start(kept: KeptAttempt, ending: ExitRecord, assignment: Assignment) -> bool:
    """Return whether the process died between recording an attempt and starting its program."""
    return ending.reason is ExitReason.LOST_NEVER_STARTED and kept is assignment.kept
