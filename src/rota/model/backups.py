"""Backups of a store, and the results of restores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A backup file: the content of a store at one instant."""

    path: str
    store: str
    schema: int
    incarnation: str
    at: datetime
    rows: Mapping[str, int]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredSpan:
    """What a restore did about the time since its backup.

    `slots` were skipped, `messages` may have been sent meanwhile, `running` runs will be settled as
    lost by the next worker that starts.
    """

    slots: int = 0
    messages: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """A store restored from a backup; `aside` is where the previous one was moved."""

    backup: Backup
    incarnation: str
    passage: RestoredSpan
    aside: str | None = None
