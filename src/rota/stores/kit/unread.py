"""Unread: what was given to an attempt that never began is there to be read again.

It goes with the attempt's settlement. What an earlier attempt has read, which did begin, stays
with its run.
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.model.messages import MOST_PENDING, MOST_PENDING_BYTES
from rota.model.settlements import Settlement
from rota.model.states import FINISHED
from rota.stores.kit.session import MESSAGES, Session, one

NEWEST = 3 * MOST_PENDING
"""Among how many of a thread's newest messages a reader is looked for."""


async def give_back(session: Session, moved: Iterable[Settlement]) -> None:
    """Let what attempts were given that never began wait for its reader, or for the next one.

    A run that is tried again reads it itself; else whoever waits in the thread to read does.
    """
    for s in moved:
        if not s.extras.unbegun:
            continue
        attempt = {"run_id": s.run_id, "epoch": s.epoch}
        row = await one(session, "thread_given_to", **attempt)
        if row is None:
            continue
        thread = row[0]
        await session.rows("lock_thread", key=thread)
        await session.run("give_back_messages", **attempt)
        readers = await session.rows("thread_readers", thread=thread, most=NEWEST)
        if readers and s.state in FINISHED:
            room = {"most": MOST_PENDING, "bytes": MOST_PENDING_BYTES}
            await session.run("turn_messages", thread=thread, reader=readers[-1][0], **room)
        session.wake(MESSAGES)
