"""Heartbeats of attempts, and samples of machines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from rota.model.ids import Epoch, RunId

MAX_LINE = 300
MAX_PANE = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSample:
    """A sample of a running attempt.

    `alive` is decided by process id and start time together, or for a function in this process by
    its task. A value is None if it is unknown or too expensive to find out. `heartbeat` is when the
    keeper last reported, in boot time; if it does not change, the keeper reported nothing.
    """

    run_id: RunId
    epoch: Epoch
    alive: bool = True
    state: str = "running"
    pid: int | None = None
    processes: int | None = None
    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    output_at: datetime | None = None
    last_line: str | None = None
    pane: str | None = None
    heartbeat: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The newest recorded sample; `missed_reason` is why two heartbeats were missed, if so."""

    sample: AttemptSample
    at: datetime
    missed_reason: str | None = None


class MissedHeartbeat(NamedTuple):
    """A running attempt that missed two heartbeats; the last one was at `at`.

    `trusted`: its worker still renews its lease. `kept`: it has a keeper, so it can be adopted.
    """

    run_id: RunId
    epoch: Epoch
    at: int
    trusted: bool
    kept: bool


KEEP_READINGS = timedelta(days=7)


class MachineLoad(NamedTuple):
    """Load of a machine as a whole; None where the system does not report it."""

    cpu_percent: float | None = None
    memory_bytes: int | None = None
    memory_total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSample:
    """What ran in a home at one moment, with the load of its machine."""

    home: str
    host: str
    at: datetime
    running: int
    agents: int
    panes: int
    spaces: int
    load: MachineLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHeartbeat:
    """A running attempt with its newest heartbeat."""

    task: str
    space: str
    executor: str
    """Executor of its program; empty for a function in this process."""
    started_at: datetime
    heartbeat: Heartbeat
