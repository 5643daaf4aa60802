"""The store: open, close, group commit, and every operation by name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Self, TypeVar, cast

from rota.errors import Unavailable
from rota.model.audit import AttemptIdentity, AuditEntry, KeptAnswer, NewAuditEntry
from rota.model.backups import Backup, RestoreResult
from rota.model.events import Event
from rota.model.ids import RunId, ScheduleId
from rota.model.instants import ALWAYS
from rota.model.keys import Key, NewKey
from rota.model.notifications import Delivery, DeliveryState
from rota.model.problems import UNWRITABLE, Problem
from rota.model.runs import EndedAttempt, Enqueued, OpenRun, Question, Run, RunBatch
from rota.model.schedules import (
    Decide,
    DueSchedule,
    LedgerRow,
    PlanStep,
    ScheduleCursor,
    SchedulePlan,
    StoredSchedule,
)
from rota.model.settlement import Settlement
from rota.model.spaces import Limit, Space, SpaceRole
from rota.model.tasks import NewTask, SeenItem, StateEntry, Task
from rota.model.views import (
    ClaimResult,
    DeadDeliveriesView,
    LeaseRenewal,
    QueueView,
    RunFilter,
    RunView,
    SlotView,
    TaskFilter,
    WorkerView,
)
from rota.ports.store import Looker, Replying
from rota.store import (
    audit,
    claims,
    keys,
    outbox,
    queue,
    settlement,
    tasks,
    verification,
    views,
    workers,
)
from rota.store import (
    plans as store_plans,
)
from rota.store.attempt_requests import Talking
from rota.store.attempts import Keeping
from rota.store.audit import Untouched, may_share, with_audit, with_audit_each, with_fence
from rota.store.budgets import Spending
from rota.store.clock_jumps import ClockJumps
from rota.store.events import Live
from rota.store.heartbeats import Beating, Machines
from rota.store.last_write import LastWrite
from rota.store.notifications import Noticing
from rota.store.plans import Pausing
from rota.store.sessions import Conversing
from rota.store.settlement import Answering
from rota.store.threads import Saying, Threads
from rota.store.transactions import Dialect, GroupCommit, Transaction

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class Entrance(Dialect):
    """The operations of doors, over a dialect's transactions."""

    async def add_key(self, key: NewKey) -> Key:
        """Keep a key."""
        return await self.write(keys.add_key, key, self.now())

    async def find_key(self, digest: str) -> Key | None:
        """Return a key by the digest of its secret."""
        return await self.read(keys.find_key, digest)

    async def list_keys(self, space_id: int | None) -> list[Key]:
        """Return keys, oldest first."""
        return await self.read(keys.list_keys, space_id)

    async def revoke_key(self, key_id: int) -> None:
        """Let a key open nothing any more."""
        await self.write(keys.revoke_key, key_id, self.now())

    async def touch_keys(self, used: Mapping[int, int]) -> None:
        """Note when keys were last used."""
        await self.write(keys.touch_keys, used)

    async def note_request(self) -> None:
        """Write nothing down but the request on whose behalf this is done."""
        await self.write(audit.note_request)

    async def answer_request(self, request_id: int, status: int, answer: str) -> None:
        """Keep what a request was answered, for when it comes again."""
        await self.write(audit.answer_request, request_id, status, answer)

    async def find_request(self, caller: str, key: str) -> AuditEntry | None:
        """Return the request that a caller made under a key."""
        return await self.read(audit.find_request, caller, key)

    async def requests_alike(self, callers: Sequence[str], digest: str) -> list[AuditEntry]:
        """Return the requests of callers that asked for the same, in the order they were made."""
        return await self.read(audit.requests_alike, list(callers), digest)

    async def list_requests(self, space: str | None, before: int, most: int) -> list[AuditEntry]:
        """Return requests, newest first."""
        return await self.read(audit.list_requests, space, before, most)

    async def find_held(self, run_id: int, epoch: int) -> AttemptIdentity | None:
        """Return what is known of an attempt that goes on; None if it is over."""
        return await self.read(audit.find_held, run_id, epoch)

    async def count_made(self, space_id: int) -> int:
        """Return how many tasks stand in a space that attempts have made."""
        return await self.read(audit.count_made, space_id)

    async def put_state(self, task_id: int, key: str, value: str, who: str) -> StateEntry:
        """Keep a value under a key of a task, whatever stood there."""
        return await self.write(tasks.put_state, task_id, key, value, who, self.now())

    async def get_state(self, task_id: int, key: str) -> StateEntry | None:
        """Return what stands under a key of a task."""
        return await self.read(tasks.get_state, task_id, key)

    async def list_state(self, task_id: int, after: str, most: int) -> list[StateEntry]:
        """Return what a task keeps, by key."""
        return await self.read(tasks.list_state, task_id, after, most)

    async def count_state(self, task_id: int) -> int:
        """Return how many values a task keeps."""
        return await self.read(tasks.count_state, task_id)

    async def drop_state(self, task_id: int, key: str) -> bool:
        """Forget what stands under a key of a task; false if nothing does."""
        return await self.write(tasks.drop_state, task_id, key)

    async def mark_seen(
        self, task_id: int, items: Sequence[tuple[str, str, str]]
    ) -> list[SeenItem]:
        """Count items of a task (provider, item, data) as seen once more."""
        return await self.write(tasks.mark_seen, task_id, items, self.now())

    async def get_seen(self, task_id: int, provider: str, item: str) -> SeenItem | None:
        """Return an item as a task has seen it, or None."""
        return await self.read(tasks.get_seen, task_id, provider, item)


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

    async def dead_deliveries(self, space_id: int | None, since: int) -> DeadDeliveriesView | None:
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

    async def list_attempts(self, run_id: int) -> list[EndedAttempt]:
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


