"""Notices: what people are told of work that needs them, and where a space wants to be told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rota.model.ids import SpaceId


class Level(StrEnum):
    """How much something matters, from the priority of a run or task."""

    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Where a space wants its notices: of runs and tasks whose priority is at least `least`.

    Results of tasks that were created without a place of their own go to the `usual` one.
    """

    space_id: SpaceId
    space: str
    channel: str
    target: str
    least: int
    usual: bool
    updated_at: datetime

    @property
    def to(self) -> str:
        """Where it leads, as people write it."""
        return f"{self.channel}:{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What is to be told of a run that moves on, and where beside the preferences of its space.

    One that is `asking` is worth something only while its run waits.
    """

    text: str
    to: str | None = None
    asking: bool = False
