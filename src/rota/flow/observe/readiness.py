"""What prevents a daemon from working, from what it knows.

Nothing is written to find out: workers write regularly, so the last write is recent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from rota.errors import RotaError
from rota.flow.observe.status import OVERDUE
from rota.model.problems import FAILING, LATE, UNREADABLE, Problem
from rota.store.plans import next_due
from rota.store.store import Store

PLANNER = "planner"
READ_SECONDS = 5.0
"""Time limit for one short query."""


class Service(Protocol):
    """One loop of a daemon."""

    name: str
    last_error: str | None

    @property
    def silent_for(self) -> float:
        """Seconds since the last successful step."""


async def readiness(store: Store, services: Sequence[Service]) -> list[Problem]:
    """Return the problems, those of the database first; empty if there are none."""
    return [
        *await _read_problems(store),
        *await store.database.problems(),
        *service_problems(services),
    ]


def service_problems(services: Sequence[Service]) -> list[Problem]:
    """Return failing loops, and whether the planner hangs."""
    found = [
        Problem(FAILING, f"the {service.name} fails and is retried", service.last_error)
        for service in services
        if service.last_error is not None
    ]
    found += [
        Problem(LATE, f"the planner has not completed a step for {service.silent_for:.0f} s")
        for service in services
        if service.name == PLANNER and service.silent_for > OVERDUE.total_seconds()
    ]
    return found


async def _read_problems(store: Store) -> list[Problem]:
    try:
        async with asyncio.timeout(READ_SECONDS):
            await store.read(next_due)
    except RotaError as fault:
        return [Problem(UNREADABLE, "the database cannot be read", str(fault))]
    except TimeoutError:
        return [Problem(UNREADABLE, f"the database has not answered within {READ_SECONDS:g} s")]
    return []
