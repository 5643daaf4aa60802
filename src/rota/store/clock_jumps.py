"""Jumps of the clock on record; each is announced once."""

from __future__ import annotations

import json

from rota.model.clock_jumps import Leap, Leaps
from rota.model.events import EventName
from rota.model.instants import from_micros
from rota.model.schedules import StoredSchedule
from rota.store.tasks import as_schedule
from rota.store.transactions import EVENTS, QueryRows, Transaction

FORWARD = "clock_leapt"
"""The fact that holds the last leap forward, until the clock goes back."""
RETURNED = "clock_returned"
"""The fact that holds the last span whose slots were planned too early."""


async def get_clock_jumps(tx: Transaction) -> Leaps:
    """Return what is known of the store's clock."""
    ((forward, returned, planned),) = await tx.rows("read_leaps")
    return Leaps(_leap(forward), _leap(returned), planned)


async def record_clock_jump(tx: Transaction, leap: Leap) -> bool:
    """Note that the clock has leapt forward; whoever tells of the same span saw the same leap."""
    await tx.enter_claim()
    known = (await get_clock_jumps(tx)).forward
    same = known is not None and leap.start < known.end and known.start < leap.end
    if known is not None and same:
        leap = Leap(min(known.start, leap.start), max(known.end, leap.end))
    if leap != known:
        await tx.run("note_fact", name=FORWARD, value=json.dumps(leap))
    if not same:
        await _announce(tx, EventName.CLOCK_LEAPT, leap, tx.now())
    return not same


async def record_clock_return(tx: Transaction, early: Leap | None) -> bool:
    """Note that the clock went back, and the span that was planned too early, if any is new."""
    now = tx.now()
    await tx.enter_claim()
    known = await get_clock_jumps(tx)
    if known.forward is not None and now < known.forward.end:
        await tx.run("drop_fact", name=FORWARD)
    if early is None or (known.returned is not None and early.end <= known.returned.end):
        return False
    await tx.run("note_fact", name=RETURNED, value=json.dumps(early))
    await _announce(tx, EventName.CLOCK_RETURNED, early, now)
    return True


async def missed_schedules(
    tx: Transaction, leap: Leap, space_id: int | None, task_id: int | None, most: int
) -> list[StoredSchedule]:
    """Return schedules of which slots in a span were found too late to run."""
    wanted = {"start": leap.start, "end": leap.end, "space_id": space_id, "task_id": task_id}
    return [as_schedule(row) for row in await tx.rows("missed_schedules", **wanted, most=most)]


def _leap(text: str | None) -> Leap | None:
    return None if text is None else Leap(*json.loads(text))


async def _announce(tx: Transaction, name: EventName, leap: Leap, now: int) -> None:
    start, end = (from_micros(at).isoformat() for at in leap)
    event: dict[str, object] = {"name": name.value, "data": json.dumps({"from": start, "to": end})}
    await tx.run("insert_events", rows=QueryRows([event]), now=now)
    tx.wake(EVENTS)
