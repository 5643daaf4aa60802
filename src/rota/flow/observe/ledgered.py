"""Slots that did not run, in words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo

from rota.flow.observe.facts import Facts
from rota.flow.observe.telling import counted, span, wall
from rota.model.instants import to_micros
from rota.model.leaps import Leap
from rota.model.pauses import was_paused
from rota.model.plans import LedgerReason, LedgerRow

FOUND_LATE = frozenset(
    {
        LedgerReason.MISSED,
        LedgerReason.TOO_LATE,
        LedgerReason.COALESCED,
        LedgerReason.CATCH_UP_CAP,
    }
)


def is_passed_over(row: LedgerRow, early: Leap | None) -> bool:
    """Whether slots of a row were found late by a clock that was ahead."""
    if early is None or row.reason not in FOUND_LATE:
        return False
    return to_micros(row.last_at) >= early.start and to_micros(row.first_at) <= early.end


def ledgered(
    row: LedgerRow, facts: Facts, zone: ZoneInfo, next_run: Callable[[datetime], str]
) -> tuple[str, str]:
    """Return what became of the slots of a row, in one word and in a sentence."""
    catch_up = facts.task.policy.catch_up
    noted = wall(row.noted_at, zone)
    match row.reason:
        case LedgerReason.DISABLED:
            return "skipped", "skipped: the task was disabled"
        case LedgerReason.PAUSED:
            all_of_it = was_paused(facts.pauses, to_micros(row.first_at))
            whom = "everything" if all_of_it else "the task"
            return "skipped", f"skipped: {whom} was paused"
        case LedgerReason.OVERLAP:
            return "skipped", "skipped: an earlier run was still going on (overlap skip)"
        case LedgerReason.COALESCED:
            return "coalesced", f"coalesced into {next_run(row.last_at)}"
        case LedgerReason.RESTORED:
            why = "nobody knows what ran between a backup and its restore"
            return "unknown", f"not caught up: {why} ({noted})"
        case LedgerReason.MISSED:
            return "missed", f"missed: found at {noted}, and the task does not catch up"
        case LedgerReason.TOO_LATE:
            window = span(catch_up.window)
            return "missed", f"missed: found at {noted}, past the catch-up window of {window}"
        case LedgerReason.CATCH_UP_CAP:
            cap = counted(catch_up.cap, "slot")
            return "missed", f"missed: found at {noted}; only the newest {cap} are caught up"
