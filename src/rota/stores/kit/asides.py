"""Asides: what goes on record beside the end of an attempt, in the same transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rota.model.asides import NOTHING
from rota.model.checks import Mark
from rota.model.instants import from_micros
from rota.model.settlements import Settlement
from rota.model.states import RunState
from rota.stores.kit.enqueue import LATER, enqueue
from rota.stores.kit.session import Rows, Session

GATE = "gate"
"""The key under which a task remembers what its gate wants to find again."""


def marks_of(settlement: Settlement) -> dict[str, object]:
    """Return what is written on a run that has ended."""
    aside = settlement.extras.aside or NOTHING
    return {
        "checked": None if aside.checked is None else aside.checked.value,
        "mark": None if aside.mark is None else aside.mark.value,
    }


def told_of(settlement: Settlement) -> dict[str, object]:
    """Return what is told of the end of a run beside its state."""
    found = {name: mark for name, mark in marks_of(settlement).items() if mark is not None}
    aside = settlement.extras.aside or NOTHING
    if aside.next_check is not None and settlement.state is RunState.SUCCEEDED:
        at = aside.next_check.template.available_at
        found["next_check"] = None if at is None else from_micros(at).isoformat()
    return found


async def keep(session: Session, settlements: Sequence[Settlement], now: int) -> None:
    """Count quiet runs, remember what gates said, and queue what is to be looked at again."""
    quiet: Counter[int] = Counter()
    for s in settlements:
        aside = s.extras.aside
        if aside is None or s.state is not RunState.SUCCEEDED:
            continue
        if aside.mark is Mark.QUIET:
            quiet[s.task_id] += 1
        if aside.remembered is not None:
            await session.run(
                "put_state",
                task_id=s.task_id,
                key=GATE,
                value=aside.remembered,
                who=f"run {s.run_id}",
                now=now,
            )
        if aside.next_check is not None:
            at = aside.next_check.template.available_at
            if await session.rows("move_next_check", task_id=s.task_id, at=at):
                session.wake(LATER)
            else:
                await enqueue(session, [aside.next_check], now)
    if quiet:
        rows = Rows({"task_id": task_id, "add": add} for task_id, add in sorted(quiet.items()))
        await session.run("count_quiet", rows=rows)
