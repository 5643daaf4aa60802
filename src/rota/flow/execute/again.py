"""Trying again inside an attempt: what a provider refuses for a moment is no failure of the run.

A limit that is lifted at a known time, later than that, is none either: the run is given back until
then. Somebody who waits for an answer in a conversation is told instead.

Each try has a keeper of its own. That it was in vain, how often, and when the next one may begin is
on record before anything is waited for, so a process that is killed loses no try and adds none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from rota.model.events import EventName
from rota.model.faults import FaultKind
from rota.model.instants import from_micros, to_micros
from rota.model.keeping import Ending, Happened, Kept, Pause, Reason
from rota.model.outcomes import Drained, Failed, Report
from rota.model.programs import Bounds
from rota.model.verdicts import Verdict
from rota.ports.runner import Assignment

OF_THE_SESSION = frozenset({FaultKind.SESSION_LOST, FaultKind.CONTEXT_TOO_LONG})
"""What a new session helps against."""
SHORTEST, LONGEST = 60 * 1_000_000, 8 * 86_400 * 1_000_000
"""For how many microseconds a run is given back: a limit of a week is the longest there is."""
MOST_BEGUN = 20
"""How many attempts a run may have had that is given back once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often a transient fault is tried again inside an attempt, and how far apart."""

    retries: int = 3
    wait: timedelta = timedelta(seconds=5)


def again(
    kept: Kept, verdict: Verdict | None, patience: Patience, hard_seconds: float | None, now: int
) -> Pause | None:
    """Return what to wait for when a try was in vain; None if the attempt is over.

    A try that could not begin before the attempt's timeout is not waited for.
    """
    if verdict is None or verdict.fault is None:
        return None
    fault = verdict.fault
    if fault in OF_THE_SESSION and kept.session is not None:
        why: dict[str, object] = {
            "kind": fault.value,
            "message": fault.sentence,
            "new_session": True,
        }
        return Pause(
            replace(kept, session=None, until=now), Happened(EventName.FAULT, why), kept.session
        )
    wait, lifted = patience.wait // timedelta(microseconds=1), lifted_at(verdict)
    until = max(now + wait, lifted)
    timeout = None if hard_seconds is None else kept.began + int(hard_seconds * 1_000_000)
    too_late = timeout is not None and until >= timeout
    if not verdict.transient or kept.tries >= patience.retries or too_late:
        return None
    if lifted > now + wait * patience.retries:
        return None
    why = {
        "kind": fault.value,
        "message": fault.sentence,
        "retry": kept.tries + 1,
        "of": patience.retries,
        "at": from_micros(until).isoformat(),
    }
    return Pause(replace(kept, tries=kept.tries + 1, until=until), Happened(EventName.FAULT, why))


def lifted_at(verdict: Verdict) -> int:
    """Return when the limit is lifted that an attempt has met, 0 if nobody has said so."""
    return 0 if verdict.until is None else to_micros(verdict.until)


def given_back(report: Report, verdict: Verdict | None, assignment: Assignment, now: int) -> Report:
    """Return a report of a limit that is lifted later as one that gives the run back until then."""
    if verdict is None or not verdict.transient or not isinstance(report.outcome, Failed):
        return report
    lifted, lease = lifted_at(verdict), assignment.lease
    soon = max(lifted, now + SHORTEST)
    if not now < lifted <= now + LONGEST or lease.thread or lease.epoch >= MOST_BEGUN:
        return report
    reason = f"its model's provider takes no more requests until {from_micros(lifted):%F %H:%M} UTC"
    return replace(report, outcome=Drained(until=soon, reason=reason), messages=())


def what_is_left(bounds: Bounds, gone: int) -> Bounds:
    """Return the bounds of a further try: the attempt has one timeout for all of them."""
    if bounds.hard_seconds is None:
        return bounds
    return replace(bounds, hard_seconds=bounds.hard_seconds - gone / 1_000_000)


def killed_before_its_start(kept: Kept, ending: Ending, assignment: Assignment) -> bool:
    """Whether the process that wrote an attempt down was killed before it started the program."""
    return ending.reason is Reason.LOST_NEVER_STARTED and kept is assignment.kept
