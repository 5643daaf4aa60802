"""Rare paths that a simulation must have walked, or its silence means nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.tools.simulation.database import Change, Row
from tests.tools.simulation.picture import PLANNING, Commit

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


MAX_LOSSES = 3
REPLACED = "a newer slot replaced it in the queue"


def walked(changes: Mapping[str, Sequence[Change]], commit: Commit) -> Iterator[str]:
    """Yield the names of `SOMETIMES` that this transaction stands for."""
    for table, look in _LOOKS.items():
        for change in changes.get(table, ()):
            yield from look(change.old, change.new, commit)
    if commit.operation == "apply_plans" and "schedules" not in changes:
        yield "two planners plan the same slot"
    if commit.operation in {"pause_all", "resume_all"} and "events" in changes:
        yield f"everything is {commit.operation.removesuffix('_all')}d"


def _run(old: Row, new: Row, commit: Commit) -> Iterator[str]:
    if new is None:
        yield "old runs are pruned"
    elif old is None:
        if new.source == "after":
            yield "a successor starts"
        elif new.source == "catch_up":
            yield "a missed slot is caught up"
    elif old.state != new.state:
        yield from _moved(old, new)
    elif new.cancel_requested_at != old.cancel_requested_at and commit.operation in PLANNING:
        yield "a running run is stopped by a newer slot"
    elif new.stuck > old.stuck:
        yield "a run is stuck"


def _moved(old: Row, new: Row) -> Iterator[str]:
    if new.state == "running" and new.cause != "first":
        yield f"claimed again: {new.cause}"
    if new.state == "expired" and old.state == "queued":
        yield "a run expires in the queue"
    if new.state == "expired" and old.state == "waiting":
        yield "a question expires"
    if new.state == "failed" and new.error_code == "lost" and new.losses == MAX_LOSSES:
        yield "a run is lost for the last time"
    if new.error == REPLACED:
        yield "a waiting slot is replaced by a newer one"
    if new.state == "cancelled" and old.state == "running" and old.cancel_requested_at is not None:
        yield "a running run is cancelled"


def _attempt(old: Row, new: Row, commit: Commit) -> Iterator[str]:
    if old is None:
        yield f"attempt {new.outcome}"


def _delivery(old: Row, new: Row, commit: Commit) -> Iterator[str]:
    if old is not None and new is not None and old.state != new.state:
        yield f"delivery {new.state}"
    elif old is None and new.kind == "notification" and new.question_epoch is None:
        yield "people are told of a run"


def _worker(old: Row, new: Row, commit: Commit) -> Iterator[str]:
    if old is None and "~" in new.id:
        yield "a worker fences itself"
    elif old is not None and new is not None and new.fenced > old.fenced:
        yield "a worker is fenced"


def _task(old: Row, new: Row, commit: Commit) -> Iterator[str]:
    if old is not None and old.enabled > new.enabled and "in a row" in (new.disabled_reason or ""):
        yield "a task is disabled after too many failures"


def _schedule(old: Row, new: Row, commit: Commit) -> Iterator[str]:
    if old is None:
        return
    if commit.operation == "apply_plans" and commit.process.startswith("caller"):
        yield "a change plans what was due before it"
    if new.state == "ended" and old.state != "ended":
        yield "a schedule has no further slots"


def _ledger(old: Row, new: Row, commit: Commit) -> Iterator[str]:
    if new is not None:
        yield f"ledger: {new.reason}"


def _event(old: Row, new: Row, commit: Commit) -> Iterator[str]:
    if old is None and new.name == "run.late_result":
        yield "a late result is refused"
    elif old is None and new.name == "run.notified" and json.loads(new.data)["below_level"]:
        yield "a place is told nothing that matters less"


_LOOKS: dict[str, Callable[[Row, Row, Commit], Iterator[str]]] = {
    "runs": _run,
    "attempts": _attempt,
    "deliveries": _delivery,
    "workers": _worker,
    "tasks": _task,
    "schedules": _schedule,
    "ledger": _ledger,
    "events": _event,
}
