"""Artifacts: the files that a run leaves behind for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


class Artifact(NamedTuple):
    """One file; its name is a path below the run's own folder."""

    name: str
    size: int
    modified_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifacts:
    """What a run has left, by name.

    `left_out` counts what is no plain file of its own (links, pipes, names that cannot be shown) or
    may not be looked at; `more` says that there is more than is told.
    """

    files: tuple[Artifact, ...] = ()
    left_out: int = 0
    more: bool = False


class Shelf(NamedTuple):
    """The folder that a run's artifacts are in."""

    space: str
    run_id: int
    modified_at: datetime
    empty: bool
