"""Messages: what people say in a thread, and who has read it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rota.doors.commands.fields import Id, Limit, SpaceName, Text, ThreadKey, Word
from rota.doors.commands.finding import space_of
from rota.doors.commands.shapes import Asked, Given
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.flow.define import messages
from rota.model.keys import KeyScope
from rota.model.messages import LONGEST_MESSAGE, MessageState, ThreadMessage
from rota.rules.permission import check_main, check_person

LAST = 2**62


class NewMessage(Asked):
    """What is said in a thread."""

    thread_key: ThreadKey
    text: Annotated[Text, StringConstraints(min_length=1, max_length=LONGEST_MESSAGE)]
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
    )


@command("POST", "/v1/threads/{thread_key}/messages", KeyScope.RUN, status=201)
async def say(office: Office, asked: NewMessage) -> MessageGiven:
    """Say something in a thread: to the run that goes on there if it listens, else to the next."""
    if asked.sender is not None:
        check_main(office.caller)
        check_person(office.caller)
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
    )
    return message_given(said)


@command("GET", "/v1/threads/{thread_key}/messages", KeyScope.READ)
async def list_messages(office: Office, asked: MessagesOf) -> Messages:
    """List what was said in a thread, newest first, and who has read it."""
    space = space_of(office, asked.space)
    await messages.check_thread(office.store, office.caller, asked.thread_key, space)
    before = asked.before or LAST
    found = await office.store.list_messages(asked.thread_key, space, before, asked.limit)
    more = found[-1].id if len(found) == asked.limit else None
    return Messages(messages=[message_given(one) for one in found], next=more)
