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
    """A conversation.

    `task` is the task that answers in it, if any. With a `trigger`, only messages that begin with
    that word ask for an answer. `metadata` holds metadata, for example from its
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
    """A thread to be registered; fields not among `changes` stay as they are.

    `changes` may hold `title`, `task_id`, `trigger` and `facts`; None removes a task or a trigger.
    """

    space_id: SpaceId
    key: str
    changes: Mapping[str, Any]


class ThreadFilter(NamedTuple):
    """Which threads to list, newest first; `before` continues a list after its last id."""

    space_id: int | None = None
    before: int | None = None
    limit: int = 50


MAX_MESSAGE = 16_000
MAX_PENDING = 100
MAX_PENDING_CHARACTERS = 128 * 1024
"""Unread messages of a thread; together they fit the prompt of one run."""

MAX_PASSING = MAX_PENDING // 2
MAX_PASSING_CHARACTERS = MAX_PENDING_CHARACTERS // 2
"""Unread messages that ask for no answer; older ones are skipped."""

MAX_FILES = 10
MAX_FILES_BYTES = 10 * 1024 * 1024
"""Files of a message, and their bytes together."""
MAX_PENDING_BYTES = 5 * MAX_FILES_BYTES
MAX_PASSING_BYTES = MAX_PENDING_BYTES // 2
"""Bytes of files waiting in a thread, and the part of it with messages that ask no answer."""

READER = MappingProxyType({"messages": True})
"""Payload of a run that was queued to read the messages of its thread."""


def is_to_read(payload: object) -> bool:
    """Whether a payload is that of a reader run, of a task or of a one-off agent."""
    told = payload.get("payload") if isinstance(payload, dict) else None
    return READER in (payload, told)


class MessageState(StrEnum):
    """What happened to a message.

    `pending`: no run has it. `assigned`: part of a run's prompt. `acknowledged`: accepted by a run
    that was already running. `skipped`: it asked for no answer and newer ones replaced it. `unread`
    is shown, not stored: its reader run ended without reading it.
    """

    PENDING = "pending"
    ASSIGNED = "assigned"
    ACKNOWLEDGED = "acknowledged"
    SKIPPED = "skipped"
    UNREAD = "unread"


class MessageFile(NamedTuple):
    """Name, type, size and hash of a file in a message."""

    name: str
    mimetype: str
    size: int
    sha256: str


class NewFile(NamedTuple):
    """A file sent with a message."""

    metadata: MessageFile
    content: bytes


class NewMessage(NamedTuple):
    """A message to be written to a thread; a `follow_up` is left to the next run."""

    space_id: SpaceId
    thread: str
    sender: str
    body: str
    follow_up: bool = False
    files: tuple[NewFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMessage:
    """A message as stored.

    `reader_run_id` is the run queued to read it, if it asks for an answer; `run_id` is the run
    that read it.
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
    """Names of its files that were found damaged or missing; this is not stored."""
