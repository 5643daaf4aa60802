"""Threads and their messages."""

from __future__ import annotations

import asyncio
import base64
import binascii
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import (
    PLAIN,
    UNSEEN,
    Id,
    Json,
    Limit,
    SpaceName,
    Text,
    TextFormat,
    ThreadKey,
    Word,
    resolve_space,
    resolve_task,
)
from rota.commands.responses import From, RequestModel, ResponseModel
from rota.errors import Invalid
from rota.flow.define import messages, threads
from rota.model.keys import KeyScope
from rota.model.threads import (
    MAX_FILES,
    MAX_FILES_BYTES,
    MAX_MESSAGE,
    MessageState,
    ThreadFilter,
)
from rota.rules.messages import MAX_NAME
from rota.rules.permissions import check_main, check_person, visible_space
from rota.store import threads as store_threads
from rota.store.tasks import find_space
from rota.store.threads import add_message, put_thread

Title = Annotated[str, StringConstraints(max_length=200), PLAIN]
Trigger = Annotated[
    str, TextFormat(rf"[^{UNSEEN}\x20\xa0]{{0,64}}", "write a word without spaces, such as @rota")
]
Answering = Annotated[
    str, TextFormat(r"([A-Za-z0-9_][A-Za-z0-9_.:-]{0,127})?", "name a task, such as inbox")
]


class ThreadsQuery(RequestModel):
    """Which threads to list, newest first."""

    space: SpaceName | None = None
    before: Id | None = None
    limit: Limit = 50


class ThreadSelector(RequestModel):
    """One conversation."""

    thread_key: ThreadKey
    space: SpaceName | None = None


class RegisterThread(ThreadSelector):
    """What is said of a thread; what is left out stays as it is, an empty word takes it away."""

    title: Title | None = None
    task: Answering | None = Field(
        default=None, description="Who answers: an agent with a shared session."
    )
    trigger: Trigger | None = Field(default=None, description="The word that asks for an answer.")
    metadata: dict[str, Json] | None = Field(
        default=None, description="What is known of it elsewhere."
    )


class ThreadResponse(ResponseModel):
    """A conversation; `task` answers there, unless it is disabled."""

    id: int
    thread: Annotated[str, From("key")]
    space: str
    title: str
    task: str | None
    trigger: str | None
    metadata: dict[str, Json]
    created_at: datetime
    last_message_at: datetime | None = Field(description="When something was last said there.")
    pending: int = Field(description="How many messages nobody has read.")


class ThreadList(ResponseModel):
    """Threads, newest first; `next` continues the list as `before`."""

    threads: list[ThreadResponse]
    next: int | None


class CancelledThreadResponse(ResponseModel):
    """How many runs of a conversation have ended, and how many were asked to stop."""

    thread: str
    cancelled: int
    stopping: int


@command("GET", "/v1/threads", KeyScope.READ)
async def list_threads(office: RequestContext, asked: ThreadsQuery) -> ThreadList:
    """List conversations, newest first."""
    space = visible_space(office.caller, asked.space)
    owner = None if space is None else (await office.store.read(find_space, space)).id
    wanted = ThreadFilter(space_id=owner, before=asked.before, limit=asked.limit)
    found = await office.store.read(store_threads.list_threads, wanted)
    more = found[-1].id if len(found) == asked.limit else None
    return ThreadList(threads=[ThreadResponse.from_model(one) for one in found], next=more)


@command("GET", "/v1/threads/{thread_key}", KeyScope.READ)
async def show_thread(office: RequestContext, asked: ThreadSelector) -> ThreadResponse:
    """Return a conversation: what it is called, and who answers there."""
    store, caller = office.store, office.caller
    return ThreadResponse.from_model(
        await threads.find_thread(store, caller, asked.thread_key, asked.space)
    )


@command("PUT", "/v1/threads/{thread_key}", KeyScope.DEFINE)
async def register_thread(office: RequestContext, asked: RegisterThread) -> ThreadResponse:
    """Register a conversation before anybody speaks there, or change what is said of it."""
    store, caller, key = office.store, office.caller, asked.thread_key
    space = await threads.owner_of(store, caller, key, asked.space)
    changes: dict[str, Any] = {}
    if asked.title is not None:
        changes["title"] = asked.title
    if asked.trigger is not None:
        changes["trigger"] = asked.trigger or None
    if asked.metadata is not None:
        changes["metadata"] = threads.checked_facts(asked.metadata)
    if asked.task is not None:
        task = await resolve_task(office, asked.task, space) if asked.task else None
        changes["task_id"] = None if task is None else threads.answering(task).id
    office.keep(ThreadResponse.from_model, put_thread)
    return ThreadResponse.from_model(await threads.register(store, caller, key, space, changes))


