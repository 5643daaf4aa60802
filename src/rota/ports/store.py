"""What the stages need from a store.

Every method is one transaction: it has happened whole when it returns, or not at all. Every method
may raise Unavailable when the database cannot be reached; after that it is unknown whether a write
happened. Decisions are made before: a store is told what to do, and only checks that the rows it
was decided for still stand as they stood.

Instants that enter a decision are whole microseconds of the store's own clock; what people see are
datetimes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from rota.model.attempt_requests import AttemptRef, DeferredOperation, DeferredResult, Effect
from rota.model.attempts import (
    AgentSessionRef,
    KeptAttempt,
    OutputChunk,
    Relaunch,
    WaitingForAnswer,
)
from rota.model.audit import AttemptIdentity, AuditEntry, KeptAnswer, NewAuditEntry
from rota.model.backups import Backup, RestoreResult
from rota.model.budgets import (
    Amounts,
    BudgetCaps,
    BudgetHolder,
    BudgetRefusal,
    BudgetScope,
    BudgetUsage,
    DailyUsage,
)
from rota.model.clock_jumps import Leap, Leaps
from rota.model.events import Event, EventPage, EventPosition, EventTally
from rota.model.heartbeats import (
    AttemptHeartbeat,
    AttemptSample,
    Heartbeat,
    MachineLoad,
    MachineSample,
    MissedHeartbeat,
)
from rota.model.ids import Epoch, MessageId, RunId, ScheduleId, SpaceId
from rota.model.instants import ALWAYS
from rota.model.keys import Key, NewKey
from rota.model.notifications import Delivery, DeliveryState, NotificationTarget
from rota.model.problems import Problem
from rota.model.runs import EndedAttempt, Enqueued, OpenRun, Question, Run, RunBatch
from rota.model.schedules import (
    Decide,
    DueSchedule,
    LedgerRow,
    Pauses,
    PlanStep,
    ScheduleCursor,
    SchedulePlan,
    StoredSchedule,
)
from rota.model.sessions import AgentSession, Exchange, SessionFilter
from rota.model.settlement import ApprovedAction, NewDelivery, Settlement
from rota.model.spaces import Limit, Space, SpaceRole
from rota.model.tasks import NewTask, SeenItem, StateEntry, Task
from rota.model.threads import NewMessage, NewThread, Thread, ThreadFilter, ThreadMessage
from rota.model.verification import (
    DeliveryRecord,
    NotificationRecord,
    RunHistory,
    RunRecord,
    ScheduleRecord,
    SlotFate,
    SlotRecord,
    TaskRecord,
    VerificationOverview,
)
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


class RowVisitor(Protocol):
    """Is shown one consistent view, page by page, in the order of these methods; never waits.

    It may be called on any thread, one call at a time.
    """

    def tasks(self, page: Sequence[TaskRecord]) -> None:
        """See tasks."""

    def overview(self, seen: VerificationOverview) -> None:
        """See what is looked at as a whole."""

    def runs(
        self,
        page: Sequence[RunRecord],
        histories: Mapping[int, RunHistory],
        unfollowed: Sequence[tuple[int, int]],
    ) -> None:
        """See runs with what is on record about them, and which follower has no run after which."""

    def notices(
        self, missing: Sequence[NotificationRecord], needless: Sequence[NotificationRecord]
    ) -> None:
        """See what of the runs of a page was not told, and what was told to whom it was too low."""

    def deliveries(self, page: Sequence[DeliveryRecord]) -> None:
        """See deliveries."""

    def schedules(self, page: Sequence[ScheduleRecord]) -> Iterable[SlotRecord]:
        """See schedules; return the slots whose fate is to be shown next."""

    def slots(self, fates: Sequence[SlotFate]) -> None:
        """See what became of slots; those that have a run and no ledger row are left out."""


class Timed(Protocol):
    """Has the one clock that every decision uses."""

    def now(self) -> int:
        """Return the store's own time in microseconds; on PostgreSQL the database's."""

    def subscribe(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call a listener with every topic that is announced; returns how to stop that."""


