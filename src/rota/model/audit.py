"""Entries of the audit log, and an attempt as a caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from rota.model.ids import Epoch, RunId, TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAuditEntry:
    """A requested change; `key` and `digest` make a repeated request safe.

    A rehearsal does everything the change does and rolls it back. `attempt` is the run and epoch
    of the attempt that asks, if one does: if it no longer holds its run, nothing changes.
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
    """The recorded answer to a request; without a status it may still be completed."""

    status: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A recorded change: who asked for it, and the answer, if that was recorded."""

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
    """A running attempt as the caller on whose behalf its program makes requests."""

    run_id: RunId
    epoch: Epoch
    task_id: TaskId
    task: str
    thread: str | None
    space: str

    @property
    def name(self) -> str:
        """Name of the attempt as a caller."""
        return f"attempt:{self.run_id}.{self.epoch}"
