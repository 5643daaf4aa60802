"""Claim: ready runs become assignments for this worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.model.tasks import Pool
from rota.model.views import Claimed
from rota.ports.runner import Assignment
from rota.ports.store import Queue

POOLS = (Pool.FOREGROUND.value, Pool.BACKGROUND.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a claim brought, and in how many microseconds a spent rate allows more."""

    assignments: list[Assignment]
    rest_micros: int | None = None
    more: bool = False


async def claim(store: Queue, worker: str, routes: Sequence[str], want: int) -> Taken:
    """Take up to `want` runs; foreground first."""
    claimed = await store.claim(worker, POOLS, routes, want)
    assignments = assigned(claimed, store.incarnation)
    rest = None if claimed.retry_at is None else max(0, claimed.retry_at - store.now())
    return Taken(assignments=assignments, rest_micros=rest, more=claimed.more)


def assigned(claimed: Claimed, incarnation: str) -> list[Assignment]:
    """Return leases with their tasks and answers."""
    answers = claimed.answers
    return [
        Assignment(lease, claimed.tasks[lease.task_id], answers.get(lease.run_id, ()), incarnation)
        for lease in claimed.leases
    ]
