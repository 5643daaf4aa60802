"""Claim: ready runs become assignments of this worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.model.attempts import Assignment
from rota.model.tasks import Pool
from rota.model.views import ClaimResult
from rota.store.claims import claim_runs
from rota.store.store import Store

POOLS = (Pool.FOREGROUND.value, Pool.BACKGROUND.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedAssignments:
    """The claimed assignments, and the microseconds until a spent rate allows more."""

    assignments: list[Assignment]
    rest_micros: int | None = None
    more: bool = False


async def claim(store: Store, worker: str, routes: Sequence[str], want: int) -> ClaimedAssignments:
    """Claim up to `want` runs, foreground first."""
    claimed = await store.write(claim_runs, worker, POOLS, routes, want)
    assignments = make_assignments(claimed, store.database.incarnation)
    rest = None if claimed.retry_at is None else max(0, claimed.retry_at - store.now())
    return ClaimedAssignments(assignments=assignments, rest_micros=rest, more=claimed.more)


def make_assignments(claimed: ClaimResult, incarnation: str) -> list[Assignment]:
    """Return leases with their tasks and answers."""
    answers = claimed.answers
    return [
        Assignment(lease, claimed.tasks[lease.task_id], answers.get(lease.run_id, ()), incarnation)
        for lease in claimed.leases
    ]