@command("POST", "/v1/threads/{thread_key}/cancel", KeyScope.RUN)
async def cancel_thread(office: RequestContext, asked: ThreadSelector) -> CancelledThreadResponse:
    """End what is queued, going on or waiting for an answer in a conversation."""
    store, caller = office.store, office.caller
    found = await threads.find_thread(store, caller, asked.thread_key, asked.space)
    ended, stopping = await threads.cancel_thread(store, caller, found, office.app.chance)
    return CancelledThreadResponse(thread=found.key, cancelled=ended, stopping=stopping)


LAST = 2**62
LONGEST_DATA = (MAX_FILES_BYTES + 2) // 3 * 4


class MessageFileInput(RequestModel):
    """A file that goes with a message."""

    name: Annotated[Word, StringConstraints(max_length=MAX_NAME)] = Field(
        description="What it is called, without folders; each name once in a message."
    )
    type: Word | None = Field(
        default=None, description="What it is, such as `image/png`; left out, as its name tells."
    )
    data: Annotated[str, StringConstraints(max_length=LONGEST_DATA)] = Field(
        description="What is in it, in base64.", json_schema_extra={"contentEncoding": "base64"}
    )


class CreateMessage(RequestModel):
    """What is said in a thread."""

    thread_key: ThreadKey
    text: Annotated[Text, StringConstraints(max_length=MAX_MESSAGE)] = Field(
        default="", description="May be left out where files say it."
    )
    files: list[MessageFileInput] = Field(
        default_factory=list,
        max_length=MAX_FILES,
        description=f"Files for who reads it, {MAX_FILES_BYTES >> 20} MiB together at most.",
    )
    sender: Word | None = Field(
        default=None, description="Who said it, if the caller speaks for others; only for `main`."
    )
    agent: Word | None = Field(
        default=None, description="Who answers, if no task answers in this thread."
    )
    delivery_mode: Literal["steer", "followUp"] = Field(
        default="steer",
        description="`steer`: the run that goes on is told, if it listens. `followUp`: the next.",
    )
    space: SpaceName | None = None


class MessagesQuery(RequestModel):
    """Which messages of a thread to list, newest first."""

    thread_key: ThreadKey
    space: SpaceName | None = None
    before: Id | None = None
    limit: Limit = 50


class MessageFileResponse(ResponseModel):
    """What is known of a file of a message."""

    name: str
    type: Annotated[str, From("mimetype")]
    size: int
    sha256: str


class MessageResponse(ResponseModel):
    """A message, the run that is queued to read it if it asks for one, and the run that has."""

    id: int
    thread: str
    sender: str
    text: Annotated[str, From("body")]
    at: datetime
    state: MessageState
    reader_run: Annotated[int | None, From("reader_run_id")]
    run: Annotated[int | None, From("run_id")]
    read_at: datetime | None
    files: list[MessageFileResponse]


class MessageList(ResponseModel):
    """Messages, newest first; `next` continues the list as `before`."""

    messages: list[MessageResponse]
    next: int | None


@command("POST", "/v1/threads/{thread_key}/messages", KeyScope.RUN, status=201)
async def create_message(office: RequestContext, asked: CreateMessage) -> MessageResponse:
    """Say something in a thread: to the run that goes on there if it listens, else to the next."""
    if asked.sender is not None:
        check_main(office.caller)
        check_person(office.caller)
    office.keep(MessageResponse.from_model, add_message)
    said = await messages.say(
        office.store,
        office.caller,
        office.app.plugins.agents,
        asked.thread_key,
        asked.text,
        space=resolve_space(office, asked.space),
        sender=asked.sender,
        agent=asked.agent,
        follow_up=asked.delivery_mode == "followUp",
        files=await asyncio.to_thread(_sent, asked.files) if asked.files else (),
    )
    return MessageResponse.from_model(said)


def _sent(files: list[MessageFileInput]) -> list[messages.NewAttachment]:
    return [messages.NewAttachment(file.name, file.type, _decoded(file)) for file in files]


def _decoded(file: MessageFileInput) -> bytes:
    """Return what is in a file; there is one way to write it in base64, and no other counts."""
    try:
        content = binascii.a2b_base64(file.data, strict_mode=True)
    except (binascii.Error, ValueError):
        content = None
    if content is None or not file.data.endswith(_last_four(content)):
        raise Invalid("data", file.data[:20], f"{file.name} is not base64: send it without breaks")
    return content


def _last_four(content: bytes) -> str:
    """Return how bytes end in base64: of the last signs some bits count for nothing."""
    return base64.b64encode(content[(len(content) - 1) // 3 * 3 :]).decode()


@command("GET", "/v1/threads/{thread_key}/messages", KeyScope.READ)
async def list_messages(office: RequestContext, asked: MessagesQuery) -> MessageList:
    """List what was said in a thread, newest first, and who has read it."""
    space = resolve_space(office, asked.space)
    await messages.check_thread(office.store, office.caller, asked.thread_key, space)
    before = asked.before or LAST
    found = await office.store.read(
        store_threads.list_messages, asked.thread_key, space, before, asked.limit
    )
    more = found[-1].id if len(found) == asked.limit else None
    return MessageList(messages=[MessageResponse.from_model(one) for one in found], next=more)
