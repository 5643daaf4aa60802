"""Pausing everything: one fact that every claim and every plan looks at in its own transaction."""

from __future__ import annotations

import json

from rota.model.events import EventName
from rota.model.pauses import Pause, Pauses, read_pauses, write_pauses
from rota.stores.kit.dialect import Dialect
from rota.stores.kit.enqueue import RUNS
from rota.stores.kit.session import EVENTS, Rows, Session

GOING_ON = "paused"
"""The fact that says since when everything is paused; there is none while it is not."""
ENDED = "pauses"
"""The fact that holds the pauses of which slots may not have been planned yet."""
SCHEDULES = "schedules"


class Pausing(Dialect):
    """The operations that pause everything, over a dialect's transactions."""

    async def pause(self, who: str) -> Pauses:
        """Let nothing new begin, in every process, until it is resumed."""
        return await self.write(pause, who, self.now())

    async def resume(self, who: str) -> Pauses:
        """Let work begin again, from now on."""
        return await self.write(resume, who, self.now())

    async def pauses(self) -> Pauses:
        """Return the pauses that may still matter."""
        return await self.read(pauses)


async def pause(session: Session, who: str, now: int) -> Pauses:
    """Pause everything; a claim that is under way ends first, and none begins after."""
    await session.enter_claim()
    standing = await pauses(session)
    if standing and standing[-1].until is None:
        return standing
    await session.run("note_fact", name=GOING_ON, value=str(now))
    await _announce(session, EventName.PAUSED, who, now)
    return (*standing, Pause(now, None))


async def resume(session: Session, who: str, now: int) -> Pauses:
    """End the pause; what nobody has planned yet of it stays known as paused."""
    await session.enter_claim()
    standing = await pauses(session)
    if not standing or standing[-1].until is not None:
        return standing
    *ended, going_on = standing
    (oldest,) = (await session.rows("oldest_cursor"))[0]
    kept = [p for p in ended if oldest is not None and (p.until or now) > oldest]
    kept.append(Pause(going_on.since, max(now, going_on.since)))
    await session.run("note_fact", name=ENDED, value=write_pauses(kept))
    await session.run("drop_fact", name=GOING_ON)
    await _announce(session, EventName.RESUMED, who, now)
    session.wake(RUNS)
    session.wake(SCHEDULES)
    return tuple(kept)


async def pauses(session: Session) -> Pauses:
    """Return the pauses that may still matter."""
    ((ended, going_on),) = await session.rows("read_pauses")
    return read_pauses(ended, going_on)


async def _announce(session: Session, name: EventName, who: str, now: int) -> None:
    event: dict[str, object] = {"name": name.value, "data": json.dumps({"by": who})}
    await session.run("insert_events", rows=Rows([event]), now=now)
    session.wake(EVENTS)
