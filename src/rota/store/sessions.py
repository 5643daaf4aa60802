"""Sessions of agents."""

from __future__ import annotations

from rota.model.attempts import AgentSessionRef
from rota.model.ids import Epoch, RunId, SessionId
from rota.model.instants import from_micros, maybe_instant
from rota.model.sessions import MAX_PROMPT_TEXT, AgentSession, Exchange, SessionFilter, title_of
from rota.store.transactions import Row, Transaction, one

LAST = (1 << 63) - 1
MOST_SEARCHED = 2_000


async def find_session(
    tx: Transaction, run_id: int, agent: str, *, shared: bool, own: bool
) -> AgentSessionRef | None:
    """Return the session that a run goes on in."""
    for query, wanted in (("own_session", own), ("current_session", shared)):
        row = await one(tx, query, run_id=run_id, agent=agent) if wanted else None
        if row is not None:
            name, used, made, cached = row
            return AgentSessionRef(agent, name, used, made, cached, shared=shared)
    return None


async def keep_session(
    tx: Transaction, run_id: int, epoch: int, space_id: int, kept: AgentSessionRef, now: int
) -> None:
    """Record what an agent told of its session.

    One that was archived or cleared meanwhile stays so, also when its agent goes on in it.
    """
    of_run = {"run_id": run_id, "agent": kept.agent}
    told = {
        "name": kept.id, "input": kept.input, "output": kept.output, "cached": kept.cached,
    }  # fmt: skip
    known = await one(tx, "named_session", **of_run, name=kept.id, was=kept.was)
    said = await one(tx, "prompt_of_attempt", run_id=run_id, epoch=epoch)
    words = "" if said is None else said[0]
    if known is None:
        await tx.rows("lock_space", id=space_id)
        if kept.shared:
            await tx.run("archive_current", **of_run, now=now)
        title = title_of(words)
        made = await tx.rows(
            "insert_session", **of_run, **told, title=title, shared=kept.shared, now=now
        )
        if not made:
            return
        known = (made[0][0], False)
    else:
        await tx.run("use_session", id=known[0], **told, now=now)
    if not known[1]:
        exchange = {"run_id": run_id, "epoch": epoch, "session_id": known[0], "prompt_text": words}
        await tx.run("insert_exchange", **exchange, now=now)


async def forget_session(tx: Transaction, run_id: int, lost: AgentSessionRef, now: int) -> None:
    """Put a session aside that its agent does not know any more."""
    await tx.run("archive_unknown_session", run_id=run_id, agent=lost.agent, name=lost.id, now=now)


def _as_session(row: Row) -> AgentSession:
    return AgentSession(
        id=SessionId(row[0]),
        space=row[1],
        thread=row[2] or None,
        task=row[3],
        agent=row[4],
        name=row[5],
        title=row[6],
        input=row[7],
        output=row[8],
        cached=row[9],
        runs=row[10],
        started_at=from_micros(row[11]),
        used_at=from_micros(row[12]),
        archived_at=maybe_instant(row[13]),
    )


def _as_exchange(row: Row) -> Exchange:
    session_id, run_id, epoch, task, at, *rest = row
    ids = SessionId(session_id), RunId(run_id), Epoch(epoch)
    return Exchange(*ids, task, from_micros(at), *rest)


async def list_sessions(tx: Transaction, wanted: SessionFilter) -> list[AgentSession]:
    """Return sessions, newest first."""
    rows = await tx.rows(
        "list_sessions",
        space=wanted.space,
        thread=wanted.thread,
        agent=wanted.agent,
        archived=wanted.archived,
        before=LAST if wanted.before is None else wanted.before,
        most=wanted.limit,
    )
    return [_as_session(row) for row in rows]


async def get_session(tx: Transaction, session_id: int) -> AgentSession | None:
    """Return a session."""
    row = await one(tx, "get_session", id=session_id)
    return None if row is None else _as_session(row)


async def session_history(
    tx: Transaction, session_id: int, before: int, most: int
) -> list[Exchange]:
    """Return what was said in a session, newest first."""
    rows = await tx.rows("session_history", id=session_id, before=before, most=most)
    return [_as_exchange(row) for row in rows]


async def search_sessions(
    tx: Transaction, space: str | None, thread: str | None, words: str, most: int
) -> list[Exchange]:
    """Return where words stand in the newest of what was said and answered."""
    rows = await tx.rows(
        "search_sessions",
        space=space,
        thread=thread,
        words=f"%{_escaped(words)}%",
        most=most,
        looked=MOST_SEARCHED,
        longest=MAX_PROMPT_TEXT,
    )
    return [_as_exchange(row) for row in rows]


def _escaped(words: str) -> str:
    for sign in "\\%_":
        words = words.replace(sign, f"\\{sign}")
    return words


async def archive_session(tx: Transaction, session_id: int, title: str | None) -> bool:
    """Put a session aside."""
    return bool(await tx.rows("archive_session", id=session_id, title=title, now=tx.now()))


async def clear_session(tx: Transaction, session_id: int) -> bool:
    """Forget a session, but for its name, so that a run that goes on in it keeps nothing new."""
    if not await tx.rows("clear_session", id=session_id, now=tx.now()):
        return False
    await tx.run("forget_exchanges", id=session_id)
    return True


async def resume_session(tx: Transaction, session_id: int, title: str | None) -> bool:
    """Let the next run go on in a session."""
    now = tx.now()
    found = await tx.rows("archive_session", id=session_id, title=None, now=now)
    if not found:
        return False
    await tx.rows("lock_space", id=found[0][0])
    await tx.run("archive_other_session", id=session_id, title=title, now=now)
    return bool(await tx.rows("unarchive_session", id=session_id))
