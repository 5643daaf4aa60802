"""What people and programs may look at; nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.deliveries import Delivery
from rota.model.events import Event
from rota.model.plans import LedgerRow, StoredSchedule
from rota.model.runs import Attempt, Question, Run
from rota.model.spaces import Limit, Space
from rota.model.tasks import Task
from rota.model.views import (
    DeadView,
    QueueView,
    RunFilter,
    RunView,
    SlotView,
    TaskFilter,
    WorkerView,
)
from rota.stores.kit import views
from rota.stores.kit.dialect import Dialect


class Looking(Dialect):
    """The operations that only read, over a dialect's transactions."""

    async def list_tasks(self, space_id: int | None) -> list[Task]:
        """Return tasks by name."""
        return await self.read(views.list_tasks, space_id)

    async def find_tasks(self, wanted: TaskFilter) -> list[tuple[Task, list[StoredSchedule]]]:
        """Return tasks, newest first, each with its schedules."""
        return await self.read(views.find_tasks, wanted)

    async def list_spaces(self) -> list[Space]:
        """Return every space."""
        return await self.read(views.list_spaces)

    async def used_slots(self, space_id: int | None, most: int) -> list[SlotView]:
        """Return the runs that workers are at, the longest first."""
        return await self.read(views.used_slots, space_id, most)

    async def dead_deliveries(self, space_id: int | None, since: int) -> DeadView | None:
        """Return what could not be sent since an instant; None if all was."""
        return await self.read(views.dead_deliveries, space_id, since)

    async def list_runs(self, wanted: RunFilter) -> list[Run]:
        """Return runs, newest first."""
        return await self.read(views.list_runs, wanted)

    async def get_run(self, run_id: int) -> Run | None:
        """Return a run by id."""
        found = await self.read(views.get_runs, [run_id])
        return found[0] if found else None

    async def view_run(self, run_id: int, output: int, deliveries: int) -> RunView | None:
        """Return a run with everything that belongs to it."""
        return await self.read(views.view_run, run_id, output, deliveries)

    async def list_attempts(self, run_id: int) -> list[Attempt]:
        """Return the ended attempts of a run."""
        return await self.read(views.list_attempts, run_id)

    async def list_questions(self, run_ids: Sequence[int]) -> list[Question]:
        """Return the questions of runs."""
        return await self.read(views.list_questions, list(run_ids))

    async def get_question(self, question_id: int) -> Question | None:
        """Return a question by id."""
        return await self.read(views.get_question, question_id)

    async def list_events(self, after: int, most: int) -> list[Event]:
        """Return events after an id."""
        return await self.read(views.list_events, after, most)

    async def run_events(self, run_id: int) -> list[Event]:
        """Return the events of a run, but for what its programs wrote."""
        return await self.read(views.run_events, run_id)

    async def run_output(self, run_id: int, most: int) -> list[Event]:
        """Return the newest of what the programs of a run wrote, in order."""
        return await self.read(views.run_output, run_id, most)

    async def slot_runs(self, task_id: int, start: int, end: int) -> list[Run]:
        """Return the runs of a task's slots in a span."""
        return await self.read(views.slot_runs, task_id, start, end)

    async def ledger_rows(self, task_id: int, start: int, end: int) -> list[LedgerRow]:
        """Return the ledger rows of a task that touch a span."""
        return await self.read(views.ledger_rows, task_id, start, end)

    async def list_deliveries(self, run_id: int | None, most: int) -> list[Delivery]:
        """Return deliveries, newest first."""
        return await self.read(views.list_deliveries, run_id, most)

    async def list_limits(self) -> list[Limit]:
        """Return every limit."""
        return await self.read(views.list_limits)

    async def count_ahead(self, run_id: int) -> int:
        """Return how many ready runs of its pool and space go before a ready run."""
        return await self.read(views.count_ahead, run_id)

    async def count_runs(self, task_id: int) -> dict[str, int]:
        """Return how many runs a task has had, by state."""
        return await self.read(views.counts, task_id)

    async def list_workers(self) -> list[WorkerView]:
        """Return every known worker."""
        return await self.read(views.list_workers)

    async def view_queue(self, space_id: int | None = None) -> QueueView:
        """Return how full the queue is, as a whole or for one space."""
        return await self.read(views.queue, space_id)
