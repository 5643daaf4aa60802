"""Threads: conversations that are registered, listed, and looked at as a whole."""

from __future__ import annotations

import json

from rota.errors import NotFound
from rota.model.ids import TaskId, ThreadId
from rota.model.instants import from_micros, maybe_instant
from rota.model.runs import OpenRun
from rota.model.threads import NewThread, Thread, ThreadFilter
from rota.stores.kit.dialect import Dialect
from rota.stores.kit.session import Row, Session, one
from rota.stores.kit.tasks import join_thread
from rota.stores.kit.workers import as_open_run

LAST = (1 << 63) - 1


class Threads(Dialect):
    """The operations of threads, over a dialect's transactions."""

    async def put_thread(self, thread: NewThread) -> Thread:
        """Make sure a thread exists, belongs to a space, and is as is said."""
        return await self.write(put_thread, thread, self.now())

    async def get_thread(self, key: str) -> Thread | None:
        """Return a thread; None if there is none."""
        return await self.read(get_thread, key)

    async def list_threads(self, wanted: ThreadFilter) -> list[Thread]:
        """Return threads, newest first."""
        return await self.read(list_threads, wanted)

    async def open_runs_in(self, space_id: int, thread: str, most: int) -> list[OpenRun]:
        """Return the runs of a conversation that have not ended, oldest first."""
        return await self.read(open_runs_in, space_id, thread, most)


def _as_thread(row: Row) -> Thread:
    return Thread(
        id=ThreadId(row[0]),
        space=row[1],
        key=row[2],
        title=row[3],
        task_id=None if row[4] is None else TaskId(row[4]),
        task=row[5],
        trigger=row[6],
        facts=json.loads(row[7]),
        created_at=from_micros(row[8]),
        said_at=maybe_instant(row[9]),
        pending=row[10],
    )


async def put_thread(session: Session, thread: NewThread, now: int) -> Thread:
    """Register a thread, or change what is said of it."""
    await join_thread(session, thread.space_id, thread.key, now)
    changes = dict(thread.changes)
    if "facts" in changes:
        changes["facts"] = json.dumps(changes["facts"], sort_keys=True)
    await session.run("change_thread", key=thread.key, changes=json.dumps(changes))
    found = await get_thread(session, thread.key)
    if found is None:
        raise NotFound("thread", thread.key)
    return found


async def get_thread(session: Session, key: str) -> Thread | None:
    """Return a thread."""
    row = await one(session, "get_thread", key=key)
    return None if row is None else _as_thread(row)


async def list_threads(session: Session, wanted: ThreadFilter) -> list[Thread]:
    """Return threads, newest first."""
    before = LAST if wanted.before is None else wanted.before
    rows = await session.rows(
        "list_threads", space_id=wanted.space_id, before=before, most=wanted.limit
    )
    return [_as_thread(row) for row in rows]


async def open_runs_in(session: Session, space_id: int, thread: str, most: int) -> list[OpenRun]:
    """Return the runs of a conversation that have not ended."""
    rows = await session.rows("open_runs_in", space_id=space_id, thread=thread, most=most)
    return [as_open_run(row) for row in rows]
