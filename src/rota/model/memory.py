"""What a task remembers between its runs: values under keys, and items it has seen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A value that a task keeps; `value` is JSON text."""

    key: str
    value: str
    updated_at: datetime
    updated_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An item of a provider that a task has come across, and how often; `data` is JSON text."""

    provider: str
    item: str
    data: str
    first_at: datetime
    last_at: datetime
    count: int
