"""Threads: conversations that are registered, listed, and cancelled as a whole."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from rota.doors.commands.fields import (
    PLAIN,
    UNSEEN,
    Id,
    Json,
    Limit,
    SpaceName,
    Spelled,
    ThreadKey,
)
from rota.doors.commands.finding import task_of
from rota.doors.commands.shapes import Asked, Given
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.flow.define import threads
from rota.model.keys import KeyScope
from rota.model.threads import Thread, ThreadFilter
from rota.rules.permission import seen_space

Title = Annotated[str, StringConstraints(max_length=200), PLAIN]
Trigger = Annotated[
    str, Spelled(rf"[^{UNSEEN}\x20\xa0]{{0,64}}", "write a word without spaces, such as @rota")
]
Answering = Annotated[
    str, Spelled(r"([A-Za-z0-9_][A-Za-z0-9_.:-]{0,127})?", "name a task, such as inbox")
]


class ThreadsWanted(Asked):
    """Which threads to list, newest first."""

    space: SpaceName | None = None
    before: Id | None = None
    limit: Limit = 50


class OneThread(Asked):
    """One conversation."""

    thread_key: ThreadKey
    space: SpaceName | None = None


class NewThread(OneThread):
    """What is said of a thread; what is left out stays as it is, an empty word takes it away."""

    title: Title | None = None
    task: Answering | None = Field(
        default=None, description="Who answers: an agent with the context `group`."
    )
    trigger: Trigger | None = Field(default=None, description="The word that asks for an answer.")
    facts: dict[str, Json] | None = Field(
        default=None, description="What is known of it elsewhere."
    )


class ThreadGiven(Given):
    """A conversation; `task` answers there, unless it is disabled."""

    id: int
    thread: str
    space: str
    title: str
    task: str | None
    trigger: str | None
    facts: dict[str, Json]
    created_at: datetime
    said_at: datetime | None = Field(description="When something was last said there.")
    pending: int = Field(description="How many messages nobody has read.")


class Threads(Given):
    """Threads, newest first; `next` continues the list as `before`."""

    threads: list[ThreadGiven]
    next: int | None


class ThreadCancelled(Given):
    """How many runs of a conversation have ended, and how many were asked to stop."""

    thread: str
    cancelled: int
    stopping: int


def thread_given(found: Thread) -> ThreadGiven:
    """Return a thread as it goes over a wire."""
    return ThreadGiven(
        id=found.id,
        thread=found.key,
        space=found.space,
        title=found.title,
        task=found.task,
        trigger=found.trigger,
        facts=found.facts,
        created_at=found.created_at,
        said_at=found.said_at,
        pending=found.pending,
    )


@command("GET", "/v1/threads", KeyScope.READ)
async def list_threads(office: Office, asked: ThreadsWanted) -> Threads:
    """List conversations, newest first."""
    space = seen_space(office.caller, asked.space)
    owner = None if space is None else (await office.store.find_space(space)).id
    wanted = ThreadFilter(space_id=owner, before=asked.before, limit=asked.limit)
    found = await office.store.list_threads(wanted)
    more = found[-1].id if len(found) == asked.limit else None
    return Threads(threads=[thread_given(one) for one in found], next=more)


@command("GET", "/v1/threads/{thread_key}", KeyScope.READ)
async def show_thread(office: Office, asked: OneThread) -> ThreadGiven:
    """Return a conversation: what it is called, and who answers there."""
    store, caller = office.store, office.caller
    return thread_given(await threads.find_thread(store, caller, asked.thread_key, asked.space))


@command("PUT", "/v1/threads/{thread_key}", KeyScope.DEFINE)
async def register_thread(office: Office, asked: NewThread) -> ThreadGiven:
    """Register a conversation before anybody speaks there, or change what is said of it."""
    store, caller, key = office.store, office.caller, asked.thread_key
    space = await threads.owner_of(store, caller, key, asked.space)
    changes: dict[str, Any] = {}
    if asked.title is not None:
        changes["title"] = asked.title
    if asked.trigger is not None:
        changes["trigger"] = asked.trigger or None
    if asked.facts is not None:
        changes["facts"] = threads.checked_facts(asked.facts)
    if asked.task is not None:
        task = await task_of(office, asked.task, space) if asked.task else None
        changes["task_id"] = None if task is None else threads.answering(task).id
    office.keep(thread_given, "put_thread")
    return thread_given(await threads.register(store, caller, key, space, changes))


@command("POST", "/v1/threads/{thread_key}/cancel", KeyScope.RUN)
async def cancel_thread(office: Office, asked: OneThread) -> ThreadCancelled:
    """End what is queued, going on or waiting for an answer in a conversation."""
    store, caller = office.store, office.caller
    found = await threads.find_thread(store, caller, asked.thread_key, asked.space)
    ended, stopping = await threads.cancel_thread(store, caller, found, office.chance)
    return ThreadCancelled(thread=found.key, cancelled=ended, stopping=stopping)
