"""How the whole is doing: queue, workers, machines, and what was asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rota.doors.commands.fields import LARGEST_ID, Id, Limit, SpaceName
from rota.doors.commands.shapes import Asked, Given, Nothing
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Blocks, Daemon, Office
from rota.flow.observe.hands import IDLE, RESTING
from rota.flow.observe.readiness import service_problems
from rota.flow.observe.status import Status, Warned, view_status
from rota.flow.observe.telling import counted
from rota.model.deliveries import AT_REST, DeliveryState
from rota.model.instants import from_micros
from rota.model.keys import KeyScope
from rota.model.machines import Load
from rota.model.problems import Problem
from rota.model.spaces import Role
from rota.model.tasks import Pool
from rota.model.views import QueueView, SlotView, WorkerView
from rota.rules.permission import check_main, seen_space

UNREAD = Load()
RECENT = 10 * 60 * 1_000_000
"""How old a reading of a machine may be to tell how it is doing."""
UNSENT = tuple(state for state in DeliveryState if state not in AT_REST)


class QueueGiven(Given):
    """How full the queue is."""

    ready: int
    later: int
    held: int
    running: int
    waiting: int
    stuck: int
    oldest_seconds: dict[str, float]


class SchedulesGiven(Given):
    """How many schedules there are."""

    active: int
    quarantined: int


class WorkerGiven(Given):
    """A process with slots."""

    id: str
    host: str
    pid: int
    roles: list[str]
    routes: list[str]
    slots: int
    running: int
    alive: bool
    started_at: datetime
    seen_at: datetime


class WarningGiven(Given):
    """Something to look at; the code is stable."""

    code: str
    message: str


class PoolGiven(Given):
    """What is ready in a pool."""

    ready: int
    oldest_seconds: float | None


class SlotGiven(Given):
    """A slot that is in use: the run in it, and since when; workers are told to `main` alone."""

    run: int
    task: str
    space: str
    worker: str | None
    since: datetime


class SlotsGiven(Given):
    """How many runs there are at once, of how many the living workers can take.

    `running` has at most 100 of them, the longest first.
    """

    used: int
    of: int
    running: list[SlotGiven]


class ServiceGiven(Given):
    """One loop of this daemon, and for how long it has not ended a step well."""

    name: str
    silent_seconds: float
    failures: int
    error: str | None


class DaemonSeen(Given):
    """The daemon that answers."""

    state: str
    services: list[ServiceGiven]


class StatusGiven(Given):
    """Everything at a glance; to a member its own space alone.

    `idle` says why nobody takes work, and what to do, if nobody does.
    """

    at: datetime
    paused_since: datetime | None
    queue: QueueGiven
    pools: dict[str, PoolGiven]
    slots: SlotsGiven
    deliveries: dict[str, int]
    daemon: DaemonSeen | None
    schedules: SchedulesGiven
    unserved_routes: list[str]
    next_due: datetime | None
    workers: list[WorkerGiven]
    idle: str | None
    warnings: list[WarningGiven]


class Workers(Given):
    """Every known worker."""

    workers: list[WorkerGiven]


class MachineGiven(Given):
    """A host on which workers are."""

    host: str
    workers: int
    alive: int
    slots: int
    running: int
    seen_at: datetime
    cpu_percent: float | None
    memory_bytes: int | None
    memory_total: int | None


class Machines(Given):
    """Every host on which workers are."""

    machines: list[MachineGiven]


class RequestsWanted(Asked):
    """Which requests to list, newest first."""

    space: SpaceName | None = None
    before: Id | None = None
    limit: Limit = 100


class RequestGiven(Given):
    """A change that somebody asked for through a door."""

    id: int
    at: datetime
    caller: str
    space: str
    command: str
    about: dict[str, Any]


class Requests(Given):
    """What was changed and by whom, newest first; `next` continues the list as `before`."""

    requests: list[RequestGiven]
    next: int | None


def _worker(worker: WorkerView, now: datetime) -> WorkerGiven:
    return WorkerGiven(
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        roles=worker.roles.split(","),
        routes=list(worker.routes),
        slots=worker.slots,
        running=worker.running,
        alive=worker.alive(now),
        started_at=worker.started_at,
        seen_at=worker.seen_at,
    )


@command("GET", "/v1/status", KeyScope.READ)
async def show_status(office: Office, asked: Nothing) -> StatusGiven:  # noqa: ARG001
    """Return how the whole is doing, or to a member how its space is doing."""
    whole = office.caller.role is Role.MAIN
    space = None if whole else (await office.store.find_space(office.caller.space)).id
    seen = await view_status(office.store, office.bounds.warnings, space, office.own)
    queue = seen.queue
    workers = [_worker(worker, seen.now) for worker in seen.workers]
    own = office.daemon if whole else None
    daemon = None if own is None else _daemon(own)
    problems = await office.store.problems()
    problems += [] if own is None else service_problems(own.services)
    blocks = None if own is None else own.blocks
    return StatusGiven(
        at=seen.now,
        paused_since=seen.paused_since,
        queue=QueueGiven(
            ready=queue.ready,
            later=queue.later,
            held=queue.held,
            running=queue.running,
            waiting=queue.waiting,
            stuck=queue.stuck,
            oldest_seconds=seen.ages,
        ),
        pools=_pools(queue, seen.now),
        slots=SlotsGiven(
            used=queue.running,
            of=sum(w.slots for w in workers if w.alive),
            running=[_slot(slot, whole=whole) for slot in seen.slots],
        ),
        deliveries={state.value: 0 for state in UNSENT} | dict(queue.unsent),
        daemon=daemon,
        schedules=SchedulesGiven(active=queue.schedules, quarantined=queue.quarantined),
        unserved_routes=list(queue.unserved_routes),
        next_due=seen.next_due,
        workers=workers if whole else [],
        idle=None if seen.idle is None else seen.idle.sentence(),
        warnings=[
            WarningGiven(code=w.code, message=w.sentence)
            for w in _warned(seen, daemon, problems, blocks, whole=whole)
        ],
    )


def _slot(slot: SlotView, *, whole: bool) -> SlotGiven:
    return SlotGiven(
        run=slot.run_id,
        task=slot.task,
        space=slot.space,
        worker=slot.worker if whole else None,
        since=slot.since,
    )


def _pools(queue: QueueView, now: datetime) -> dict[str, PoolGiven]:
    ready = {pool.pool: pool for pool in queue.pools}
    given = {}
    for pool in Pool:
        found = ready.get(pool.value)
        age = None if found is None else max(0.0, (now - found.oldest_ready).total_seconds())
        count = 0 if found is None else found.ready
        given[pool.value] = PoolGiven(ready=count, oldest_seconds=age)
    return given


def _daemon(daemon: Daemon) -> DaemonSeen:
    services = [
        ServiceGiven(
            name=service.name,
            silent_seconds=service.silent_for,
            failures=service.failures,
            error=service.last_error,
        )
        for service in daemon.services
    ]
    return DaemonSeen(state=daemon.state, services=services)


def _warned(
    seen: Status,
    daemon: DaemonSeen | None,
    problems: Sequence[Problem],
    blocks: Blocks | None,
    *,
    whole: bool,
) -> list[Warned]:
    """Return the warnings of the store, and those that this daemon has of itself."""
    known = {warning.code for warning in seen.warnings}
    found = [
        Warned(code=each.code, sentence=each.whole() if whole else each.sentence)
        for each in problems
        if each.code not in known
    ]
    found += seen.warnings
    if daemon is not None and daemon.state != "working":
        idle = IDLE.get(daemon.state, RESTING)
        sentence = f"this daemon is {daemon.state} and takes nothing new: {idle.step}"
        found.append(Warned(code="daemon_stopped", sentence=sentence))
    return [*found, *_block_warnings(blocks)]


def _block_warnings(blocks: Blocks | None) -> list[Warned]:
    lately = [] if blocks is None else blocks.lately()
    if not lately:
        return []
    longest = max(block.seconds for block in lately)
    last = lately[-1]
    sentence = (
        f"code blocked this daemon {counted(len(lately), 'time')} in the last hour, for "
        f"{longest:.1f} s at the longest, and last in {last.ran or 'what nobody has seen'}: "
        "look for loop.blocked in its log"
    )
    return [Warned(code="loop_blocked", sentence=sentence)]


@command("GET", "/v1/workers", KeyScope.ADMIN)
async def list_workers(office: Office, asked: Nothing) -> Workers:  # noqa: ARG001
    """List workers."""
    check_main(office.caller)
    now = from_micros(office.store.now())
    found = await office.store.list_workers()
    return Workers(workers=[_worker(worker, now) for worker in found])


@command("GET", "/v1/machines", KeyScope.ADMIN)
async def list_machines(office: Office, asked: Nothing) -> Machines:  # noqa: ARG001
    """List hosts with the workers on them, and how busy they are as a whole."""
    check_main(office.caller)
    now = from_micros(office.store.now())
    hosts: dict[str, list[WorkerGiven]] = defaultdict(list)
    for worker in await office.store.list_workers():
        hosts[worker.host].append(_worker(worker, now))
    since = office.store.now() - RECENT
    loads = {reading.host: reading.load for reading in await office.store.newest_readings(since)}
    return Machines(
        machines=[
            MachineGiven(
                host=host,
                workers=len(on),
                alive=sum(worker.alive for worker in on),
                slots=sum(worker.slots for worker in on if worker.alive),
                running=sum(worker.running for worker in on),
                seen_at=max(worker.seen_at for worker in on),
                **loads.get(host, UNREAD)._asdict(),
            )
            for host, on in sorted(hosts.items())
        ]
    )


@command("GET", "/v1/requests", KeyScope.ADMIN)
async def list_requests(office: Office, asked: RequestsWanted) -> Requests:
    """List what was changed and by whom, newest first."""
    space = seen_space(office.caller, asked.space)
    before = LARGEST_ID if asked.before is None else asked.before
    found = await office.store.list_requests(space, before, asked.limit)
    return Requests(
        requests=[
            RequestGiven(
                id=one.id,
                at=one.at,
                caller=one.caller,
                space=one.space,
                command=one.command,
                about=one.about,
            )
            for one in found
        ],
        next=found[-1].id if len(found) == asked.limit else None,
    )
