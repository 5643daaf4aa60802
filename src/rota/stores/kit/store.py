"""The store: every operation of the ports, on whatever dialect carries it out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Self, TypeVar, cast

from rota.errors import Unavailable
from rota.model.backups import Backup, Restored
from rota.model.deliveries import Delivery, DeliveryState
from rota.model.ids import RunId
from rota.model.instants import ALWAYS
from rota.model.plans import Decide, StoredSchedule
from rota.model.problems import UNWRITABLE, Problem
from rota.model.requests import KeptAnswer, NewRequest
from rota.model.runs import Enqueued, OpenRun, RunBatch
from rota.model.settlements import Settlement
from rota.model.spaces import Limit, Role, Space
from rota.model.tasks import NewTask, Task
from rota.model.views import Claimed, Renewal, WorkerView
from rota.ports.store import Looker, Replying
from rota.stores.kit import (
    claim,
    combined,
    heads,
    limits,
    outbox,
    schedules,
    settle,
    stopping,
    tasks,
    verify,
    views,
    workers,
)
from rota.stores.kit.answering import Answering
from rota.stores.kit.beating import Beating
from rota.stores.kit.conversing import Conversing
from rota.stores.kit.entrance import Entrance
from rota.stores.kit.joining import Joiner
from rota.stores.kit.keeping import Keeping
from rota.stores.kit.last_write import LastWrite
from rota.stores.kit.leaps import LeapNotes
from rota.stores.kit.live import Live
from rota.stores.kit.looking import Looking
from rota.stores.kit.machines import Machines
from rota.stores.kit.noticing import Noticing
from rota.stores.kit.pausing import Pausing
from rota.stores.kit.planning import Planning
from rota.stores.kit.requests import Untouched, fenced, may_share, stamped, stamped_all
from rota.stores.kit.saying import Saying
from rota.stores.kit.session import Session
from rota.stores.kit.spending import Spending
from rota.stores.kit.talking import Talking
from rota.stores.kit.threads import Threads

Result = TypeVar("Result")

MOST_JOINED = 2_000
UNWRITTEN = "the last write to the database was refused, and none was done since"


class SqlStore(
    Entrance, Planning, Looking, Live, Pausing, Keeping, Beating,
    Machines, Conversing, Saying, Threads, Talking, Spending, Noticing,
    Answering, LeapNotes,
):  # fmt: skip
    """Everything the ports ask of a store, over a dialect's transactions."""

    path = ""

    elsewhere = False

    incarnation = ""

    def __init__(self) -> None:
        super().__init__()
        self.writes = LastWrite()
        self._known: claim.Known = {}
        self.mains: set[int] = set()
        """The spaces that are known to have no quota."""
        self._enqueues: Joiner[RunBatch, list[Enqueued]] = Joiner(
            self._enqueue, MOST_JOINED, writers=2 if self.elsewhere else 1
        )
        self._requested: Joiner[tuple[NewRequest, RunBatch], list[Enqueued]] = Joiner(
            self._enqueue_asked, MOST_JOINED, writers=2 if self.elsewhere else 1
        )
        self._settles: Joiner[Settlement, bool] = Joiner(self._settle, MOST_JOINED)

    async def take_roles(self) -> bool:
        """Make sure this process may plan and work; true if it is now the only one."""
        return False

    def roles_taken(self) -> bool | None:
        """Return whether some process has the roles; None where only leases can tell."""
        return None

    async def problems(self) -> list[Problem]:
        """Return what keeps this store from writing, as far as it knows; nothing is tried."""
        refused = self.writes.refused
        return [] if refused is None else [Problem(UNWRITABLE, UNWRITTEN, refused)]

    def behalf(self, request: NewRequest) -> Behalf:
        """Return this store for one request, which is written down with its first change."""
        return Behalf(self, request)

    def again(self) -> Self | None:
        """Return a second store on the same database, or None where a lock makes it needless."""
        return None

    # define

    async def add_space(self, name: str, role: Role, timezone: str) -> Space:
        """Create a space, or return the one of that name."""
        return await self.write(tasks.add_space, name, role, timezone, self.now())

    async def set_space(self, name: str, timezone: str) -> Space:
        """Change a space's time zone."""
        return await self.write(tasks.set_space, name, timezone)

    async def find_space(self, name: str) -> Space:
        """Return a space by name."""
        return await self.read(tasks.find_space, name)

    async def add_thread(self, space_id: int, key: str) -> None:
        """Make sure a thread exists."""
        await self.write(tasks.add_thread, space_id, key, self.now())

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
        return await self.write(schedules.put_task, task, after_id, schedule, dropped, self.now())

    async def find_task(self, space_id: int, name: str) -> Task | None:
        """Return a task by name."""
        return await self.read(tasks.find_task, space_id, name)

    async def task_named(self, space: str, name: str) -> Task | None:
        """Return a task by its space's name and its own."""
        return await self.read(tasks.task_named, space, name)

    async def get_tasks(self, ids: Sequence[int]) -> list[Task]:
        """Return tasks by id."""
        return await self.read(tasks.get_tasks, list(ids))

    async def enable_task(self, task: Task) -> None:
        """Let a task's slots run again, from now on."""
        await self.write(tasks.enable_task, task, self.now())

    async def disable_task(
        self, task: Task, reason: str, until: int | None, ends: Sequence[Settlement]
    ) -> bool:
        """Stop a task's slots from running, and end the queued ones, in one step."""
        return await self.write(combined.disable_task, task, reason, until, ends, self.now())

    async def delete_task(
        self, task: Task, ends: Sequence[Settlement], stops: Sequence[RunId]
    ) -> bool:
        """Take a task out of use, end what is queued and stop what runs, in one step."""
        return await self.write(combined.delete_task, task, ends, stops, self.now())

    async def put_schedule(self, record: dict[str, Any]) -> StoredSchedule:
        """Create a schedule or replace the one of its name."""
        return await self.write(schedules.put_schedule, record, self.now())

    async def find_schedule(self, task_id: int, name: str) -> StoredSchedule | None:
        """Return a schedule of a task by name."""
        return await self.read(schedules.find_schedule, task_id, name)

    async def list_schedules(self, task_ids: Sequence[int]) -> list[StoredSchedule]:
        """Return the schedules of tasks."""
        return await self.read(schedules.list_schedules, list(task_ids))

    async def drop_schedule(self, schedule: StoredSchedule) -> None:
        """Take a schedule out of use."""
        await self.write(schedules.drop_schedule, schedule, self.now())

    async def set_limits(self, wanted: Sequence[Limit]) -> None:
        """Replace limits by scope and key."""
        await self.write(limits.set_limits, list(wanted), self.now())

    async def enqueue(self, batches: Sequence[RunBatch]) -> list[list[Enqueued]]:
        """Queue runs; concurrent callers share a commit."""
        return list(await self._enqueues.put(batches))

    async def enqueue_for(self, request: NewRequest, batch: RunBatch) -> list[Enqueued]:
        """Queue runs that somebody asks for; concurrent requests share a commit."""
        (queued,) = await self._requested.put([(request, batch)])
        return queued

    async def enqueue_within(
        self, connection: object, batches: Sequence[RunBatch]
    ) -> list[list[Enqueued]]:
        """Queue runs inside a transaction of the caller's own, where the driver allows that."""
        what = f"{sum(len(batch.payloads) for batch in batches)} runs on {connection!r}"
        message = f"cannot queue {what}: only PostgreSQL can queue in your own transaction"
        raise Unavailable(message)

    async def _enqueue(self, batches: Sequence[RunBatch]) -> list[list[Enqueued]]:
        return await self.write(combined.enqueue, batches, self.now(), self.mains)

    async def _enqueue_asked(
        self, asked: Sequence[tuple[NewRequest, RunBatch]]
    ) -> list[list[Enqueued]]:
        requests, batches = [request for request, _ in asked], [batch for _, batch in asked]
        now = self.now()
        both = stamped_all(requests, combined.enqueue, now)
        return await self.write(both, batches, now, self.mains)

    async def request_cancel(self, run_ids: Sequence[RunId], why: str) -> None:
        """Ask whoever works on running runs to stop."""
        await self.write(stopping.request_cancel, run_ids, why, self.now())

    # claim and settle

    async def claim(
        self, worker: str, pools: Sequence[str], routes: Sequence[str], want: int
    ) -> Claimed:
        """Lease ready runs to a worker."""
        return await self.write(claim.claim, worker, pools, routes, want, self.now, self._known)

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Apply settlements; concurrent callers share a commit."""
        return list(await self._settles.put(settlements))

    async def _settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        return await self.write(settle.settle, settlements, self.now())

    async def successors(self, task_ids: Sequence[int]) -> dict[int, list[Task]]:
        """Return the tasks declared to run after each of these."""
        return await self.read(views.successors, list(task_ids))

    async def open_runs(self, ids: Sequence[int]) -> list[OpenRun]:
        """Return what is needed to decide about runs."""
        return await self.read(workers.open_runs, list(ids))

    async def queued_runs_of(self, task_id: int, *, planned_only: bool) -> list[OpenRun]:
        """Return the queued and waiting runs of a task."""
        return await self.read(workers.queued_runs_of, task_id, planned_only)

    async def running_runs_of(self, task_id: int) -> list[RunId]:
        """Return the running runs of a task."""
        return await self.read(workers.running_runs_of, task_id)

    async def mark_stuck(self, run_id: int, epoch: int) -> None:
        """Note that a run is past its timeout and cannot be stopped."""
        await self.write(workers.mark_stuck, run_id, epoch, self.now())

    # workers

    async def register(self, record: dict[str, Any]) -> None:
        """Make a worker known."""
        await self.write(workers.register, record, self.now())

    async def renew(self, worker: str, until: int) -> Renewal:
        """Extend a worker's lease unless it was fenced."""
        return await self.write(workers.renew, worker, until, self.now())

    async def retire(self, worker: str) -> None:
        """Forget a worker that holds nothing."""
        await self.write(workers.retire, worker)

    async def fence(self, now: int | None = None, watched: int = ALWAYS) -> int:
        """Fence workers whose lease has run out."""
        return await self.write(workers.fence, self.now() if now is None else now, watched)

    async def fence_others(self, worker: str) -> int:
        """Fence every other worker; only for the holder of the instance lock."""
        return await self.write(workers.fence_others, worker)

    async def lost_runs(self, most: int, now: int | None = None) -> list[OpenRun]:
        """Return running runs whose worker is gone, and their keepers' home by an instant."""
        return await self.read(workers.lost_runs, self.now() if now is None else now, most)

    async def expired_runs(self, most: int) -> list[OpenRun]:
        """Return queued and waiting runs whose time has run out."""
        return await self.read(workers.expired_runs, self.now(), most)

    async def heal(self) -> int:
        """Rebuild what claiming caches."""
        return await self.write(heads.heal, self.now())

    async def prune(self, before: int, most: int) -> int:
        """Delete old events and the runs whose end they tell."""
        return await self.write(workers.prune, before, most)

    # deliver

    async def take_deliveries(self, worker: str, most: int) -> list[Delivery]:
        """Take pending deliveries for sending."""
        return await self.write(outbox.take_deliveries, worker, self.now(), most)

    async def mark_delivery(
        self, delivery: Delivery, state: DeliveryState, error: str | None, available_at: int
    ) -> bool:
        """Record what became of one try."""
        return await self.write(
            outbox.mark_delivery, delivery, state, error, available_at, self.now()
        )

    async def held_deliveries(self, worker: str, most: int) -> list[Delivery]:
        """Return deliveries a worker has taken and not marked."""
        return await self.read(outbox.held, worker, most)

    async def orphaned_deliveries(self, most: int) -> list[Delivery]:
        """Return deliveries whose postman vanished while sending."""
        return await self.read(outbox.orphaned, self.now(), most)

    async def next_delivery(self) -> int | None:
        """Return when the next delivery may be sent."""
        return await self.read(outbox.next_delivery)

    async def examine(self, make: Callable[[], Looker]) -> Looker:
        """Show every row to an examiner on one consistent view, and return it."""
        return await self.read(verify.examine, make, self.now())

    # backups

    async def backup(self, path: str, *, force: bool = False) -> Backup:  # noqa: ARG002
        """Refuse, unless the dialect knows how: what is not kept needs no copy."""
        message = f"cannot write {path}: a store in memory has nothing to back up"
        raise Unavailable(message)

    async def restore(
        self,
        path: str,
        pass_over: Decide | None,  # noqa: ARG002
        *,
        force: bool = False,  # noqa: ARG002
    ) -> Restored:
        """Refuse, unless the dialect knows how."""
        message = f"cannot restore {path} into memory: give another --store"
        raise Unavailable(message)


