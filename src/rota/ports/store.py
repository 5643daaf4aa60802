"""The store, cut by who reads it.

Every method is one transaction: it has happened whole when it returns, or not at all. Every method
may raise Unavailable when the database cannot be reached; after that it is unknown whether a write
happened. Decisions are made before: a store is told what to do, and only checks that the rows it
was decided for still stand as they stood.

Instants that enter a decision are whole microseconds of the store's own clock; what people see are
datetimes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from rota.model.backups import Backup, Restored
from rota.model.deeds import Deed
from rota.model.deliveries import Delivery, DeliveryState
from rota.model.events import Event
from rota.model.ids import RunId
from rota.model.instants import ALWAYS
from rota.model.plans import Decide, LedgerRow, StoredSchedule
from rota.model.problems import Problem
from rota.model.requests import KeptAnswer, NewRequest
from rota.model.runs import Attempt, Enqueued, OpenRun, Question, Run, RunBatch
from rota.model.settlements import Settlement
from rota.model.spaces import Limit, Role, Space
from rota.model.tasks import NewTask, Task
from rota.model.views import (
    Claimed,
    DeadView,
    QueueView,
    Renewal,
    RunFilter,
    RunView,
    SlotView,
    TaskFilter,
    WorkerView,
)
from rota.ports.beating import Beating
from rota.ports.conversing import Conversing
from rota.ports.entrance import Entrance
from rota.ports.examiner import Examiner
from rota.ports.keeping import Keeping
from rota.ports.live import Live, Pausing
from rota.ports.machines import Machines
from rota.ports.noticing import Noticing
from rota.ports.planning import Planning
from rota.ports.spending import Spending
from rota.ports.talking import Talking
from rota.ports.threads import Threads
from rota.ports.timed import Timed

Looker = TypeVar("Looker", bound=Examiner)

Replying: TypeAlias = Callable[["Store", Any], Awaitable[KeptAnswer | None]]
"""Makes the answer to a request of what its change has come to, looking at the store meanwhile."""


class Definitions(Timed, Protocol):
    """What define needs: tasks, schedules, spaces, limits, and runs to be queued."""

    async def add_space(self, name: str, role: Role, timezone: str) -> Space:
        """Create a space, or return the one of that name."""

    async def set_space(self, name: str, timezone: str) -> Space:
        """Change a space's time zone."""

    async def find_space(self, name: str) -> Space:
        """Return a space by name."""

    async def add_thread(self, space_id: int, key: str) -> None:
        """Make sure a thread exists."""

    async def put_task(
        self,
        task: NewTask,
        after_id: int | None,
        schedule: dict[str, Any] | None = None,
        dropped: StoredSchedule | None = None,
    ) -> Task:
        """Create a task or bring the one of its name up to date.

        A schedule that is given comes with it, and one that is to be dropped goes with it.
        """

    async def find_task(self, space_id: int, name: str) -> Task | None:
        """Return a task by name."""

    async def task_named(self, space: str, name: str) -> Task | None:
        """Return a task by its space's name and its own."""

    async def get_tasks(self, ids: Sequence[int]) -> list[Task]:
        """Return tasks by id."""

    async def enable_task(self, task: Task) -> None:
        """Let a task's slots run again, from now on."""

    async def disable_task(
        self, task: Task, reason: str, until: int | None, ends: Sequence[Settlement]
    ) -> bool:
        """Stop a task's slots from running, and end the queued ones, in one step.

        False, and nothing happens, if slots have been queued that are not to be ended.
        """

    async def delete_task(
        self, task: Task, ends: Sequence[Settlement], stops: Sequence[RunId]
    ) -> bool:
        """Take a task out of use, end what is queued and stop what runs, in one step.

        False, and nothing happens, if runs have been queued that are not to be ended.
        """

    async def put_schedule(self, record: dict[str, Any]) -> StoredSchedule:
        """Create a schedule or replace the one of its name; Stale if something else stood there."""

    async def find_schedule(self, task_id: int, name: str) -> StoredSchedule | None:
        """Return a schedule of a task by name."""

    async def list_schedules(self, task_ids: Sequence[int]) -> list[StoredSchedule]:
        """Return the schedules of tasks."""

    async def drop_schedule(self, schedule: StoredSchedule) -> None:
        """Take a schedule out of use; Stale if it stands no longer as it stood."""

    async def set_limits(self, wanted: Sequence[Limit]) -> None:
        """Replace limits by scope and key."""

    async def enqueue(self, batches: Sequence[RunBatch]) -> list[list[Enqueued]]:
        """Queue runs; concurrent callers share a commit."""

    async def enqueue_within(
        self, connection: object, batches: Sequence[RunBatch]
    ) -> list[list[Enqueued]]:
        """Queue runs inside a transaction of the caller's own, where the driver allows that."""

    async def request_cancel(self, run_ids: Sequence[RunId], why: str) -> None:
        """Ask whoever works on running runs to stop."""


