"""Reporting: what an attempt came to, from its ending and what its agent said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from rota.errors import Exhausted, RotaError, Unavailable
from rota.model.faults import FaultKind
from rota.model.keeping import Ending, Reason
from rota.model.outcomes import Asked, Cancelled, Failed, Lost, Outcome, Report, Succeeded
from rota.model.programs import Bounds
from rota.model.tasks import TaskKind
from rota.model.verdicts import Exit, Stop, Verdict
from rota.ports.agent import Reader
from rota.rules.internal import public_result, public_text

STOPS = {
    Reason.CANCELLED: Stop.CANCELLED,
    Reason.HARD_TIMEOUT: Stop.TIMEOUT,
    Reason.IDLE_TIMEOUT: Stop.IDLE,
}
TIMEOUTS = frozenset({Reason.HARD_TIMEOUT, Reason.IDLE_TIMEOUT})
UNTOLD = {
    Reason.LEASE_EXPIRED: "nobody renewed its keeper's lease",
    Reason.KEEPER_SIGTERM: "its keeper was told to stop",
    Reason.KEEPER_ERROR: "its keeper failed",
    Reason.INIT_KILLED: "the process that holds its tree was killed",
    Reason.LOST_REBOOT: "the machine was started again",
    Reason.LOST_NEVER_STARTED: "it was never started",
    Reason.LOST_KEEPER_DIED: "its keeper was killed",
    Reason.LOST_UNSWEPT: "what it left behind could not be ended",
}
"""Ends that say nothing about the work itself: the attempt is lost."""

WROTE = {
    True: "; it had written to somewhere outside",
    False: "",
    None: "; whether it had written to somewhere outside is not known",
}
WITHOUT_WORDS = "It asks for an answer, and says no more."
NOT_RUN = frozenset({Reason.EXEC_FAILED, Reason.SPAWN_FAILED, Reason.TOO_MANY_PROCESSES})


def refusal(fault: RotaError, kind: TaskKind) -> Report:
    """Return the report of an attempt that could not be begun; one that can be later is lost."""
    if isinstance(fault, Exhausted):
        return Report(outcome=Lost(reason=f"it was never started: {fault}", wrote=False))
    code = f"{kind.value}_unavailable" if isinstance(fault, Unavailable) else fault.code
    return Report(outcome=Failed(code=code, message=str(fault), retryable=False))


def unbrought(why: str) -> Report:
    """Return the report of an attempt whose files could not be laid before it; others may."""
    return Report(outcome=Failed(code="files_unavailable", message=why, retryable=True))


def verdict_of(ending: Ending, reader: Reader) -> Verdict | None:
    """Return what an agent's attempt came to; None if its ending says nothing about the work."""
    if ending.reason in UNTOLD or ending.reason in NOT_RUN:
        return None
    stopped = STOPS.get(ending.reason)
    told = Exit(
        code=ending.code,
        signal=ending.signal,
        stopped=stopped,
        stderr_tail=ending.err.tail,
        begun=ending.begun,
    )
    return reader.end(told)


def report_of(ending: Ending, verdict: Verdict | None, kind: TaskKind, bounds: Bounds) -> Report:
    """Return what an attempt came to, and how its processes ended."""
    whole = _outcome(ending, verdict, kind)
    outcome = public(whole) if kind is TaskKind.AGENT else whole
    if ending.reason in TIMEOUTS and isinstance(outcome, Failed):
        message = f"{_overdue(ending.reason, bounds)}, and {_end_of(ending)}"
        outcome = replace(outcome, message=message)
    return Report(outcome=outcome, ending=told(ending), away=away(ending))


def away(ending: Ending) -> int:
    """Return for how many microseconds nobody was there to hear of an ending."""
    return max(0, round(ending.ago * 1_000_000))


def public(outcome: Outcome) -> Outcome:
    """Return what an agent's attempt came to without what is internal; that stays in its output.

    A result of which nothing is left is told to nobody.
    """
    match outcome:
        case Succeeded(result=result):
            shown = public_result(result)
            rest = outcome.rest and (public_result(outcome.rest) or "")
            silent = outcome.silent or (shown is None and result is not None) or rest == ""
            return replace(outcome, result=shown, silent=silent, rest=rest)
        case Asked(question=question, context=context):
            shown = public_text(question) or WITHOUT_WORDS
            return replace(outcome, question=shown, context=public_text(context))
    return outcome


def stopped(report: Report) -> Report:
    """Return the report of an attempt that somebody wanted stopped, and that has ended."""
    return replace(report, outcome=Cancelled(reason="somebody cancelled it"), messages=())


def lost_because(report: Report, why: str | None, wrote: Callable[[], bool | None]) -> Report:
    """Return a report whose loss has a reason that only whoever caused it knows.

    It is looked whether the attempt has written to somewhere outside before it was lost.
    """
    if not isinstance(report.outcome, Lost):
        return report
    reason, seen = report.outcome.reason, wrote()
    reason = (reason if why is None else f"{why}: {reason}") + WROTE[seen]
    return replace(report, outcome=Lost(reason=reason, wrote=seen))


def failed_because(report: Report, why: str | None) -> Report:
    """Return the report of an attempt that misused its mailbox: trying again would not help."""
    if why is None:
        return report
    outcome = Failed(code="mailbox_misused", message=why, retryable=False)
    return replace(report, outcome=outcome, messages=())


def told(ending: Ending) -> str:
    """Return what is recorded of how processes ended."""
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


def _overdue(reason: Reason, bounds: Bounds) -> str:
    if reason is Reason.IDLE_TIMEOUT:
        return f"it wrote nothing for {bounds.idle_seconds or 0.0:g} s, its idle timeout"
    return f"it took longer than its timeout of {bounds.hard_seconds or 0.0:g} s"


def _end_of(ending: Ending) -> str:
    how = "had to be killed" if ending.killed else "ended when it was asked to"
    return how if ending.proven else f"{how}; whether all of it is gone could not be proven"


def _outcome(ending: Ending, verdict: Verdict | None, kind: TaskKind) -> Outcome:
    untold = UNTOLD.get(ending.reason)
    if untold is not None:
        proof = "" if ending.proven else "; whether all of it is gone could not be proven"
        detail = f" ({ending.detail})" if ending.detail else ""
        return Lost(reason=f"{untold}{detail}{proof}")
    if verdict is None:
        return _not_run(ending, kind)
    outcome = verdict.outcome
    if verdict.fault is FaultKind.NOT_STARTED and isinstance(outcome, Failed):
        outcome = replace(outcome, code=f"{kind.value}_unavailable", retryable=False)
    return outcome


def _not_run(ending: Ending, kind: TaskKind) -> Outcome:
    if ending.reason is Reason.TOO_MANY_PROCESSES:
        message = f"it had more processes than it may: {ending.detail}"
        return Failed(code="too_many_processes", message=message)
    message = f"its program cannot be started: {ending.detail}"
    return Failed(code=f"{kind.value}_unavailable", message=message, retryable=False)


def out_of_time() -> Report:
    """Return the report of an attempt whose time was up before it could be tried again."""
    kind = FaultKind.TIMEOUT
    return Report(outcome=Failed(code=kind.value, message=kind.sentence))
