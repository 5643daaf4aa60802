"""Entries of the audit log; an attempt as a caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from rota.model.ids import Epoch, RunId, TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAuditEntry:
    """A change somebody asks for; `key` and `digest` let the same request come twice.

    A rehearsal goes as far as the change itself, and takes it back. `attempt` is the run and epoch
    of the attempt that asks, if one does: nothing is changed for one that is over.
    """

    caller: str
    space: str
    command: str
    subject: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    digest: str | None = None
    rehearsal: bool = False
    attempt: tuple[int, int] | None = None


class KeptAnswer(NamedTuple):
    """What a request is answered, kept with its change; without a status it may be completed."""

    status: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A change that was made, who asked for it, and what they were answered if that was kept."""

    id: int
    at: datetime
    caller: str
    space: str
    command: str
    subject: dict[str, Any]
    key: str | None
    digest: str | None
    status: int | None
    answer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptIdentity:
    """A run that is going on, by the epoch that holds it: in whose name its program asks."""

    run_id: RunId
    epoch: Epoch
    task_id: TaskId
    task: str
    thread: str | None
    space: str

    @property
    def name(self) -> str:
        """What the attempt is called wherever callers are told apart."""
        return f"attempt:{self.run_id}.{self.epoch}"
