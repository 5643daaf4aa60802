"""Machines: how those were doing on which work was done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from rota.model.beats import Heartbeat

KEEP_READINGS = timedelta(days=7)


class Load(NamedTuple):
    """How busy a machine is, as a whole; what it does not tell is None."""

    cpu_percent: float | None = None
    memory_bytes: int | None = None
    memory_total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What ran in a home at a moment, and how its machine was doing."""

    home: str
    host: str
    at: datetime
    running: int
    agents: int
    panes: int
    spaces: int
    load: Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A running attempt, and what was last heard of it."""

    task: str
    space: str
    executor: str
    """Where its program runs; empty for a function of this process."""
    started_at: datetime
    heartbeat: Heartbeat
