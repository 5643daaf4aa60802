"""Threads: conversations, what is known of them, and who answers there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from rota.model.ids import SpaceId, TaskId, ThreadId


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A conversation, and whose it is.

    `task` is the one that answers there, if one does. With a `trigger`, only what is said with that
    word asks for an answer. `facts` are what is known of it elsewhere, for example at its provider.
    """

    id: ThreadId
    space: str
    key: str
    title: str
    task_id: TaskId | None
    task: str | None
    trigger: str | None
    facts: dict[str, Any]
    created_at: datetime
    said_at: datetime | None
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
