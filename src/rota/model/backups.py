"""Backups of a store, and what a restore has done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A file that holds a store as it stood at one instant."""

    path: str
    store: str
    schema: int
    incarnation: str
    at: datetime
    rows: Mapping[str, int]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredSpan:
    """What was decided about the time between a backup and its restore.

    `slots` were passed over, `messages` may have been sent meanwhile, `running` runs are given back
    as lost by the next worker that starts.
    """

    slots: int = 0
    messages: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """A store that was put in place from a backup; `aside` is where the one before it was moved."""

    backup: Backup
    incarnation: str
    passage: RestoredSpan
    aside: str | None = None