class Planning(Dialect):
    """The operations of planning, over a dialect's transactions."""

    async def plan_due(self, decide: Decide, most: int, *, waits: bool = False) -> PlanStep:
        """Apply what is decided about the schedules whose next slot has come."""
        return await self.write(store_plans.plan_due, decide, most, waits, self.now)

    async def due_schedules(self, most: int, only: ScheduleId | None = None) -> list[DueSchedule]:
        """Return the schedules whose next slot has come, or only one if it has."""
        return await self.read(store_plans.due, self.now(), most, only)

    async def apply_plans(self, plans: Sequence[SchedulePlan]) -> list[bool]:
        """Apply plans whose schedule still stands where it stood."""
        return await self.write(store_plans.apply_plans, plans, self.now())

    async def promote(self, most: int) -> int:
        """Let delayed runs whose time has come stand in the queue."""
        return await self.write(store_plans.promote, self.now(), most)

    async def next_due(self) -> int | None:
        """Return when planning is needed next."""
        return await self.read(store_plans.next_due)

    async def standing_schedules(self, mark: str, after: int, most: int) -> list[ScheduleCursor]:
        """Return schedules that wait, by id; none if they are aligned with this mark already."""
        return await self.read(tasks.standing, mark, after, most)

    async def align_schedules(self, plans: Sequence[SchedulePlan], mark: str | None) -> list[bool]:
        """Move schedules that still stand where they stood, as a change of their rule would."""
        return await self.write(tasks.align_schedules, plans, mark, self.now())


Result = TypeVar("Result")

MOST_JOINED = 2_000
UNWRITTEN = "the last write to the database was refused, and none was done since"


