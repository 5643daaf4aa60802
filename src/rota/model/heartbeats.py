"""Heartbeats of attempts, and samples of machines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from rota.model.ids import Epoch, RunId

LONGEST_LINE = 300
LONGEST_PANE = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSample:
    """What can be seen of an attempt just now.

    `alive` is by process number and start time together, or, of a function in this process, by its
    task. What is not known, or costs too much to find out, is None. `heartbeat` is when the keeper
    last said something itself, in boot time; two equal ones mean that it said nothing between them.
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
    """The newest sample; `missed_reason` says why two heartbeats were missed, if they were."""

    sample: AttemptSample
    at: datetime
    missed_reason: str | None = None


class MissedHeartbeat(NamedTuple):
    """A running attempt of which nobody has told for two heartbeats, the last time at `at`.

    `trusted` says that its worker still renews its lease, `kept` that a keeper may carry it on.
    """

    run_id: RunId
    epoch: Epoch
    at: int
    trusted: bool
    kept: bool


KEEP_READINGS = timedelta(days=7)


class MachineLoad(NamedTuple):
    """How busy a machine is, as a whole; what it does not tell is None."""

    cpu_percent: float | None = None
    memory_bytes: int | None = None
    memory_total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSample:
    """What ran in a home at a moment, and how its machine was doing."""

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
    """A running attempt, and what was last heard of it."""

    task: str
    space: str
    executor: str
    """Where its program runs; empty for a function of this process."""
    started_at: datetime
    heartbeat: Heartbeat
