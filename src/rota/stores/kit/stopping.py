"""Stopping what runs: whoever works on it is asked to, and its end tells who wanted that."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace

from rota.model.events import EventName
from rota.model.settlements import Extras, Settlement
from rota.model.states import FINISHED, RunState
from rota.stores.kit.session import EVENTS, Session

CANCELS = "cancels"
"""The topic of running runs that somebody wants stopped."""

UNTOLD = "it was cancelled while it ran"


async def request_cancel(session: Session, run_ids: Sequence[int], why: str, now: int) -> None:
    """Ask whoever works on these running runs to stop."""
    asked = await session.rows("request_cancel", ids=list(run_ids), now=now)
    if not asked:
        return
    await session.run(
        "record_events",
        ids=[row[0] for row in asked],
        name=EventName.CANCEL_REQUESTED.value,
        data=json.dumps({"why": why}),
        now=now,
    )
    session.wake(CANCELS)
    session.wake(EVENTS)


async def reasons(session: Session, run_ids: Collection[int]) -> dict[int, str]:
    """Return why running runs are to stop."""
    rows = await session.rows("cancel_reasons", ids=sorted(run_ids)) if run_ids else []
    return {run_id: why or UNTOLD for run_id, why in rows}


def stopped(settlement: Settlement, why: str) -> Settlement:
    """Return how a run ends that somebody wants stopped; one that came to its own end did that.

    It neither goes back to the queue nor waits.
    """
    extras = settlement.extras
    if settlement.state is RunState.CANCELLED:
        return settlement._replace(extras=replace(extras, error=why))
    if settlement.state in FINISHED:
        return settlement
    return settlement._replace(
        state=RunState.CANCELLED,
        outcome=RunState.CANCELLED.value,
        extras=Extras(error_code="cancelled", error=why, away=extras.away, unbegun=extras.unbegun),
    )