class Beating(Timed, Protocol):
    """Records of what was last heard of attempts."""

    async def beat(self, worker: str, signs: Sequence[AttemptSample], due: int) -> None:
        """Record signs of attempts that are the worker's, all at once; the next is due then."""

    async def heartbeats(self, run_ids: Sequence[int]) -> dict[RunId, Heartbeat]:
        """Return what was last heard of the newest attempts of runs."""

    async def overdue(self, patience: int, most: int) -> list[MissedHeartbeat]:
        """Return running attempts whose beat is overdue, or that never had one for so long."""

    async def note_silence(self, silences: Mapping[MissedHeartbeat, str]) -> int:
        """Record why nobody tells of attempts, once for each silence; return of how many."""


class Conversing(Timed, Protocol):
    """Sessions and messages; what concerns a run that goes on is fenced by its epoch."""

    async def find_session(
        self, run_id: int, agent: str, *, shared: bool, own: bool
    ) -> AgentSessionRef | None:
        """Return what a run goes on in: with `own` its session, with `shared` its thread's."""

    async def list_sessions(self, wanted: SessionFilter) -> list[AgentSession]:
        """Return sessions, newest first."""

    async def get_session(self, session_id: int) -> AgentSession | None:
        """Return a session; None if there is none, or it was cleared."""

    async def session_history(self, session_id: int, before: int, most: int) -> list[Exchange]:
        """Return what was said in a session, newest first."""

    async def search_sessions(
        self, space: str | None, thread: str | None, words: str, most: int
    ) -> list[Exchange]:
        """Return where words were said or answered of late, newest first."""

    async def archive_session(self, session_id: int, title: str | None) -> bool:
        """Put a session aside, so that the next run begins a new one; false if there is none."""

    async def clear_session(self, session_id: int) -> bool:
        """Forget a session and what was said in it for good; false if there is none."""

    async def resume_session(self, session_id: int, title: str | None) -> bool:
        """Let the next run go on in a session; the one it takes the place of is archived."""

    async def say(self, message: NewMessage, reader: RunBatch | None) -> ThreadMessage:
        """Write a message down, and queue a run that reads it unless one is queued already.

        It is there with all its files, or not at all. Without a reader it asks for nobody, and is
        read with the next one that does.
        """

    async def read_again(self, run_id: int, reader: RunBatch) -> RunId | None:
        """Queue another run to read what an earlier one was to; None if that had nothing to."""

    async def give_messages(self, run_id: int, epoch: int, worker: str) -> list[ThreadMessage]:
        """Give a run everything it was queued to read, the same again at a later attempt."""

    async def take_messages(self, run_id: int, epoch: int, upto: int) -> int | None:
        """Note that a run which goes on has read everything up to a message; return how many.

        None if the run does not go on, or nothing of that number was said in its conversation.
        """

    async def message_content(self, message_id: int, position: int) -> bytes | None:
        """Return what is in a file of a message, the first at 0; None if there is no such one."""

    async def find_thread(self, key: str) -> int | None:
        """Return the space that a thread belongs to; None if there is no such thread."""

    async def pending_messages(self, thread: str, box: str, most: int) -> list[ThreadMessage]:
        """Return what nobody has read in a thread and is not in a box, oldest first."""

    async def box_message(self, message_id: int, box: str, number: int) -> None:
        """Note that a message lies in a box, and what it is called there."""

    async def boxed_message(self, box: str, number: int) -> MessageId | None:
        """Return the message that a box calls by a number."""

    async def list_messages(
        self, thread: str, space: str | None, before: int, most: int
    ) -> list[ThreadMessage]:
        """Return what was said in a thread, newest first."""


