"""Deferred operations and effects, which attempts request while they run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rota.model.ids import Epoch, RunId, SpaceId, TaskId

TALKING = frozenset({"agent", "script"})
"""Routes whose attempts can send requests."""

MAX_DEFERRED = 200
"""Deferred operations of a run."""
MAX_DEFERRED_BYTES = 1024 * 1024
"""Their size together, in bytes."""
MAX_SUBTASKS = 20
"""Subtasks among them."""
MAX_EFFECTS = 1_000
"""Effects of a run."""


class DeferredKind(StrEnum):
    """What is applied when the run succeeds; an open question delays that."""

    STATE = "state"
    FORGET = "forget"
    SEEN = "seen"
    MESSAGE = "message"
    SUBTASK = "subtask"
    QUESTION = "question"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRef:
    """The attempt that makes a request, and the slot for which its effects count."""

    run_id: RunId
    epoch: Epoch
    task_id: TaskId
    space_id: SpaceId
    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredOperation:
    """One validated operation: `data` is JSON for the store; `name` is set for effects."""

    kind: DeferredKind
    data: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """An action done once under a name; `again` marks a repeated request for it."""

    name: str
    result: str
    run_id: RunId
    at: datetime
    again: bool = False


class DeferredResult(StrEnum):
    """What happened to an operation that was to be deferred."""

    DEFERRED = "deferred"
    ALREADY_DEFERRED = "already_deferred"
    ALREADY_DONE = "already_done"
