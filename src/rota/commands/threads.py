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
    UNPRINTABLE,
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
    str,
    TextFormat(rf"[^{UNPRINTABLE}\x20\xa0]{{0,64}}", "use a word without spaces, such as @rota"),
]
Answering = Annotated[
    str, TextFormat(r"([A-Za-z0-9_][A-Za-z0-9_.:-]{0,127})?", "name a task, such as inbox")
]


class ThreadsQuery(RequestModel):
    """Filter for threads."""

    space: SpaceName | None = None
    before: Id | None = None
    limit: Limit = 50


class ThreadSelector(RequestModel):
    """A thread."""

    thread_key: ThreadKey
    space: SpaceName | None = None


class RegisterThread(ThreadSelector):
    """Settings of a thread; fields left out do not change, empty ones are removed."""

    title: Title | None = None
    task: Answering | None = Field(
        default=None, description="Task that answers, an agent with a shared session."
    )
    trigger: Trigger | None = Field(
        default=None, description="Trigger word: only messages that contain it are answered."
    )
    metadata: dict[str, Json] | None = Field(
        default=None, description="Metadata of the thread, for example from its provider."
    )


class ThreadResponse(ResponseModel):
    """A thread; `task` answers its messages, unless it is disabled."""

    id: int
    thread: Annotated[str, From("key")]
    space: str
    title: str
    task: str | None
    trigger: str | None
    metadata: dict[str, Json]
    created_at: datetime
    last_message_at: datetime | None = Field(description="Time of the last message.")
    pending: int = Field(description="Number of unread messages.")


class ThreadList(ResponseModel):
    """Threads, newest first; `next` continues the list as `before`."""

    threads: list[ThreadResponse]
    next: int | None


class CancelledThreadResponse(ResponseModel):
    """Numbers of runs of a thread that were cancelled, and that are stopping."""

    thread: str
    cancelled: int
    stopping: int


@command("GET", "/v1/threads", KeyScope.READ)
async def list_threads(context: RequestContext, request: ThreadsQuery) -> ThreadList:
    """List threads, newest first."""
    space = visible_space(context.caller, request.space)
    owner = None if space is None else (await context.store.read(find_space, space)).id
    query = ThreadFilter(space_id=owner, before=request.before, limit=request.limit)
    found = await context.store.read(store_threads.list_threads, query)
    more = found[-1].id if len(found) == request.limit else None
    return ThreadList(threads=[ThreadResponse.from_model(one) for one in found], next=more)


@command("GET", "/v1/threads/{thread_key}", KeyScope.READ)
async def show_thread(context: RequestContext, request: ThreadSelector) -> ThreadResponse:
    """Return a thread with its title and the task that answers."""
    store, caller = context.store, context.caller
    return ThreadResponse.from_model(
        await threads.find_thread(store, caller, request.thread_key, request.space)
    )


@command("PUT", "/v1/threads/{thread_key}", KeyScope.DEFINE)
async def register_thread(context: RequestContext, request: RegisterThread) -> ThreadResponse:
    """Register a thread before its first message, or change its settings."""
    store, caller, key = context.store, context.caller, request.thread_key
    space = await threads.owner_of(store, caller, key, request.space)
    changes: dict[str, Any] = {}
    if request.title is not None:
        changes["title"] = request.title
    if request.trigger is not None:
        changes["trigger"] = request.trigger or None
    if request.metadata is not None:
        changes["metadata"] = threads.checked_facts(request.metadata)
    if request.task is not None:
        task = await resolve_task(context, request.task, space) if request.task else None
        changes["task_id"] = None if task is None else threads.answering(task).id
    context.record(ThreadResponse.from_model, put_thread)
    return ThreadResponse.from_model(await threads.register(store, caller, key, space, changes))


@command("POST", "/v1/threads/{thread_key}/cancel", KeyScope.RUN)
async def cancel_thread(
    context: RequestContext, request: ThreadSelector
) -> CancelledThreadResponse:
    """Cancel the queued, running and waiting runs of a thread."""
    store, caller = context.store, context.caller
    found = await threads.find_thread(store, caller, request.thread_key, request.space)
    ended, stopping = await threads.cancel_thread(store, caller, found, context.app.chance)
    return CancelledThreadResponse(thread=found.key, cancelled=ended, stopping=stopping)