class Entrance(Timed, Protocol):
    """What doors keep: who may come in, what was asked for, and what tasks remember."""

    async def add_key(self, key: NewKey) -> Key:
        """Keep a key."""

    async def find_key(self, digest: str) -> Key | None:
        """Return a key by the digest of its secret."""

    async def list_keys(self, space_id: int | None) -> list[Key]:
        """Return keys, oldest first."""

    async def revoke_key(self, key_id: int) -> None:
        """Let a key open nothing any more."""

    async def touch_keys(self, used: Mapping[int, int]) -> None:
        """Note when keys were last used."""

    async def note_request(self) -> None:
        """Write nothing down but the request on whose behalf this is done."""

    async def answer_request(self, request_id: int, status: int, answer: str) -> None:
        """Keep what a request was answered, for when it comes again."""

    async def find_request(self, caller: str, key: str) -> AuditEntry | None:
        """Return the request that a caller made under a key."""

    async def requests_alike(self, callers: Sequence[str], digest: str) -> list[AuditEntry]:
        """Return the requests of callers that asked for the same, in the order they were made."""

    async def list_requests(self, space: str | None, before: int, most: int) -> list[AuditEntry]:
        """Return requests, newest first."""

    async def find_held(self, run_id: int, epoch: int) -> AttemptIdentity | None:
        """Return what is known of an attempt that goes on; None if it is over."""

    async def count_made(self, space_id: int) -> int:
        """Return how many tasks stand in a space that attempts have made."""

    async def put_state(self, task_id: int, key: str, value: str, who: str) -> StateEntry:
        """Keep a value under a key of a task, whatever stood there."""

    async def get_state(self, task_id: int, key: str) -> StateEntry | None:
        """Return what stands under a key of a task."""

    async def list_state(self, task_id: int, after: str, most: int) -> list[StateEntry]:
        """Return what a task keeps, by key."""

    async def count_state(self, task_id: int) -> int:
        """Return how many values a task keeps."""

    async def drop_state(self, task_id: int, key: str) -> bool:
        """Forget what stands under a key of a task; false if nothing does."""

    async def mark_seen(
        self, task_id: int, items: Sequence[tuple[str, str, str]]
    ) -> list[SeenItem]:
        """Count items of a task (provider, item, data) as seen once more."""

    async def get_seen(self, task_id: int, provider: str, item: str) -> SeenItem | None:
        """Return an item as a task has seen it, or None."""


class Keeping(Timed, Protocol):
    """Records of kept attempts. What concerns a run is fenced by its epoch and its holder."""

    async def renew_home(self, home: str, host: str, until: int) -> None:
        """Promise that the keepers of a home end by themselves at an instant, and not before."""

    async def fence_home(self, home: str, worker: str) -> int:
        """Fence who else holds attempts of a home; only for whoever holds the home's lock."""

    async def begin_kept(
        self, kept: KeptAttempt, worker: str, aloud: NewDelivery | None = None
    ) -> bool:
        """Note that a keeper is about to start; false if the run is no longer the worker's.

        What people are told of that is sent once.
        """

    async def pause_kept(self, pause: Relaunch, worker: str) -> bool:
        """Note that a try was in vain, once; false if the run is another's."""

    async def hear(
        self,
        run_id: RunId,
        epoch: int,
        worker: str,
        heard: Sequence[OutputChunk],
        session: AgentSessionRef | None = None,
    ) -> bool:
        """Record what was read, once; false if it was read already or the run is another's.

        With a session, a later run may go on in it. What is for people is sent on the way.
        """

    async def kept_of(self, home: str) -> list[KeptAttempt]:
        """Return the kept attempts of a home, oldest first."""

    async def count_output(self, run_id: int, since: int) -> int:
        """Return how many events hold what the programs of a run wrote since an instant."""

    async def adopt(self, run_id: RunId, epoch: int, worker: str) -> ClaimResult:
        """Take over a run whose holder is gone, amid its attempt; empty if it is not."""

    async def begin_checks(self, run_id: RunId, epoch: int) -> int:
        """Count a look at the checks of an attempt; return the number of looks, 0 if it is over."""

    async def drop_kept(self, run_id: RunId, epoch: int) -> None:
        """Forget a kept attempt; if its run still goes on, it is lost."""


class Live(Protocol):
    """Reads events as they come."""

    async def events_after(
        self,
        after: EventPosition | None,
        most: int,
        *,
        space_id: int | None = None,
        run_id: int | None = None,
    ) -> EventPage:
        """Return what follows a position, or begin with the oldest event that is kept.

        At most `most` events are looked at, whatever the space. After a gap the page is empty and
        goes on from the end.
        """

    async def events_end(self) -> EventPosition:
        """Return the position of the newest event that can be read."""

    async def tally_events(
        self, after: EventPosition, most: int, bounds: Sequence[int]
    ) -> EventTally:
        """Count what follows a position, looking at no more than `most` events.

        How late runs began is counted by how many of the bounds, in microseconds, it is above.
        """

    async def count_skipped(self) -> list[tuple[str, int]]:
        """Return how many slots the newest ledger rows tell of, by reason."""


