"""What planning asks of a store, over a dialect's transactions."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.ids import ScheduleId
from rota.model.plans import Decide, DueSchedule, Plan, PlanStep, StandingSchedule
from rota.stores.kit import plan, schedules
from rota.stores.kit.dialect import Dialect


class Planning(Dialect):
    """The operations of planning, over a dialect's transactions."""

    async def plan_due(self, decide: Decide, most: int, *, waits: bool = False) -> PlanStep:
        """Apply what is decided about the schedules whose next slot has come."""
        return await self.write(plan.plan_due, decide, most, waits, self.now)

    async def due_schedules(self, most: int, only: ScheduleId | None = None) -> list[DueSchedule]:
        """Return the schedules whose next slot has come, or only one if it has."""
        return await self.read(plan.due, self.now(), most, only)

    async def apply_plans(self, plans: Sequence[Plan]) -> list[bool]:
        """Apply plans whose schedule still stands where it stood."""
        return await self.write(plan.apply_plans, plans, self.now())

    async def promote(self, most: int) -> int:
        """Let delayed runs whose time has come stand in the queue."""
        return await self.write(plan.promote, self.now(), most)

    async def next_due(self) -> int | None:
        """Return when planning is needed next."""
        return await self.read(plan.next_due)

    async def standing_schedules(self, mark: str, after: int, most: int) -> list[StandingSchedule]:
        """Return schedules that wait, by id; none if they are aligned with this mark already."""
        return await self.read(schedules.standing, mark, after, most)

    async def align_schedules(self, plans: Sequence[Plan], mark: str | None) -> list[bool]:
        """Move schedules that still stand where they stood, as a change of their rule would."""
        return await self.write(schedules.align_schedules, plans, mark, self.now())
