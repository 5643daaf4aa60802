"""Status, workers, machines, heartbeats and the audit log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import methodcaller
from typing import Annotated, Any

from rota.commands.catalogue import command
from rota.commands.context import Blocks, DaemonControl, RequestContext
from rota.commands.fields import LARGEST_ID, Id, Instant, Limit, SpaceName, Word
from rota.commands.responses import EmptyRequest, From, RequestModel, ResponseModel
from rota.flow.observe.readiness import service_problems
from rota.flow.observe.status import IDLE, RESTING, Status, StatusWarning, view_status
from rota.flow.observe.time_text import count_text
from rota.model.heartbeats import MachineLoad
from rota.model.instants import from_micros, to_micros
from rota.model.keys import KeyScope
from rota.model.notifications import AT_REST, DeliveryState
from rota.model.problems import Problem
from rota.model.spaces import SpaceRole
from rota.model.tasks import Pool
from rota.model.views import QueueView
from rota.ports.plugins import PluginProblem
from rota.rules.permissions import check_main, visible_space
from rota.store import audit, heartbeats
from rota.store import views as store_views
from rota.store.heartbeats import (
    list_attempt_heartbeats,
    newest_machine_samples,
)
from rota.store.tasks import find_space

UNREAD = MachineLoad()
RECENT = 10 * 60 * 1_000_000
"""How old a reading of a machine may be to tell how it is doing."""
UNSENT = tuple(state for state in DeliveryState if state not in AT_REST)


class QueueResponse(ResponseModel):
    """How full the queue is."""

    ready: int
    delayed: int
    held: int
    running: int
    waiting: int
    stuck: int
    oldest_seconds: dict[str, float]


class SchedulesResponse(ResponseModel):
    """How many schedules there are."""

    active: int
    quarantined: int


class WorkerResponse(ResponseModel):
    """A process with slots."""

    id: str
    host: str
    pid: int
    roles: Annotated[list[str], From(read=methodcaller("split", ","))]
    routes: list[str]
    slots: int
    running: int
    alive: bool
    started_at: datetime
    seen_at: datetime


class WarningResponse(ResponseModel):
    """Something to look at; the code is stable."""

    code: str
    message: Annotated[str, From("sentence")]


class PoolResponse(ResponseModel):
    """What is ready in a pool."""

    ready: int
    oldest_seconds: float | None


class SlotResponse(ResponseModel):
    """A slot that is in use: the run in it, and since when; workers are told to `main` alone."""

    run: Annotated[int, From("run_id")]
    task: str
    space: str
    worker: str | None
    since: datetime


class SlotsResponse(ResponseModel):
    """How many runs there are at once, of how many the living workers can take.

    `running` has at most 100 of them, the longest first.
    """

    used: int
    of: int
    running: list[SlotResponse]


class PollerResponse(ResponseModel):
    """One loop of this daemon, and for how long it has not ended a step well."""

    name: str
    seconds_since_success: Annotated[float, From("silent_for")]
    failures: int
    error: Annotated[str | None, From("last_error")]


class DaemonStatusResponse(ResponseModel):
    """The daemon that answers."""

    state: str
    pollers: list[PollerResponse]


class StatusResponse(ResponseModel):
    """Everything at a glance; to a member its own space alone.

    `idle` says why nobody takes work, and what to do, if nobody does.
    """

    at: datetime
    paused_since: datetime | None
    queue: QueueResponse
    pools: dict[str, PoolResponse]
    slots: SlotsResponse
    deliveries: dict[str, int]
    daemon: DaemonStatusResponse | None
    schedules: SchedulesResponse
    unserved_routes: list[str]
    next_due: datetime | None
    workers: list[WorkerResponse]
    idle: str | None
    warnings: list[WarningResponse]


class WorkerList(ResponseModel):
    """Every known worker."""

    workers: list[WorkerResponse]


class MachineResponse(ResponseModel):
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


class MachineList(ResponseModel):
    """Every host on which workers are."""

    machines: list[MachineResponse]


class AuditQuery(RequestModel):
    """Which requests to list, newest first."""

    space: SpaceName | None = None
    before: Id | None = None
    limit: Limit = 100


class AuditEntryResponse(ResponseModel):
    """A change that somebody asked for through a door."""

    id: int
    at: datetime
    caller: str
    space: str
    command: str
    subject: dict[str, Any]


class AuditList(ResponseModel):
    """What was changed and by whom, newest first; `next` continues the list as `before`."""

    entries: list[AuditEntryResponse]
    next: int | None


@command("GET", "/v1/status", KeyScope.READ)
async def show_status(office: RequestContext, asked: EmptyRequest) -> StatusResponse:  # noqa: ARG001
    """Return how the whole is doing, or to a member how its space is doing."""
    whole = office.caller.role is SpaceRole.MAIN
    space = None if whole else (await office.store.read(find_space, office.caller.space)).id
    seen = await view_status(office.store, office.app.limits.warnings, space, office.own)
    queue = seen.queue
    hidden = {} if whole else {"worker": None}
    running = [SlotResponse.from_model(slot, **hidden) for slot in seen.slots]
    workers = [
        WorkerResponse.from_model(worker, alive=worker.alive(seen.now)) for worker in seen.workers
    ]
    own = office.app.daemon if whole else None
    daemon = None if own is None else _daemon(own)
    problems = await office.store.database.problems()
    problems += [] if own is None else service_problems(own.services)
    problems += [] if own is None else _plugin_problems(office.app.plugins.problems)
    blocks = None if own is None else own.blocks
    return StatusResponse(
        at=seen.now,
        paused_since=seen.paused_since,
        queue=QueueResponse.from_model(queue, oldest_seconds=seen.ages),
        pools=_pools(queue, seen.now),
        slots=SlotsResponse(
            used=queue.running,
            of=sum(w.slots for w in workers if w.alive),
            running=running,
        ),
        deliveries={state.value: 0 for state in UNSENT} | dict(queue.unsent),
        daemon=daemon,
        schedules=SchedulesResponse(active=queue.schedules, quarantined=queue.quarantined),
        unserved_routes=list(queue.unserved_routes),
        next_due=seen.next_due,
        workers=workers if whole else [],
        idle=None if seen.idle is None else seen.idle.sentence(),
        warnings=[
            WarningResponse.from_model(warning)
            for warning in _warned(seen, daemon, problems, blocks, whole=whole)
        ],
    )


def _pools(queue: QueueView, now: datetime) -> dict[str, PoolResponse]:
    ready = {pool.pool: pool for pool in queue.pools}
    given = {}
    for pool in Pool:
        found = ready.get(pool.value)
        age = None if found is None else max(0.0, (now - found.oldest_ready).total_seconds())
        count = 0 if found is None else found.ready
        given[pool.value] = PoolResponse(ready=count, oldest_seconds=age)
    return given


def _plugin_problems(problems: Sequence[PluginProblem]) -> list[Problem]:
    step = "see `rota doctor`"
    return [Problem(code="plugin_failed", sentence=f"{each}: {step}") for each in problems]


def _daemon(daemon: DaemonControl) -> DaemonStatusResponse:
    services = [PollerResponse.from_model(service) for service in daemon.services]
    return DaemonStatusResponse(state=daemon.state, pollers=services)


def _warned(
    seen: Status,
    daemon: DaemonStatusResponse | None,
    problems: Sequence[Problem],
    blocks: Blocks | None,
    *,
    whole: bool,
) -> list[StatusWarning]:
    """Return the warnings of the store, and those that this daemon has of itself."""
    known = {warning.code for warning in seen.warnings}
    found = [
        StatusWarning(code=each.code, sentence=each.whole() if whole else each.sentence)
        for each in problems
        if each.code not in known
    ]
    found += seen.warnings
    if daemon is not None and daemon.state != "working":
        idle = IDLE.get(daemon.state, RESTING)
        sentence = f"this daemon is {daemon.state} and takes nothing new: {idle.step}"
        found.append(StatusWarning(code="daemon_stopped", sentence=sentence))
    return [*found, *_block_warnings(blocks)]


def _block_warnings(blocks: Blocks | None) -> list[StatusWarning]:
    lately = [] if blocks is None else blocks.recent()
    if not lately:
        return []
    longest = max(block.seconds for block in lately)
    last = lately[-1]
    sentence = (
        f"code blocked this daemon {count_text(len(lately), 'time')} in the last hour, for "
        f"{longest:.1f} s at the longest, and last in {last.ran or 'what nobody has seen'}: "
        "look for loop.blocked in its log"
    )
    return [StatusWarning(code="loop_blocked", sentence=sentence)]


@command("GET", "/v1/workers", KeyScope.ADMIN)
async def list_workers(office: RequestContext, asked: EmptyRequest) -> WorkerList:  # noqa: ARG001
    """List workers."""
    check_main(office.caller)
    now = from_micros(office.store.now())
    found = await office.store.read(store_views.list_workers)
    return WorkerList(
        workers=[WorkerResponse.from_model(worker, alive=worker.alive(now)) for worker in found]
    )


@command("GET", "/v1/machines", KeyScope.ADMIN)
async def list_machines(office: RequestContext, asked: EmptyRequest) -> MachineList:  # noqa: ARG001
    """List hosts with the workers on them, and how busy they are as a whole."""
    check_main(office.caller)
    now = from_micros(office.store.now())
    hosts: dict[str, list[WorkerResponse]] = defaultdict(list)
    for worker in await office.store.read(store_views.list_workers):
        hosts[worker.host].append(WorkerResponse.from_model(worker, alive=worker.alive(now)))
    since = office.store.now() - RECENT
    loads = {
        reading.host: reading.load
        for reading in await office.store.read(newest_machine_samples, since)
    }
    return MachineList(
        machines=[
            MachineResponse(
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


@command("GET", "/v1/audit", KeyScope.ADMIN)
async def list_audit_entries(office: RequestContext, asked: AuditQuery) -> AuditList:
    """List what was changed and by whom, newest first."""
    space = visible_space(office.caller, asked.space)
    before = LARGEST_ID if asked.before is None else asked.before
    found = await office.store.read(audit.list_audit_entries, space, before, asked.limit)
    return AuditList(
        entries=[AuditEntryResponse.from_model(entry) for entry in found],
        next=found[-1].id if len(found) == asked.limit else None,
    )


HOUR = timedelta(hours=1)


class MachineSamplesQuery(RequestModel):
    """Which readings to list, newest first: since when (an hour ago), of which machine."""

    since: Instant | None = None
    before: Instant | None = None
    host: Word | None = None
    limit: Limit = 100


class MachineSampleResponse(ResponseModel):
    """What ran in a home at a moment, and how its machine was doing as a whole."""

    at: datetime
    host: str
    home: str
    running: int
    agents: int
    panes: int
    spaces: int
    cpu_percent: Annotated[float | None, From("load.cpu_percent")]
    memory_bytes: Annotated[int | None, From("load.memory_bytes")]
    memory_total: Annotated[int | None, From("load.memory_total")]


class MachineSampleList(ResponseModel):
    """Readings of machines, newest first; `next` continues the list as `before`."""

    samples: list[MachineSampleResponse]
    next: datetime | None


class HeartbeatsQuery(RequestModel):
    """Of which running attempts to tell."""

    space: SpaceName | None = None
    limit: Limit = 100


class AttemptHeartbeatResponse(ResponseModel):
    """A running attempt, and what was last heard of it."""

    run: Annotated[int, From("heartbeat.sample.run_id")]
    attempt: Annotated[int, From("heartbeat.sample.epoch")]
    task: str
    space: str
    executor: Annotated[str | None, From(read=lambda name: name or None)]
    state: Annotated[str, From("heartbeat.sample.state")]
    alive: Annotated[bool, From("heartbeat.sample.alive")]
    started_at: datetime
    seen_at: Annotated[datetime, From("heartbeat.at")]
    output_at: Annotated[datetime | None, From("heartbeat.sample.output_at")]
    last_line: Annotated[str | None, From("heartbeat.sample.last_line")]
    processes: Annotated[int | None, From("heartbeat.sample.processes")]
    cpu_seconds: Annotated[float | None, From("heartbeat.sample.cpu_seconds")]
    memory_bytes: Annotated[int | None, From("heartbeat.sample.memory_bytes")]
    missed_reason: Annotated[str | None, From("heartbeat.missed_reason")]


class HeartbeatList(ResponseModel):
    """Running attempts, longest unheard first."""

    heartbeats: list[AttemptHeartbeatResponse]


@command("GET", "/v1/machines/samples", KeyScope.ADMIN)
async def list_machine_samples(
    office: RequestContext, asked: MachineSamplesQuery
) -> MachineSampleList:
    """List how machines were doing, one reading for each heartbeat of a daemon, newest first."""
    check_main(office.caller)
    now = from_micros(office.store.now())
    since = to_micros(asked.since or now - HOUR)
    before = to_micros(asked.before or now + HOUR)
    found = await office.store.read(
        heartbeats.list_machine_samples, since, before, asked.host, asked.limit
    )
    more = len(found) == asked.limit
    return MachineSampleList(
        samples=[MachineSampleResponse.from_model(reading) for reading in found],
        next=found[-1].at if more else None,
    )


@command("GET", "/v1/heartbeats", KeyScope.READ)
async def list_heartbeats(office: RequestContext, asked: HeartbeatsQuery) -> HeartbeatList:
    """List running attempts with what was last heard of each."""
    name = visible_space(office.caller, asked.space)
    space = None if name is None else (await office.store.read(find_space, name)).id
    found = await office.store.read(list_attempt_heartbeats, space, asked.limit)
    return HeartbeatList(heartbeats=[AttemptHeartbeatResponse.from_model(one) for one in found])
