"""What people say in a thread: written down, and read by a run that takes part in it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from rota.errors import Invalid, NotFound
from rota.flow.define import adhoc
from rota.flow.define.agents import with_agent
from rota.flow.define.runs import encode_payload, template_for
from rota.model.messages import (
    LARGEST_FILES,
    LONGEST_MESSAGE,
    MOST_FILES,
    READER,
    MessageFile,
    NewFile,
    NewMessage,
    ThreadMessage,
)
from rota.model.runs import RunBatch, Source
from rota.model.tasks import Task, TaskKind
from rota.model.threads import Thread
from rota.model.wishes import SessionContext
from rota.ports.agent import Agents
from rota.ports.store import Store
from rota.rules.addressing import asks
from rota.rules.media import check_apart, file_name, mimetype_of
from rota.rules.permission import Caller, check_claim, check_space, no_thread
from rota.rules.queueing import conversation_of, reading_pool

INSTRUCTIONS = "People have written to you in this conversation. Answer them."


class Sending(NamedTuple):
    """A file as somebody sends it; what it is may be left to its name."""

    name: str
    type: str | None
    content: bytes


async def say(
    store: Store,
    caller: Caller,
    agents: Agents,
    thread: str,
    body: str,
    *,
    space: str,
    sender: str | None = None,
    agent: str | None = None,
    follow_up: bool = False,
    files: Sequence[Sending] = (),
) -> ThreadMessage:
    """Say something in a thread of a space, or send files; a thread that is new comes into being.

    It is read by a run that is going on, if that can and it is no `follow_up`, or else by the next
    one: of the task that answers there, or of an agent that is asked once. In a thread with a
    trigger, what is said without it asks for nobody and is read with the next that does.
    """
    check_space(caller, space)
    if len(body) > LONGEST_MESSAGE or not (body or files):
        raise Invalid("text", body, f"needs 1 to {LONGEST_MESSAGE} characters, or none with files")
    sent = await asyncio.to_thread(_checked, files) if files else ()
    owner = await store.find_space(space)
    found = await store.get_thread(thread)
    if found is None:
        check_claim(caller, space, thread)
    elif found.space != space:
        raise no_thread(space, thread)
    message = NewMessage(owner.id, thread, sender or caller.name, body, follow_up, sent)
    if found is not None and not asks(found.trigger, body):
        return await store.say(message, None)
    task = None if found is None else await _answering(store, found)
    if task is None:
        task = await adhoc.task_for(store, caller, TaskKind.AGENT, space)
        payload = _errand(agents, agent)
    else:
        payload = dict(READER)
    template = template_for(task, Source.ENQUEUE, store.now())._replace(
        thread=thread, lane=conversation_of(task.id, thread), pool=reading_pool(task.policy)
    )
    reader = RunBatch(template=template, payloads=[encode_payload(payload)])
    return await store.say(message, reader)


def _checked(files: Sequence[Sending]) -> tuple[NewFile, ...]:
    """Return files as they are kept, or refuse them."""
    if len(files) > MOST_FILES:
        raise Invalid("files", len(files), f"send at most {MOST_FILES} with a message")
    if (size := sum(len(file.content) for file in files)) > LARGEST_FILES:
        advice = f"the files of a message have {LARGEST_FILES >> 20} MiB together at most"
        raise Invalid("files", f"{size} bytes", advice)
    names = [file_name(file.name) for file in files]
    check_apart(names)
    return tuple(_kept(name, file) for name, file in zip(names, files, strict=True))


def _kept(name: str, file: Sending) -> NewFile:
    content = file.content
    digest = hashlib.sha256(content).hexdigest()
    return NewFile(MessageFile(name, mimetype_of(name, file.type), len(content), digest), content)


def _errand(agents: Agents, agent: str | None) -> dict[str, Any]:
    spec = {"instructions": INSTRUCTIONS, "context": SessionContext.GROUP.value}
    wanted = spec if agent is None else {**spec, "agent": agent}
    return {**with_agent(agents, TaskKind.AGENT, wanted), "payload": dict(READER)}


async def _answering(store: Store, thread: Thread) -> Task | None:
    """Return the task that answers in a thread; its own first, else the oldest that wants to."""
    found = [] if thread.task_id is None else await store.get_tasks([thread.task_id])
    return found[0] if found else None


async def check_thread(store: Store, caller: Caller, thread: str, space: str) -> None:
    """Refuse a thread that is not there for a caller."""
    check_space(caller, space)
    owner = await store.find_space(space)
    if await store.find_thread(thread) != owner.id:
        raise NotFound("thread", thread)
