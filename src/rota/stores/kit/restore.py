"""What happens to rows that come out of a backup: time has passed, and nobody knows what in it."""

from __future__ import annotations

import json

from rota.model.backups import Backup, Passage
from rota.model.events import EventName
from rota.model.instants import to_micros
from rota.model.plans import Decide
from rota.stores.kit import heads, plan
from rota.stores.kit.live import PRUNED
from rota.stores.kit.session import Rows, Session

MOST = 1_000
DOUBT = "it may have been sent between the backup and the restore"
MILLION = 1_000_000
LIKELY_A_SECOND = 1_000

FLEETING = frozenset({"facts", "workers", "heads", "pings", "homes", "kept", "beats"})
"""Tables that are not taken over: leases and caches of another life, and facts one by one."""

RESTORED = "restored"
"""The fact that says when that was last: what was running before may have been begun."""

JUMPING = ("runs", "questions", "deliveries", "events")
"""Tables whose ids people and channels may have seen since the backup."""


async def come_back(
    session: Session, backup: Backup, pass_over: Decide | None, now: int
) -> Passage:
    """Settle what the time since the backup means, and rebuild what claiming caches.

    Without `pass_over` nothing has happened since: slots are left to the catch-up policy, and only
    messages that were being sent are in doubt.
    """
    slots = 0 if pass_over is None else await _pass_over(session, pass_over, now)
    states = ["sending"] if pass_over is None else ["pending", "sending"]
    messages = await _doubt(session, states, now)
    # Positions of the other life mean nothing in this one; its cursors are told apart anyway.
    await session.run("note_fact", name=PRUNED, value="0.0")
    await session.run("note_fact", name=RESTORED, value=str(now))
    running = (await session.rows("count_running"))[0][0]
    await heads.heal(session, now)
    data = {"from": backup.incarnation, "at": backup.at.isoformat(), "slots": slots}
    event: dict[str, object] = {"name": EventName.RESTORED.value, "data": json.dumps(data)}
    await session.run("insert_events", rows=Rows([event]), now=now)
    return Passage(slots=slots, messages=messages, running=running)


async def _pass_over(session: Session, pass_over: Decide, now: int) -> int:
    slots = 0
    while due := await plan.due(session, now, MOST, None):
        plans = [pass_over(schedule, now) for schedule in due]
        await plan.apply_plans(session, plans, now)
        slots += sum(entry.count for p in plans for entry in p.ledger)
    return slots


async def _doubt(session: Session, states: list[str], now: int) -> int:
    rows = await session.rows("doubt_deliveries", states=states, error=DOUBT)
    events = Rows(
        {
            "name": EventName.DELIVERY_UNKNOWN.value,
            "run_id": row[1],
            "data": json.dumps({"delivery_id": row[0], "channel": row[2]}),
        }
        for row in rows
    )
    if events:
        await session.run("insert_events", rows=events, now=now)
    return len(events)


def next_id(newest: int, backup: Backup, now: int) -> int:
    """Return an id that is above all that can have been given out since the backup.

    Ids that people, questions and dedupe keys have seen must not come to stand for something else.
    """
    seconds = max(0, now - to_micros(backup.at)) // 1_000_000
    likely = newest + max(MILLION, seconds * LIKELY_A_SECOND)
    return -(-likely // MILLION) * MILLION
