"""Which rare paths a transaction walked, told from the rows it changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.tools.simulation.database import Change, Row
from tests.tools.simulation.picture import PLANNING, Commit

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
    elif new.cancel_at != old.cancel_at and commit.operation in PLANNING:
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
    if new.state == "cancelled" and old.state == "running" and old.cancel_at is not None:
        yield "a running run is cancelled"


def _attempt(old: Row, new: Row, commit: Commit) -> Iterator[str]:
    if old is None:
        yield f"attempt {new.outcome}"


def _delivery(old: Row, new: Row, commit: Commit) -> Iterator[str]:
    if old is not None and new is not None and old.state != new.state:
        yield f"delivery {new.state}"
    elif old is None and new.kind == "notice" and new.asking is None:
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
    elif old is None and new.name == "run.noticed" and json.loads(new.data)["below"]:
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