class Pausing(Protocol):
    """Pauses everything, in every process on the database."""

    async def pause(self, who: str) -> Pauses:
        """Let nothing new begin until it is resumed; nothing happens if it is paused already.

        When this returns no claim gives out anything, and slots that come due from then on are
        skipped. What runs goes on.
        """

    async def resume(self, who: str) -> Pauses:
        """Let work begin again, from now on; nothing happens if nothing is paused."""

    async def pauses(self) -> Pauses:
        """Return the pauses that may still matter, oldest first."""


"""Reads how busy this machine has been since the last look."""


class Machines(Timed, Protocol):
    """Records of how machines were doing."""

    async def read_machine(self, worker: str, home: str, host: str, load: MachineLoad) -> None:
        """Record what a worker runs and how its machine is doing; old readings go."""

    async def list_readings(
        self, since: int, before: int, host: str | None, most: int
    ) -> list[MachineSample]:
        """Return readings of a span, newest first."""

    async def newest_readings(self, since: int) -> list[MachineSample]:
        """Return the newest reading of each home that has one since then."""

    async def list_heard(self, space_id: int | None, most: int) -> Sequence[AttemptHeartbeat]:
        """Return running attempts with their last heartbeat, longest unheard first."""


class Noticing(Timed, Protocol):
    """Preferences of spaces; what they lead to is written by settling, in its transaction."""

    async def set_preference(
        self, space_id: int, channel: str, target: str, least: int, *, usual: bool
    ) -> None:
        """Replace the preference of a space for a place; only one of a space is the usual one."""

    async def drop_preference(self, space_id: int, channel: str, target: str) -> bool:
        """Take a preference away; false if there was none."""

    async def list_preferences(self, space_id: int | None) -> list[NotificationTarget]:
        """Return the preferences of a space, or of all."""

    async def thread_owner(self, key: str) -> SpaceId | None:
        """Return whose a thread is; None if there is none of that key."""


class Planning(Timed, Protocol):
    """Due schedules become plans, and delayed runs stand in the queue."""

    async def plan_due(self, decide: Decide, most: int, *, waits: bool = False) -> PlanStep:
        """Apply what is decided about the schedules whose next slot has come, in one step.

        It ends early when deciding takes long, and does nothing where delayed runs are due if it
        `waits` for them to be promoted.
        """

    async def due_schedules(self, most: int, only: ScheduleId | None = None) -> list[DueSchedule]:
        """Return the schedules whose next slot has come, or only one if it has."""

    async def apply_plans(self, plans: Sequence[SchedulePlan]) -> list[bool]:
        """Apply plans whose schedule still stands where it stood."""

    async def promote(self, most: int) -> int:
        """Let delayed runs whose time has come stand in the queue."""

    async def next_due(self) -> int | None:
        """Return when planning is needed next."""

    async def standing_schedules(self, mark: str, after: int, most: int) -> list[ScheduleCursor]:
        """Return schedules that wait, by id; none if they are aligned with this mark already."""

    async def align_schedules(self, plans: Sequence[SchedulePlan], mark: str | None) -> list[bool]:
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


class Spending(Timed, Protocol):
    """Records of budgets. What is set aside for open attempts is never more than a day's cap."""

    async def set_budget(self, scope: BudgetScope, key: int, caps: BudgetCaps, who: str) -> None:
        """Replace the budget of a task or space; without caps it is taken away.

        Runs that were held back by it may begin again.
        """

    async def budgets_of(self, task_id: int, space_id: int) -> dict[BudgetScope, BudgetCaps]:
        """Return the caps that hold for the runs of a task."""

    async def reserve(
        self, spender: BudgetHolder, worker: str, least: Amounts, most: Amounts
    ) -> Amounts | BudgetRefusal | None:
        """Set aside up to `most` for an attempt, in the place of what was; one at a time.

        Only the units that the spender can use are looked at. Refused, with nothing changed, if a
        budget of the day has less than `least` left. None if the run is another's.
        """

    async def spent_by(self, run_id: int) -> list[DailyUsage]:
        """Return what the attempts of a run have used, oldest first."""

    async def history_of(self, task_id: int, most: int) -> list[Amounts]:
        """Return what the newest finished runs of a task have used, each with all its attempts.

        Only runs that have told what they used are among them.
        """

    async def times_of(self, task_id: int, most: int) -> list[Amounts]:
        """Return how long the newest finished runs of a task have worked, and nothing else."""

    async def used_on(self, scope: BudgetScope, key: int, day: str) -> BudgetUsage:
        """Return what a task or a space has used on a day, and what is set aside beside that."""

    async def held_back(self, space_id: int | None) -> tuple[int, str | None]:
        """Return how many runs budgets hold back, and why one of them."""


