"""Threads and their messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from rota.model.ids import Epoch, MessageId, RunId, SpaceId, TaskId, ThreadId


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A conversation, and whose it is.

    `task` is the one that answers there, if one does. With a `trigger`, only what is said with that
    word asks for an answer. `metadata` are what is known of it elsewhere, for example at its
    provider.
    """

    id: ThreadId
    space: str
    key: str
    title: str
    task_id: TaskId | None
    task: str | None
    trigger: str | None
    metadata: dict[str, Any]
    created_at: datetime
    last_message_at: datetime | None
    pending: int


class NewThread(NamedTuple):
    """A thread to be registered: what is not among the changes stays as it is.

    They may say `title`, `task_id`, `trigger` and `facts`; None takes a task or a trigger away.
    """

    space_id: SpaceId
    key: str
    changes: Mapping[str, Any]


class ThreadFilter(NamedTuple):
    """Which threads to list, newest first; `before` continues a list after its last id."""

    space_id: int | None = None
    before: int | None = None
    limit: int = 50


LONGEST_MESSAGE = 16_000
MOST_PENDING = 100
MOST_PENDING_CHARACTERS = 128 * 1024
"""How much may wait in a thread to be read; it fits the prompt of one run."""

MOST_PASSING = MOST_PENDING // 2
MOST_PASSING_CHARACTERS = MOST_PENDING_CHARACTERS // 2
"""How much of what asks for nobody waits for the next reader; older ones are passed over."""

MOST_FILES = 10
LARGEST_FILES = 10 * 1024 * 1024
"""How many files a message may have, and how many bytes they may have together."""
MOST_PENDING_BYTES = 5 * LARGEST_FILES
MOST_PASSING_BYTES = MOST_PENDING_BYTES // 2
"""How many bytes of files may wait in a thread, and how many of them with what asks for nobody."""

READER = MappingProxyType({"messages": True})
"""The payload of a run that was queued to read what was said in its thread."""


def is_to_read(payload: object) -> bool:
    """Whether a run with a payload was queued to read, by a task or by an agent asked once."""
    told = payload.get("payload") if isinstance(payload, dict) else None
    return READER in (payload, told)


class MessageState(StrEnum):
    """Who has a message: nobody yet, a run as its input, or one that was going on already.

    One that is passed over asked for nobody, and newer ones took its place. Unread is shown of one
    whose reader has ended without having read it.
    """

    PENDING = "pending"
    ASSIGNED = "assigned"
    ACKNOWLEDGED = "acknowledged"
    SKIPPED = "skipped"
    UNREAD = "unread"


class MessageFile(NamedTuple):
    """What is known of a file that somebody has sent with a message."""

    name: str
    mimetype: str
    size: int
    sha256: str


class NewFile(NamedTuple):
    """A file that somebody sends with a message."""

    metadata: MessageFile
    content: bytes


class NewMessage(NamedTuple):
    """What somebody says in a thread; a `follow_up` is left to the next run."""

    space_id: SpaceId
    thread: str
    sender: str
    body: str
    follow_up: bool = False
    files: tuple[NewFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMessage:
    """A message as it stands in the store.

    `reader_run_id` is the run that is queued to read it, if it asks for one, `run_id` the one that
    has.
    """

    id: MessageId
    thread: str
    sender: str
    body: str
    at: datetime
    state: MessageState
    reader_run_id: RunId | None
    run_id: RunId | None
    epoch: Epoch | None
    read_at: datetime | None
    files: tuple[MessageFile, ...] = ()
    lost: frozenset[str] = frozenset()
    """The names of those files that were found damaged or gone; nothing is on record of that."""
