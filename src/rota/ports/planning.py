"""What planning needs of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rota.model.ids import ScheduleId
from rota.model.leaps import Leap, Leaps
from rota.model.plans import (
    Decide,
    DueSchedule,
    Plan,
    PlanStep,
    StandingSchedule,
    StoredSchedule,
)
from rota.ports.timed import Timed


class Planning(Timed, Protocol):
    """Due schedules become plans, and delayed runs stand in the queue."""

    async def plan_due(self, decide: Decide, most: int, *, waits: bool = False) -> PlanStep:
        """Apply what is decided about the schedules whose next slot has come, in one step.

        It ends early when deciding takes long, and does nothing where delayed runs are due if it
        `waits` for them to be promoted.
        """

    async def due_schedules(self, most: int, only: ScheduleId | None = None) -> list[DueSchedule]:
        """Return the schedules whose next slot has come, or only one if it has."""

    async def apply_plans(self, plans: Sequence[Plan]) -> list[bool]:
        """Apply plans whose schedule still stands where it stood."""

    async def promote(self, most: int) -> int:
        """Let delayed runs whose time has come stand in the queue."""

    async def next_due(self) -> int | None:
        """Return when planning is needed next."""

    async def standing_schedules(self, mark: str, after: int, most: int) -> list[StandingSchedule]:
        """Return schedules that wait, by id; none if they are aligned with this mark already."""

    async def align_schedules(self, plans: Sequence[Plan], mark: str | None) -> list[bool]:
        """Move schedules that still stand where they stood, as a change of their rule would.

        A mark says that all of them are now aligned with it.
        """

    async def leaps(self) -> Leaps:
        """Return what is known of the store's clock."""

    async def note_leap(self, leap: Leap) -> bool:
        """Note that the clock has leapt forward, and announce it; false if that is known."""

    async def note_return(self, early: Leap | None) -> bool:
        """Note that the clock went back; announce the span that was planned too early, if new."""

    async def missed_schedules(
        self, leap: Leap, space_id: int | None, task_id: int | None, most: int
    ) -> list[StoredSchedule]:
        """Return schedules of which slots in a span were found too late to run."""
