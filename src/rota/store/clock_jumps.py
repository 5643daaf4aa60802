"""Jumps of the clock on record; each is announced once."""

from __future__ import annotations

import json

from rota.model.clock_jumps import Leap, Leaps
from rota.model.events import EventName
from rota.model.instants import from_micros
from rota.model.schedules import StoredSchedule
from rota.store.tasks import as_schedule
from rota.store.transactions import EVENTS, Dialect, QueryRows, Transaction

FORWARD = "clock_leapt"
"""The fact that holds the last leap forward, until the clock goes back."""
RETURNED = "clock_returned"
"""The fact that holds the last span whose slots were planned too early."""


class ClockJumps(Dialect):
    """The operations about leaps of the clock, over a dialect's transactions."""

    async def leaps(self) -> Leaps:
        """Return what is known of the store's clock."""
        return await self.read(leaps)

    async def note_leap(self, leap: Leap) -> bool:
        """Note that the clock has leapt forward; false if that is known."""
        return await self.write(note_leap, leap, self.now())

    async def note_return(self, early: Leap | None) -> bool:
        """Note that the clock went back, and the span that was planned too early, if any is new."""
        return await self.write(note_return, early, self.now())

    async def missed_schedules(
        self, leap: Leap, space_id: int | None, task_id: int | None, most: int
    ) -> list[StoredSchedule]:
        """Return schedules of which slots in a span were found too late to run."""
        return await self.read(missed_schedules, leap, space_id, task_id, most)


async def leaps(session: Transaction) -> Leaps:
    """Return what is known of the store's clock."""
    ((forward, returned, planned),) = await session.rows("read_leaps")
    return Leaps(_leap(forward), _leap(returned), planned)


async def note_leap(session: Transaction, leap: Leap, now: int) -> bool:
    """Note that the clock has leapt forward; whoever tells of the same span saw the same leap."""
    await session.enter_claim()
    known = (await leaps(session)).forward
    same = known is not None and leap.start < known.end and known.start < leap.end
    if known is not None and same:
        leap = Leap(min(known.start, leap.start), max(known.end, leap.end))
    if leap != known:
        await session.run("note_fact", name=FORWARD, value=json.dumps(leap))
    if not same:
        await _announce(session, EventName.CLOCK_LEAPT, leap, now)
    return not same


async def note_return(session: Transaction, early: Leap | None, now: int) -> bool:
    """Note that the clock went back, and the span that was planned too early, if any is new."""
    await session.enter_claim()
    known = await leaps(session)
    if known.forward is not None and now < known.forward.end:
        await session.run("drop_fact", name=FORWARD)
    if early is None or (known.returned is not None and early.end <= known.returned.end):
        return False
    await session.run("note_fact", name=RETURNED, value=json.dumps(early))
    await _announce(session, EventName.CLOCK_RETURNED, early, now)
    return True


async def missed_schedules(
    session: Transaction, leap: Leap, space_id: int | None, task_id: int | None, most: int
) -> list[StoredSchedule]:
    """Return schedules of which slots in a span were found too late to run."""
    wanted = {"start": leap.start, "end": leap.end, "space_id": space_id, "task_id": task_id}
    return [as_schedule(row) for row in await session.rows("missed_schedules", **wanted, most=most)]


def _leap(text: str | None) -> Leap | None:
    return None if text is None else Leap(*json.loads(text))


async def _announce(session: Transaction, name: EventName, leap: Leap, now: int) -> None:
    start, end = (from_micros(at).isoformat() for at in leap)
    event: dict[str, object] = {"name": name.value, "data": json.dumps({"from": start, "to": end})}
    await session.run("insert_events", rows=QueryRows([event]), now=now)
    session.wake(EVENTS)
