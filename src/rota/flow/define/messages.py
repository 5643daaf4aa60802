"""Store messages and queue their reader runs; sessions of a thread."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from rota.errors import Invalid, NotFound
from rota.flow.define import tasks
from rota.flow.define.policies import resolve_agent
from rota.flow.define.runs import encode_payload, make_template
from rota.model.agents import SessionMode
from rota.model.runs import RunBatch, RunSource
from rota.model.sessions import AgentSession, SessionFilter
from rota.model.tasks import Task, TaskKind
from rota.model.threads import (
    MAX_FILES,
    MAX_FILES_BYTES,
    MAX_MESSAGE,
    READER,
    MessageFile,
    NewFile,
    NewMessage,
    Thread,
    ThreadMessage,
)
from rota.ports.agent import AgentRegistry
from rota.rules.messages import asks_for_answer, check_distinct_names, file_name, mimetype_of
from rota.rules.permissions import Caller, check_claim, check_space, may_act_for, thread_not_found
from rota.rules.queue import conversation_of, reading_pool
from rota.store.sessions import (
    archive_session,
    clear_session,
    get_session,
    list_sessions,
    resume_session,
)
from rota.store.store import Store
from rota.store.tasks import find_space, get_tasks
from rota.store.threads import add_message, find_thread_space, get_thread

INSTRUCTIONS = "People have written to you in this conversation. Answer them."


class NewAttachment(NamedTuple):
    """A file as it was sent; its media type may be derived from its name."""

    name: str
    type: str | None
    content: bytes


async def say(
    store: Store,
    caller: Caller,
    agents: AgentRegistry,
    thread: str,
    body: str,
    *,
    space: str,
    sender: str | None = None,
    agent: str | None = None,
    follow_up: bool = False,
    files: Sequence[NewAttachment] = (),
) -> ThreadMessage:
    """Store a message or files in a thread of a space, and queue its reader run.

    A running run reads it if its program accepts messages and it is no `follow_up`; otherwise the
    next run reads it, of the task that answers in the thread or of a one-off agent. In a thread
    with a trigger word, a message without it waits for the next one that has it.
    """
    check_space(caller, space)
    if len(body) > MAX_MESSAGE or not (body or files):
        raise Invalid("text", body, f"needs 1 to {MAX_MESSAGE} characters, or none with files")
    sent = await asyncio.to_thread(_checked, files) if files else ()
    owner = await store.read(find_space, space)
    found = await store.read(get_thread, thread)
    if found is None:
        check_claim(caller, space, thread)
    elif found.space != space:
        raise thread_not_found(space, thread)
    message = NewMessage(owner.id, thread, sender or caller.name, body, follow_up, sent)
    if found is not None and not asks_for_answer(found.trigger, body):
        return await store.write(add_message, message, None)
    task = None if found is None else await _answering(store, found)
    if task is None:
        task = await tasks.task_for(store, caller, TaskKind.AGENT, space)
        payload = _errand(agents, agent)
    else:
        payload = dict(READER)
    template = make_template(task, RunSource.ENQUEUE, store.now())._replace(
        thread=thread, lane=conversation_of(task.id, thread), pool=reading_pool(task.policy)
    )
    reader = RunBatch(template=template, payloads=[encode_payload(payload)])
    return await store.write(add_message, message, reader)


def _checked(files: Sequence[NewAttachment]) -> tuple[NewFile, ...]:
    """Return validated files."""
    if len(files) > MAX_FILES:
        raise Invalid("files", len(files), f"send at most {MAX_FILES} with a message")
    if (size := sum(len(file.content) for file in files)) > MAX_FILES_BYTES:
        advice = f"the files of a message have {MAX_FILES_BYTES >> 20} MiB together at most"
        raise Invalid("files", f"{size} bytes", advice)
    names = [file_name(file.name) for file in files]
    check_distinct_names(names)
    return tuple(_kept(name, file) for name, file in zip(names, files, strict=True))


def _kept(name: str, file: NewAttachment) -> NewFile:
    content = file.content
    digest = hashlib.sha256(content).hexdigest()
    return NewFile(MessageFile(name, mimetype_of(name, file.type), len(content), digest), content)


def _errand(agents: AgentRegistry, agent: str | None) -> dict[str, Any]:
    spec = {"instructions": INSTRUCTIONS, "session": SessionMode.SHARED.value}
    wanted = spec if agent is None else {**spec, "agent": agent}
    return {**resolve_agent(agents, TaskKind.AGENT, wanted), "payload": dict(READER)}


async def _answering(store: Store, thread: Thread) -> Task | None:
    """Return the task that answers in a thread: its own, or the oldest with `answers`."""
    found = [] if thread.task_id is None else await store.read(get_tasks, [thread.task_id])
    return found[0] if found else None


async def check_thread(store: Store, caller: Caller, thread: str, space: str) -> None:
    """Raise NotFound for a thread that the caller may not see."""
    check_space(caller, space)
    owner = await store.read(find_space, space)
    if await store.read(find_thread_space, thread) != owner.id:
        raise NotFound("thread", thread)


MOST_AGENTS = 100


async def find_session(
    store: Store, caller: Caller, session_id: int, thread: str | None = None
) -> AgentSession:
    """Return a session; one of another space or thread is not found."""
    found = await store.read(get_session, session_id)
    if found is None or not may_act_for(caller, found.space):
        raise NotFound("session", session_id, "see `rota session list`")
    if thread is not None and found.thread != thread:
        raise NotFound("session", session_id, f"it does not belong to the thread {thread!r}")
    return found


async def current_of(
    store: Store, caller: Caller, thread: str, space: str, agent: str | None
) -> list[AgentSession]:
    """Return the current sessions of a thread, one for each agent."""
    await check_thread(store, caller, thread, space)
    wanted = SessionFilter(
        space=space, thread=thread, agent=agent, archived=False, limit=MOST_AGENTS
    )
    return await store.read(list_sessions, wanted)


async def archive(
    store: Store, caller: Caller, meant: Sequence[AgentSession], title: str | None
) -> list[AgentSession]:
    """Archive sessions and return them."""
    for session in meant:
        await store.write(archive_session, session.id, title)
    return [await find_session(store, caller, session.id) for session in meant]


async def clear(store: Store, meant: Sequence[AgentSession]) -> None:
    """Clear sessions."""
    for session in meant:
        await store.write(clear_session, session.id)


async def resume(
    store: Store, caller: Caller, meant: AgentSession, title: str | None
) -> AgentSession:
    """Make a session the current one."""
    if not await store.write(resume_session, meant.id, title):
        raise NotFound("session", meant.id, "it was cleared meanwhile")
    return await find_session(store, caller, meant.id)
