"""What an attempt asks for while it runs: deferred operations and effects."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rota.model.ids import Epoch, RunId, SpaceId, TaskId

TALKING = frozenset({"agent", "script"})
"""The routes whose attempts have a way to say something."""

MOST_DEFERRED = 200
"""How many operations a run may defer."""
MOST_DEFERRED_BYTES = 1024 * 1024
"""How many bytes they may have together."""
MOST_SUBTASKS = 20
"""How many of them may be subtasks."""
MOST_EFFECTS = 1_000
"""How many effects a run may have."""


class DeferredKind(StrEnum):
    """What is done at success; a question is what keeps it from being one."""

    STATE = "state"
    FORGET = "forget"
    SEEN = "seen"
    MESSAGE = "message"
    SUBTASK = "subtask"
    QUESTION = "question"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRef:
    """The attempt that says something, and the slot for which its effects count."""

    run_id: RunId
    epoch: Epoch
    task_id: TaskId
    space_id: SpaceId
    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredOperation:
    """One operation, decided already: `data` is JSON for the store; an effect has a name."""

    kind: DeferredKind
    data: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Something done once; `again` says that it had been done before it was asked for now."""

    name: str
    result: str
    run_id: RunId
    at: datetime
    again: bool = False


class DeferredResult(StrEnum):
    """What became of an operation that was to be deferred."""

    DEFERRED = "deferred"
    ALREADY_DEFERRED = "already_deferred"
    ALREADY_DONE = "already_done"