class Talking(Timed, Protocol):
    """Operations for the case of success, effects that happen once, questions of running attempts.

    A write raises Fenced, and changes nothing, where the run is not running at that epoch.
    """

    async def defer(
        self, speaker: AttemptRef, operations: Sequence[DeferredOperation]
    ) -> list[DeferredResult]:
        """Keep operations until the attempt ends, all or none; Conflict if they are too many.

        One whose name is deferred or done already is left out.
        """

    async def do_once(
        self, speaker: AttemptRef, name: str, result: str, delivery: NewDelivery | None = None
    ) -> Effect:
        """Record an effect, with its message in the outbox; or return the one that was before."""

    async def find_effect(self, speaker: AttemptRef, name: str) -> Effect | None:
        """Return an effect of a slot by its name."""

    async def asked_of(self, run_ids: Sequence[int]) -> dict[RunId, WaitingForAnswer]:
        """Return what running attempts have asked and wait to be settled for."""

    async def outward_of(self, run_ids: Sequence[int]) -> set[RunId]:
        """Return the runs of which something has left: an effect, or what a person approved."""

    async def begun_of(self, run_ids: Sequence[int]) -> dict[RunId, bool]:
        """Return the runs whose program was begun, and whether it could write outside.

        What was running before a restore may have been, and may have.
        """

    async def deferred_of(
        self, run_ids: Sequence[int]
    ) -> list[tuple[RunId, Epoch, DeferredOperation]]:
        """Return what is deferred, in order."""

    async def overstaying(self, home: str, before: int) -> list[tuple[RunId, Epoch]]:
        """Return the kept attempts of a home that asked before an instant and still go on."""


class Threads(Timed, Protocol):
    """Conversations; one belongs to the space that it was first known in."""

    async def put_thread(self, thread: NewThread) -> Thread:
        """Make sure a thread exists, belongs to a space, and is as is said.

        NotFound if it belongs to another one.
        """

    async def get_thread(self, key: str) -> Thread | None:
        """Return a thread; None if there is none."""

    async def list_threads(self, wanted: ThreadFilter) -> list[Thread]:
        """Return threads, newest first."""

    async def open_runs_in(self, space_id: int, thread: str, most: int) -> list[OpenRun]:
        """Return the runs of a conversation that have not ended, oldest first."""


Looker = TypeVar("Looker", bound=RowVisitor)

Replying: TypeAlias = Callable[["Store", Any], Awaitable[KeptAnswer | None]]
"""Makes the answer to a request of what its change has come to, looking at the store meanwhile."""


class Definitions(Timed, Protocol):
    """What define needs: tasks, schedules, spaces, limits, and runs to be queued."""

    async def add_space(self, name: str, role: SpaceRole, timezone: str) -> Space:
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
    ) -> ClaimResult:
        """Lease ready runs to a worker."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Apply settlements; concurrent callers share a commit."""

    async def approve(self, answer: Settlement, deed: ApprovedAction) -> str | None:
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

    async def renew(self, worker: str, until: int) -> LeaseRenewal:
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

    async def dead_deliveries(self, space_id: int | None, since: int) -> DeadDeliveriesView | None:
        """Return what could not be sent since an instant, in one space or all; None if all was."""

    async def list_runs(self, wanted: RunFilter) -> list[Run]:
        """Return runs, newest first."""

    async def get_run(self, run_id: int) -> Run | None:
        """Return a run by id."""

    async def view_run(self, run_id: int, output: int, deliveries: int) -> RunView | None:
        """Return a run with all of it as of one instant; at most so many of two kinds of it."""

    async def list_attempts(self, run_id: int) -> list[EndedAttempt]:
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
    ) -> RestoreResult:
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

    def behalf(self, request: NewAuditEntry) -> Behalf:
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