class SqlStore(
    Entrance, Planning, Looking, Live, Pausing, Keeping, Beating,
    Machines, Conversing, Saying, Threads, Talking, Spending, Noticing,
    Answering, ClockJumps,
):  # fmt: skip
    """Everything the ports ask of a store, over a dialect's transactions."""

    path = ""

    elsewhere = False

    incarnation = ""

    def __init__(self) -> None:
        super().__init__()
        self.writes = LastWrite()
        self._known: claims.Known = {}
        self.mains: set[int] = set()
        """The spaces that are known to have no quota."""
        self._enqueues: GroupCommit[RunBatch, list[Enqueued]] = GroupCommit(
            self._enqueue, MOST_JOINED, writers=2 if self.elsewhere else 1
        )
        self._requested: GroupCommit[tuple[NewAuditEntry, RunBatch], list[Enqueued]] = GroupCommit(
            self._enqueue_asked, MOST_JOINED, writers=2 if self.elsewhere else 1
        )
        self._settles: GroupCommit[Settlement, bool] = GroupCommit(self._settle, MOST_JOINED)

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

    def behalf(self, request: NewAuditEntry) -> Behalf:
        """Return this store for one request, which is written down with its first change."""
        return Behalf(self, request)

    def again(self) -> Self | None:
        """Return a second store on the same database, or None where a lock makes it needless."""
        return None

    # define

    async def add_space(self, name: str, role: SpaceRole, timezone: str) -> Space:
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
        return await self.write(tasks.put_task, task, after_id, schedule, dropped, self.now())

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
        return await self.write(settlement.disable_task, task, reason, until, ends, self.now())

    async def delete_task(
        self, task: Task, ends: Sequence[Settlement], stops: Sequence[RunId]
    ) -> bool:
        """Take a task out of use, end what is queued and stop what runs, in one step."""
        return await self.write(settlement.delete_task, task, ends, stops, self.now())

    async def put_schedule(self, record: dict[str, Any]) -> StoredSchedule:
        """Create a schedule or replace the one of its name."""
        return await self.write(tasks.put_schedule, record, self.now())

    async def find_schedule(self, task_id: int, name: str) -> StoredSchedule | None:
        """Return a schedule of a task by name."""
        return await self.read(tasks.find_schedule, task_id, name)

    async def list_schedules(self, task_ids: Sequence[int]) -> list[StoredSchedule]:
        """Return the schedules of tasks."""
        return await self.read(tasks.list_schedules, list(task_ids))

    async def drop_schedule(self, schedule: StoredSchedule) -> None:
        """Take a schedule out of use."""
        await self.write(tasks.drop_schedule, schedule, self.now())

    async def set_limits(self, wanted: Sequence[Limit]) -> None:
        """Replace limits by scope and key."""
        await self.write(claims.set_limits, list(wanted), self.now())

    async def enqueue(self, batches: Sequence[RunBatch]) -> list[list[Enqueued]]:
        """Queue runs; concurrent callers share a commit."""
        return list(await self._enqueues.put(batches))

    async def enqueue_for(self, request: NewAuditEntry, batch: RunBatch) -> list[Enqueued]:
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
        return await self.write(settlement.enqueue, batches, self.now(), self.mains)

    async def _enqueue_asked(
        self, asked: Sequence[tuple[NewAuditEntry, RunBatch]]
    ) -> list[list[Enqueued]]:
        requests, batches = [request for request, _ in asked], [batch for _, batch in asked]
        now = self.now()
        both = with_audit_each(requests, settlement.enqueue, now)
        return await self.write(both, batches, now, self.mains)

    async def request_cancel(self, run_ids: Sequence[RunId], why: str) -> None:
        """Ask whoever works on running runs to stop."""
        await self.write(settlement.request_cancel, run_ids, why, self.now())

    # claim and settle

    async def claim(
        self, worker: str, pools: Sequence[str], routes: Sequence[str], want: int
    ) -> ClaimResult:
        """Lease ready runs to a worker."""
        return await self.write(claims.claim, worker, pools, routes, want, self.now, self._known)

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Apply settlements; concurrent callers share a commit."""
        return list(await self._settles.put(settlements))

    async def _settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        return await self.write(settlement.settle, settlements, self.now())

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

    async def renew(self, worker: str, until: int) -> LeaseRenewal:
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
        return await self.write(queue.rebuild_queue_heads, self.now())

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
        return await self.read(verification.examine, make, self.now())

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
    ) -> RestoreResult:
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

    def __init__(self, store: SqlStore, session: Transaction) -> None:
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

    def __init__(self, store: SqlStore, request: NewAuditEntry) -> None:
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
            later = operation if held is None else with_fence(held, operation)
            return await self._store.write(later, *args)
        answered = None if self._answering is None else self._answered
        both = with_audit(self._request, operation, self.now(), answered)
        try:
            done = await self._store.write(both, *args)
        except Untouched as nothing:
            return cast("Result", nothing.result)
        self.request_id, self.answered, self._stamped = done.request_id, done.whole, True
        return done.result

    async def _answered(self, session: Transaction, result: object) -> KeptAnswer | None:
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


LOOK_SECONDS = 1.0


async def until_available(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask the store until it answers; what is asked may be asked again."""
    while True:
        try:
            return await ask()
        except Unavailable as fault:
            log.warning("run.store_unavailable", extra={"error": str(fault)})
            await asyncio.sleep(LOOK_SECONDS)