class Queue(Timed, Protocol):
    """What claiming and settling need; every write carries the epoch it was decided for."""

    incarnation: str
    """The id this database was given when it was made or restored."""

    async def claim(
        self, worker: str, pools: Sequence[str], routes: Sequence[str], want: int
    ) -> Claimed:
        """Lease ready runs to a worker."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Apply settlements; concurrent callers share a commit."""

    async def approve(self, answer: Settlement, deed: Deed) -> str | None:
        """Settle an answer and do what it approves; return what came of it, None if too late."""

    async def successors(self, task_ids: Sequence[int]) -> dict[int, list[Task]]:
        """Return the tasks declared to run after each of these."""

    async def open_runs(self, ids: Sequence[int]) -> list[OpenRun]:
        """Return what is needed to decide about runs."""

    async def queued_runs_of(self, task_id: int, *, planned_only: bool) -> list[OpenRun]:
        """Return the queued and waiting runs of a task."""

    async def running_runs_of(self, task_id: int) -> list[RunId]:
        """Return the running runs of a task."""

    async def mark_stuck(self, run_id: int, epoch: int) -> None:
        """Note that a run is past its timeout and cannot be stopped."""


class Workers(Timed, Protocol):
    """What keeps workers honest: leases, fencing, rescue, expiry, pruning."""

    async def register(self, record: dict[str, Any]) -> None:
        """Make a worker known."""

    async def renew(self, worker: str, until: int) -> Renewal:
        """Extend a worker's lease unless it was fenced."""

    async def retire(self, worker: str) -> None:
        """Forget a worker that holds nothing."""

    async def fence(self, now: int | None = None, watched: int = ALWAYS) -> int:
        """Fence workers whose lease has run out by an instant, or else by now.

        `watched` is for how many microseconds this time was seen to go evenly: a longer lease is
        left alone, because a clock that leaps ends leases whose holders still work.
        """

    async def fence_others(self, worker: str) -> int:
        """Fence every other worker; only for the holder of the instance lock."""

    async def lost_runs(self, most: int, now: int | None = None) -> list[OpenRun]:
        """Return running runs whose worker is gone.

        What is kept is lost only if its home's promise has ended by an instant, or else by now.
        """

    async def expired_runs(self, most: int) -> list[OpenRun]:
        """Return queued and waiting runs whose time has run out."""

    async def heal(self) -> int:
        """Rebuild what claiming caches."""

    async def prune(self, before: int, most: int) -> int:
        """Delete old events and the runs whose end they tell."""


class Outbox(Timed, Protocol):
    """What delivering needs."""

    async def take_deliveries(self, worker: str, most: int) -> list[Delivery]:
        """Take pending deliveries for sending."""

    async def mark_delivery(
        self, delivery: Delivery, state: DeliveryState, error: str | None, available_at: int
    ) -> bool:
        """Record what became of one try."""

    async def held_deliveries(self, worker: str, most: int) -> list[Delivery]:
        """Return deliveries a worker has taken and not marked."""

    async def orphaned_deliveries(self, most: int) -> list[Delivery]:
        """Return deliveries whose postman vanished while sending."""

    async def next_delivery(self) -> int | None:
        """Return when the next delivery may be sent."""


