"""What a slot on time does while earlier runs of its task are unfinished."""

from __future__ import annotations

from dataclasses import dataclass

from rota.model.plans import ActiveRun
from rota.model.states import RunState
from rota.model.tasks import Overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the slot runs, which queued runs it replaces, and which running ones it stops."""

    runs: bool = True
    replaces: tuple[ActiveRun, ...] = ()
    stops: tuple[ActiveRun, ...] = ()


def decide(overlap: Overlap | None, active: tuple[ActiveRun, ...]) -> Verdict:
    """Return what a slot does beside these unfinished runs of its task, oldest first.

    For `queue` at most one run is going on or about to, and one waits behind it: a newer slot takes
    that one's place. Only runs that came from slots are replaced; what was asked for stays.
    """
    queued = tuple(r for r in active if r.state == RunState.QUEUED and r.planned)
    going_on = tuple(r for r in active if r.state != RunState.QUEUED)
    match overlap:
        case Overlap.ALLOW | Overlap.QUEUE_ALL:
            return Verdict()
        case Overlap.SKIP:
            return Verdict(runs=not active)
        case Overlap.CANCEL_OTHER:
            return Verdict(replaces=queued, stops=going_on)
        case _:
            return Verdict(replaces=queued if going_on else queued[1:])