NEWEST = 2**62
MAX_DATA = (MAX_FILES_BYTES + 2) // 3 * 4


class MessageFileInput(RequestModel):
    """A file of a message."""

    name: Annotated[Word, StringConstraints(max_length=MAX_NAME)] = Field(
        description="File name without folders, unique in the message."
    )
    type: Word | None = Field(
        default=None,
        description="Media type, such as `image/png`; by default derived from the name.",
    )
    data: Annotated[str, StringConstraints(max_length=MAX_DATA)] = Field(
        description="Content in base64.", json_schema_extra={"contentEncoding": "base64"}
    )


class CreateMessage(RequestModel):
    """A message to a thread."""

    thread_key: ThreadKey
    text: Annotated[Text, StringConstraints(max_length=MAX_MESSAGE)] = Field(
        default="", description="Text; may be empty if there are files."
    )
    files: list[MessageFileInput] = Field(
        default_factory=list,
        max_length=MAX_FILES,
        description=f"Files, at most {MAX_FILES_BYTES >> 20} MiB in total.",
    )
    sender: Word | None = Field(
        default=None, description="Author, if not the caller; for `main` only."
    )
    agent: Word | None = Field(
        default=None, description="Agent that answers, if the thread has no task."
    )
    delivery_mode: Literal["steer", "followUp"] = Field(
        default="steer",
        description="`steer`: pass it to the running run if that accepts messages; `followUp`: "
        "leave it to the next run.",
    )
    space: SpaceName | None = None


class MessagesQuery(RequestModel):
    """Filter for messages of a thread."""

    thread_key: ThreadKey
    space: SpaceName | None = None
    before: Id | None = None
    limit: Limit = 50


class MessageFileResponse(ResponseModel):
    """A file of a message, without its content."""

    name: str
    type: Annotated[str, From("mimetype")]
    size: int
    sha256: str


class MessageResponse(ResponseModel):
    """A message, its queued reader run if there is one, and the run that has read it."""

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
async def create_message(context: RequestContext, request: CreateMessage) -> MessageResponse:
    """Send a message to a thread: to its running run if that accepts messages, else to the next."""
    if request.sender is not None:
        check_main(context.caller)
        check_person(context.caller)
    context.record(MessageResponse.from_model, add_message)
    message = await messages.say(
        context.store,
        context.caller,
        context.app.plugins.agents,
        request.thread_key,
        request.text,
        space=resolve_space(context, request.space),
        sender=request.sender,
        agent=request.agent,
        follow_up=request.delivery_mode == "followUp",
        files=await asyncio.to_thread(_attachments, request.files) if request.files else (),
    )
    return MessageResponse.from_model(message)


def _attachments(files: list[MessageFileInput]) -> list[messages.NewAttachment]:
    return [messages.NewAttachment(file.name, file.type, _decoded(file)) for file in files]


def _decoded(file: MessageFileInput) -> bytes:
    """Return the content of a file from canonical base64."""
    try:
        content = binascii.a2b_base64(file.data, strict_mode=True)
    except (binascii.Error, ValueError):
        content = None
    if content is None or not file.data.endswith(_last_four(content)):
        raise Invalid(
            "data", file.data[:20], f"{file.name} is not valid base64: send it without line breaks"
        )
    return content


def _last_four(content: bytes) -> str:
    """Return the last four base64 characters of bytes, to detect other encodings of them."""
    return base64.b64encode(content[(len(content) - 1) // 3 * 3 :]).decode()


@command("GET", "/v1/threads/{thread_key}/messages", KeyScope.READ)
async def list_messages(context: RequestContext, request: MessagesQuery) -> MessageList:
    """List messages of a thread, newest first, with the runs that read them."""
    space = resolve_space(context, request.space)
    await messages.check_thread(context.store, context.caller, request.thread_key, space)
    before = request.before or NEWEST
    found = await context.store.read(
        store_threads.list_messages, request.thread_key, space, before, request.limit
    )
    more = found[-1].id if len(found) == request.limit else None
    return MessageList(messages=[MessageResponse.from_model(one) for one in found], next=more)
