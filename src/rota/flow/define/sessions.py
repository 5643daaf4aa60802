"""Sessions: whose they are, and which one a thread goes on in."""

from __future__ import annotations

from collections.abc import Sequence

from rota.errors import NotFound
from rota.flow.define.messages import check_thread
from rota.model.sessions import AgentSession, SessionFilter
from rota.ports.store import Store
from rota.rules.permission import Caller, may_act_for

MOST_AGENTS = 100


async def find_session(
    store: Store, caller: Caller, session_id: int, thread: str | None = None
) -> AgentSession:
    """Return a session; one of another space, or not of the thread, is not there at all."""
    found = await store.get_session(session_id)
    if found is None or not may_act_for(caller, found.space):
        raise NotFound("session", session_id, "see `rota session list`")
    if thread is not None and found.thread != thread:
        raise NotFound("session", session_id, f"it does not belong to the thread {thread!r}")
    return found


async def current_of(
    store: Store, caller: Caller, thread: str, space: str, agent: str | None
) -> list[AgentSession]:
    """Return what the next run of a thread would go on in, one session for each agent."""
    await check_thread(store, caller, thread, space)
    wanted = SessionFilter(
        space=space, thread=thread, agent=agent, archived=False, limit=MOST_AGENTS
    )
    return await store.list_sessions(wanted)


async def archive(
    store: Store, caller: Caller, meant: Sequence[AgentSession], title: str | None
) -> list[AgentSession]:
    """Put sessions aside and return them as they are then."""
    for session in meant:
        await store.archive_session(session.id, title)
    return [await find_session(store, caller, session.id) for session in meant]


async def clear(store: Store, meant: Sequence[AgentSession]) -> None:
    """Forget sessions."""
    for session in meant:
        await store.clear_session(session.id)


async def resume(
    store: Store, caller: Caller, meant: AgentSession, title: str | None
) -> AgentSession:
    """Let the next run go on in a session."""
    if not await store.resume_session(meant.id, title):
        raise NotFound("session", meant.id, "it was cleared meanwhile")
    return await find_session(store, caller, meant.id)