class Borrowed(SqlStore):
    """A store over another one, which somebody else has opened and will close."""

    def __init__(self, store: SqlStore) -> None:
        super().__init__()
        self._store = store
        self.mains = store.mains
        self.path = store.path
        self.incarnation = store.incarnation
        self.elsewhere = store.elsewhere

    def now(self) -> int:
        """Return the store's own time."""
        return self._store.now()

    def roles_taken(self) -> bool | None:
        """Return what the store behind it knows."""
        return self._store.roles_taken()

    async def problems(self) -> list[Problem]:
        """Return what the store behind it knows."""
        return await self._store.problems()

    async def list_workers(self) -> list[WorkerView]:
        """Return every worker as the store behind it knows them."""
        return await self._store.list_workers()

    def subscribe(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call a listener with every topic that is announced; returns how to stop that."""
        return self._store.subscribe(listener)

    async def open(self) -> None:
        """Nothing to do: the store behind it is open."""

    async def look(self) -> None:
        """Nothing to do: the store behind it is open."""

    async def close(self) -> None:
        """Nothing to do: the store behind it stays open."""


class Within(Borrowed):
    """A store inside a transaction that is under way: it shows what that has changed so far."""

    def __init__(self, store: SqlStore, session: Session) -> None:
        super().__init__(store)
        self._session = session

    async def write(
        self, operation: Callable[..., Coroutine[Any, Any, Result]], *args: object
    ) -> Result:
        """Refuse: whoever looks here changes nothing."""
        message = f"{operation.__name__} {args!r}: an answer changes nothing"
        raise AssertionError(message)

    async def read(
        self, operation: Callable[..., Coroutine[Any, Any, Result]], *args: object
    ) -> Result:
        """Run an operation that only reads, as part of the transaction."""
        return await operation(self._session, *args)


class Behalf(Borrowed):
    """A store for one request: its change carries the word of who asked for it."""

    def __init__(self, store: SqlStore, request: NewRequest) -> None:
        super().__init__(store)
        self._request = request
        self.request_id: int | None = None
        self.answered = False
        self._stamped = False
        self._changes: Collection[str] = ()
        self._answering: Replying | None = None

    def keep_answer(self, changes: Collection[str], answering: Replying) -> None:
        """Keep the answer in the transaction of the change, which is one of these operations."""
        self._changes, self._answering = frozenset(changes), answering

    async def write(
        self, operation: Callable[..., Coroutine[Any, Any, Result]], *args: object
    ) -> Result:
        """Run an operation in a transaction; the request goes with its change."""
        if self._stamped or (self._changes and operation.__name__ not in self._changes):
            held = self._request.held
            later = operation if held is None else fenced(held, operation)
            return await self._store.write(later, *args)
        answered = None if self._answering is None else self._answered
        both = stamped(self._request, operation, self.now(), answered)
        try:
            done = await self._store.write(both, *args)
        except Untouched as nothing:
            return cast("Result", nothing.result)
        self.request_id, self.answered, self._stamped = done.request_id, done.whole, True
        return done.result

    async def _answered(self, session: Session, result: object) -> KeptAnswer | None:
        if self._answering is None:
            return None
        return await self._answering(Within(self._store, session), result)

    async def read(
        self, operation: Callable[..., Coroutine[Any, Any, Result]], *args: object
    ) -> Result:
        """Run an operation that only reads, on one consistent view."""
        return await self._store.read(operation, *args)

    async def enqueue(self, batches: Sequence[RunBatch]) -> list[list[Enqueued]]:
        """Queue runs; requests without a key share a commit with those of others."""
        if self._stamped or len(batches) != 1 or not may_share(self._request):
            return await super().enqueue(batches)
        queued = await self._store.enqueue_for(self._request, batches[0])
        self._stamped = True
        return [queued]
