"""Messages: what people say in a thread, and who has read it."""

from __future__ import annotations

import asyncio
import base64
import binascii
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rota.doors.commands.fields import Id, Limit, SpaceName, Text, ThreadKey, Word
from rota.doors.commands.finding import space_of
from rota.doors.commands.shapes import Asked, Given
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.errors import Invalid
from rota.flow.define import messages
from rota.model.keys import KeyScope
from rota.model.messages import (
    LARGEST_FILES,
    LONGEST_MESSAGE,
    MOST_FILES,
    MessageState,
    ThreadMessage,
)
from rota.rules.media import LONGEST_NAME
from rota.rules.permission import check_main, check_person

LAST = 2**62
LONGEST_DATA = (LARGEST_FILES + 2) // 3 * 4


class FileSent(Asked):
    """A file that goes with a message."""

    name: Annotated[Word, StringConstraints(max_length=LONGEST_NAME)] = Field(
        description="What it is called, without folders; each name once in a message."
    )
    type: Word | None = Field(
        default=None, description="What it is, such as `image/png`; left out, as its name tells."
    )
    data: Annotated[str, StringConstraints(max_length=LONGEST_DATA)] = Field(
        description="What is in it, in base64.", json_schema_extra={"contentEncoding": "base64"}
    )


class NewMessage(Asked):
    """What is said in a thread."""

    thread_key: ThreadKey
    text: Annotated[Text, StringConstraints(max_length=LONGEST_MESSAGE)] = Field(
        default="", description="May be left out where files say it."
    )
    files: list[FileSent] = Field(
        default_factory=list,
        max_length=MOST_FILES,
        description=f"Files for who reads it, {LARGEST_FILES >> 20} MiB together at most.",
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


class MessagesOf(Asked):
    """Which messages of a thread to list, newest first."""

    thread_key: ThreadKey
    space: SpaceName | None = None
    before: Id | None = None
    limit: Limit = 50


class FileGiven(Given):
    """What is known of a file of a message."""

    name: str
    type: str
    size: int
    sha256: str


class MessageGiven(Given):
    """A message, the run that is queued to read it if it asks for one, and the run that has."""

    id: int
    thread: str
    sender: str
    text: str
    at: datetime
    state: MessageState
    reader: int | None
    run: int | None
    read_at: datetime | None
    files: list[FileGiven]


class Messages(Given):
    """Messages, newest first; `next` continues the list as `before`."""

    messages: list[MessageGiven]
    next: int | None


def message_given(found: ThreadMessage) -> MessageGiven:
    """Return a message as it goes over a wire."""
    return MessageGiven(
        id=found.id,
        thread=found.thread,
        sender=found.sender,
        text=found.body,
        at=found.at,
        state=found.state,
        reader=found.reader,
        run=found.run_id,
        read_at=found.read_at,
        files=[
            FileGiven(name=file.name, type=file.mimetype, size=file.size, sha256=file.sha256)
            for file in found.files
        ],
    )


@command("POST", "/v1/threads/{thread_key}/messages", KeyScope.RUN, status=201)
async def say(office: Office, asked: NewMessage) -> MessageGiven:
    """Say something in a thread: to the run that goes on there if it listens, else to the next."""
    if asked.sender is not None:
        check_main(office.caller)
        check_person(office.caller)
    office.keep(message_given, "say")
    said = await messages.say(
        office.store,
        office.caller,
        office.agents,
        asked.thread_key,
        asked.text,
        space=space_of(office, asked.space),
        sender=asked.sender,
        agent=asked.agent,
        follow_up=asked.delivery_mode == "followUp",
        files=await asyncio.to_thread(_sent, asked.files) if asked.files else (),
    )
    return message_given(said)


def _sent(files: list[FileSent]) -> list[messages.Sending]:
    return [messages.Sending(file.name, file.type, _decoded(file)) for file in files]


def _decoded(file: FileSent) -> bytes:
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
async def list_messages(office: Office, asked: MessagesOf) -> Messages:
    """List what was said in a thread, newest first, and who has read it."""
    space = space_of(office, asked.space)
    await messages.check_thread(office.store, office.caller, asked.thread_key, space)
    before = asked.before or LAST
    found = await office.store.list_messages(asked.thread_key, space, before, asked.limit)
    more = found[-1].id if len(found) == asked.limit else None
    return Messages(messages=[message_given(one) for one in found], next=more)
