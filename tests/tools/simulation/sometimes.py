"""Rare paths that a simulation must have walked, or its silence means nothing."""

from __future__ import annotations

from collections import Counter

SOMETIMES = (
    # what befell the processes
    "a process crashes on its own",
    "a process crashes before a write",
    "a process crashes inside a transaction",
    "a process crashes between commit and answer",
    "a process pauses past its lease",
    "a process is told to stop and drains",
    "a process is cut off from the database",
    "the database is away",
    "the clock leaps forward",
    "the clock leaps back",
    "the caches of claiming are lost",
    "a wake-up is lost",
    # what befell their calls
    "a write fails before it happened",
    "a write happened and its answer was lost",
    "a claim happened and its answer was lost",
    "a settlement happened and its answer was lost",
    "a plan happened and its answer was lost",
    "a write is late",
    "an answer is late",
    "the database is busy",
    "a write arrives twice",
    "a read fails",
    # leases
    "a worker is fenced",
    "a worker fences itself",
    "an attempt begins after its run was taken away",
    "two attempts of a run work at the same time",
    "a late result is refused",
    "a run is lost for the last time",
    "claimed again: retry",
    "claimed again: lost",
    "claimed again: resume",
    "claimed again: drained",
    # kept attempts
    "a home is taken",
    "a home is another process's",
    "a kept run is adopted",
    "a kept run is adopted by another process",
    "a keeper is killed",
    "an orphaned tree is swept",
    "a machine is started again",
    "a spool is full",
    "a program is not started because the promise has ended",
    "a kept run is lost because nobody came back for it",
    "kept: exited",
    "kept: cancelled",
    "kept: hard_timeout",
    "kept: lease_expired",
    "kept: lost:reboot",
    "kept: lost:never_started",
    "kept: lost:keeper_died",
    # ends
    "attempt succeeded",
    "attempt failed",
    "attempt lost",
    "attempt drained",
    "attempt asked",
    "attempt cancelled",
    "attempt expired",
    "a running run is cancelled",
    "a run is stuck",
    "a run expires in the queue",
    "a question expires",
    "a question is answered",
    "two answers race and one is refused",
    "an attempt that has asked waits",
    "what was deferred is done",
    "what was deferred is dropped",
    "a task is disabled after too many failures",
    "a successor starts",
    "old runs are pruned",
    # slots
    "ledger: disabled",
    "ledger: paused",
    "ledger: missed",
    "ledger: too_late",
    "ledger: coalesced",
    "ledger: catch_up_cap",
    "ledger: overlap",
    "a missed slot is caught up",
    "a waiting slot is replaced by a newer one",
    "a running run is stopped by a newer slot",
    "two planners plan the same slot",
    "a slot is backfilled",
    "a change plans what was due before it",
    "a schedule has no further slots",
    # limits
    "the total limit is full",
    "the pool limit is full",
    "the space limit is full",
    "the group limit is full",
    "the lane limit is full",
    "a rate is spent",
    # callers
    "everything is paused",
    "everything is resumed",
    "a key is used again",
    "a key is refused for another payload",
    "a cancelled run had begun",
    "a cancelled run had not begun",
    # messages
    "delivery sending",
    "delivery pending",
    "delivery sent",
    "delivery unknown",
    "delivery dead",
    "delivery withdrawn",
    "people are told of a run",
    "a place is told nothing that matters less",
)

_KNOWN = frozenset(SOMETIMES)


class Sometimes:
    """Counts how often each of them happened."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        """It happened."""
        if name not in _KNOWN:
            message = f"{name!r} is not in the list of rare paths"
            raise ValueError(message)
        self.counts[name] += 1

    def missing(self) -> list[str]:
        """Return what has not happened at all."""
        return [name for name in SOMETIMES if not self.counts[name]]