class Views(Timed, Protocol):
    """What people and programs may look at; nothing here writes."""

    async def list_tasks(self, space_id: int | None) -> list[Task]:
        """Return tasks by name."""

    async def find_tasks(self, wanted: TaskFilter) -> list[tuple[Task, list[StoredSchedule]]]:
        """Return tasks, newest first, each with its schedules in the order they were made."""

    async def list_spaces(self) -> list[Space]:
        """Return every space."""

    async def used_slots(self, space_id: int | None, most: int) -> list[SlotView]:
        """Return the runs that workers are at, of one space or of all, the longest first."""

    async def dead_deliveries(self, space_id: int | None, since: int) -> DeadView | None:
        """Return what could not be sent since an instant, in one space or all; None if all was."""

    async def list_runs(self, wanted: RunFilter) -> list[Run]:
        """Return runs, newest first."""

    async def get_run(self, run_id: int) -> Run | None:
        """Return a run by id."""

    async def view_run(self, run_id: int, output: int, deliveries: int) -> RunView | None:
        """Return a run with all of it as of one instant; at most so many of two kinds of it."""

    async def list_attempts(self, run_id: int) -> list[Attempt]:
        """Return the ended attempts of a run."""

    async def list_questions(self, run_ids: Sequence[int]) -> list[Question]:
        """Return the questions of runs."""

    async def get_question(self, question_id: int) -> Question | None:
        """Return a question by id."""

    async def list_events(self, after: int, most: int) -> list[Event]:
        """Return events after an id."""

    async def run_events(self, run_id: int) -> list[Event]:
        """Return the events of a run, but for what its programs wrote."""

    async def run_output(self, run_id: int, most: int) -> list[Event]:
        """Return the newest of what the programs of a run wrote, in order."""

    async def slot_runs(self, task_id: int, start: int, end: int) -> list[Run]:
        """Return the runs of a task's slots in a span."""

    async def ledger_rows(self, task_id: int, start: int, end: int) -> list[LedgerRow]:
        """Return the ledger rows of a task that touch a span."""

    async def list_deliveries(self, run_id: int | None, most: int) -> list[Delivery]:
        """Return deliveries, newest first."""

    async def list_limits(self) -> list[Limit]:
        """Return every limit."""

    async def count_ahead(self, run_id: int) -> int:
        """Return how many ready runs of its pool and space go before a ready run."""

    async def count_runs(self, task_id: int) -> dict[str, int]:
        """Return how many runs a task has had, by state."""

    async def list_workers(self) -> list[WorkerView]:
        """Return every known worker."""

    async def view_queue(self, space_id: int | None = None) -> QueueView:
        """Return how full the queue is, as a whole or for one space."""

    async def examine(self, make: Callable[[], Looker]) -> Looker:
        """Show every row to an examiner, in pages, on one consistent view, and return it.

        A look that the database cuts short begins anew, with a new examiner.
        """


class Backups(Protocol):
    """What outlives a database: files that hold it as it stood at one instant."""

    async def backup(self, path: str, *, force: bool = False) -> Backup:
        """Write a consistent backup of an open store, while others go on.

        The file is there whole or not at all. Raises Conflict where one stands already.
        """

    async def restore(
        self,
        path: str,
        pass_over: Decide | None,
        *,
        force: bool = False,
    ) -> Restored:
        """Put a backup in the place of a store that is not open, whole or not at all.

        The store gets a new incarnation, and no lease from before it counts. `pass_over` decides
        about the slots since the backup; without it nothing has happened since. Raises Busy while
        somebody works on the store, Conflict where there is something to lose, and Invalid for a
        backup that is not whole.
        """


class Store(
    Definitions,
    Planning,
    Queue,
    Workers,
    Outbox,
    Views,
    Entrance,
    Live,
    Pausing,
    Keeping,
    Beating,
    Machines,
    Talking,
    Spending,
    Conversing,
    Noticing,
    Threads,
    Backups,
    Protocol,
):
    """All of it, as wiring hands it out."""

    path: str

    elsewhere: bool
    """Whether another process carries out the store's work."""

    async def problems(self) -> list[Problem]:
        """Return what keeps this store from writing, as far as it knows; nothing is tried."""

    def behalf(self, request: NewRequest) -> Behalf:
        """Return this store for one request.

        The request is written down in the transaction of its first change; Conflict if its caller
        has made another one under the same key.
        """

    async def take_roles(self) -> bool:
        """Make sure this process may plan and work; true if it is now the only one.

        Raises Busy where only one process may, and another one does.
        """

    def roles_taken(self) -> bool | None:
        """Return whether some process has the roles; None where only leases can tell."""

    def again(self) -> Store | None:
        """Return a second store on the same database, or None where a lock makes it needless."""

    async def open(self) -> None:
        """Connect, and bring the schema up to date; nothing happens where it is open."""

    async def look(self) -> None:
        """Connect for reading alone: nothing is created, brought up to date or written.

        Raises Unavailable where there is nothing to look at, and SchemaMismatch where it is not of
        this Rota's schema.
        """

    async def close(self) -> None:
        """Finish what was begun and let go of the database."""


class Behalf(Store, Protocol):
    """A store for one request."""

    request_id: int | None
    """The request's own id, once something was changed for it."""

    answered: bool
    """Whether the answer is kept, and complete."""

    def keep_answer(self, changes: Collection[str], answering: Replying) -> None:
        """Keep the answer in the transaction of the change, which is the first of these operations.

        What is written before it, such as slots that were due, is no part of the request. A fault
        that the answering raises takes the change back.
        """
