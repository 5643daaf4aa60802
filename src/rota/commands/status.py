"""Status, workers, machines, heartbeats and the audit log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import methodcaller
from typing import Annotated, Any

from rota.commands.catalogue import command
from rota.commands.context import Blocks, DaemonControl, RequestContext
from rota.commands.fields import MAX_ID, Id, Instant, Limit, SpaceName, Word
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

NO_LOAD = MachineLoad()
MAX_SAMPLE_AGE = 10 * 60 * 1_000_000
"""Maximum age of a machine sample that counts as current."""
UNSENT = tuple(state for state in DeliveryState if state not in AT_REST)


class QueueResponse(ResponseModel):
    """Counts of runs in the queue."""

    ready: int
    delayed: int
    held: int
    running: int
    waiting: int
    stuck: int
    oldest_seconds: dict[str, float]


class SchedulesResponse(ResponseModel):
    """Counts of schedules."""

    active: int
    quarantined: int


class WorkerResponse(ResponseModel):
    """A worker process."""

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
    """A warning; the code is stable."""

    code: str
    message: Annotated[str, From("sentence")]


class PoolResponse(ResponseModel):
    """Ready runs of a pool."""

    ready: int
    oldest_seconds: float | None


class SlotResponse(ResponseModel):
    """A worker slot in use, with its run; the worker is visible to `main` only."""

    run: Annotated[int, From("run_id")]
    task: str
    space: str
    worker: str | None
    since: datetime


class SlotsResponse(ResponseModel):
    """Worker slots in use, and the total of all live workers.

    `running` has at most 100 of them, longest first.
    """

    used: int
    of: int
    running: list[SlotResponse]


class PollerResponse(ResponseModel):
    """A poller of this daemon, with the time since its last successful step."""

    name: str
    seconds_since_success: Annotated[float, From("silent_for")]
    failures: int
    error: Annotated[str | None, From("last_error")]


class DaemonStatusResponse(ResponseModel):
    """The daemon that serves the request."""

    state: str
    pollers: list[PollerResponse]


class StatusResponse(ResponseModel):
    """The status of all spaces, or for a member of its own space.

    `idle` is why no worker claims runs, and what to do about it.
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
    """All known workers."""

    workers: list[WorkerResponse]


class MachineResponse(ResponseModel):
    """A host with workers."""

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
    """All hosts with workers."""

    machines: list[MachineResponse]


class AuditQuery(RequestModel):
    """Filter for audit entries."""

    space: SpaceName | None = None
    before: Id | None = None
    limit: Limit = 100


class AuditEntryResponse(ResponseModel):
    """A change that a caller requested."""

    id: int
    at: datetime
    caller: str
    space: str
    command: str
    subject: dict[str, Any]


class AuditList(ResponseModel):
    """Audit entries, newest first; `next` continues the list as `before`."""

    entries: list[AuditEntryResponse]
    next: int | None


@command("GET", "/v1/status", KeyScope.READ)
async def show_status(context: RequestContext, request: EmptyRequest) -> StatusResponse:  # noqa: ARG001
    """Return the status of all spaces, or for a member of its own space."""
    is_main = context.caller.role is SpaceRole.MAIN
    space = None if is_main else (await context.store.read(find_space, context.caller.space)).id
    seen = await view_status(
        context.store, context.app.limits.warnings, space, context.daemon_state
    )
    queue = seen.queue
    hidden = {} if is_main else {"worker": None}
    running = [SlotResponse.from_model(slot, **hidden) for slot in seen.slots]
    workers = [
        WorkerResponse.from_model(worker, alive=worker.alive(seen.now)) for worker in seen.workers
    ]
    own = context.app.daemon if is_main else None
    daemon = None if own is None else _daemon(own)
    problems = await context.store.database.problems()
    problems += [] if own is None else service_problems(own.services)
    problems += [] if own is None else _plugin_problems(context.app.plugins.problems)
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
        workers=workers if is_main else [],
        idle=None if seen.idle is None else seen.idle.sentence(),
        warnings=[
            WarningResponse.from_model(warning)
            for warning in _warnings(seen, daemon, problems, blocks, is_main=is_main)
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


def _warnings(
    seen: Status,
    daemon: DaemonStatusResponse | None,
    problems: Sequence[Problem],
    blocks: Blocks | None,
    *,
    is_main: bool,
) -> list[StatusWarning]:
    """Return the warnings of the store and of this daemon."""
    known = {warning.code for warning in seen.warnings}
    found = [
        StatusWarning(code=each.code, sentence=each.whole() if is_main else each.sentence)
        for each in problems
        if each.code not in known
    ]
    found += seen.warnings
    if daemon is not None and daemon.state != "working":
        idle = IDLE.get(daemon.state, RESTING)
        sentence = f"this daemon is {daemon.state} and claims no runs: {idle.step}"
        found.append(StatusWarning(code="daemon_stopped", sentence=sentence))
    return [*found, *_block_warnings(blocks)]


def _block_warnings(blocks: Blocks | None) -> list[StatusWarning]:
    recent = [] if blocks is None else blocks.recent()
    if not recent:
        return []
    longest = max(block.seconds for block in recent)
    last = recent[-1]
    sentence = (
        f"code blocked the event loop {count_text(len(recent), 'time')} in the last hour, for "
        f"at most {longest:.1f} s, most recently in {last.ran or 'unknown code'}: "
        "see loop.blocked in the log"
    )
    return [StatusWarning(code="loop_blocked", sentence=sentence)]


@command("GET", "/v1/workers", KeyScope.ADMIN)
async def list_workers(context: RequestContext, request: EmptyRequest) -> WorkerList:  # noqa: ARG001
    """List workers."""
    check_main(context.caller)
    now = from_micros(context.store.now())
    found = await context.store.read(store_views.list_workers)
    return WorkerList(
        workers=[WorkerResponse.from_model(worker, alive=worker.alive(now)) for worker in found]
    )


@command("GET", "/v1/machines", KeyScope.ADMIN)
async def list_machines(context: RequestContext, request: EmptyRequest) -> MachineList:  # noqa: ARG001
    """List hosts with their workers and load."""
    check_main(context.caller)
    now = from_micros(context.store.now())
    hosts: dict[str, list[WorkerResponse]] = defaultdict(list)
    for worker in await context.store.read(store_views.list_workers):
        hosts[worker.host].append(WorkerResponse.from_model(worker, alive=worker.alive(now)))
    since = context.store.now() - MAX_SAMPLE_AGE
    loads = {
        sample.host: sample.load
        for sample in await context.store.read(newest_machine_samples, since)
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
                **loads.get(host, NO_LOAD)._asdict(),
            )
            for host, on in sorted(hosts.items())
        ]
    )


@command("GET", "/v1/audit", KeyScope.ADMIN)
async def list_audit_entries(context: RequestContext, request: AuditQuery) -> AuditList:
    """List changes with their callers, newest first."""
    space = visible_space(context.caller, request.space)
    before = MAX_ID if request.before is None else request.before
    found = await context.store.read(audit.list_audit_entries, space, before, request.limit)
    return AuditList(
        entries=[AuditEntryResponse.from_model(entry) for entry in found],
        next=found[-1].id if len(found) == request.limit else None,
    )


HOUR = timedelta(hours=1)


class MachineSamplesQuery(RequestModel):
    """Filter for machine samples, by default of the last hour."""

    since: Instant | None = None
    before: Instant | None = None
    host: Word | None = None
    limit: Limit = 100


class MachineSampleResponse(ResponseModel):
    """Running attempts of a home and the load of its machine at one time."""

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
    """Machine samples, newest first; `next` continues the list as `before`."""

    samples: list[MachineSampleResponse]
    next: datetime | None


class HeartbeatsQuery(RequestModel):
    """Filter for running attempts."""

    space: SpaceName | None = None
    limit: Limit = 100


class AttemptHeartbeatResponse(ResponseModel):
    """A running attempt with its last heartbeat."""

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
    """Running attempts, oldest heartbeat first."""

    heartbeats: list[AttemptHeartbeatResponse]


@command("GET", "/v1/machines/samples", KeyScope.ADMIN)
async def list_machine_samples(
    context: RequestContext, request: MachineSamplesQuery
) -> MachineSampleList:
    """List machine samples, one for each heartbeat of a daemon, newest first."""
    check_main(context.caller)
    now = from_micros(context.store.now())
    since = to_micros(request.since or now - HOUR)
    before = to_micros(request.before or now + HOUR)
    found = await context.store.read(
        heartbeats.list_machine_samples, since, before, request.host, request.limit
    )
    more = len(found) == request.limit
    return MachineSampleList(
        samples=[MachineSampleResponse.from_model(sample) for sample in found],
        next=found[-1].at if more else None,
    )


@command("GET", "/v1/heartbeats", KeyScope.READ)
async def list_heartbeats(context: RequestContext, request: HeartbeatsQuery) -> HeartbeatList:
    """List running attempts with their last heartbeats."""
    name = visible_space(context.caller, request.space)
    space = None if name is None else (await context.store.read(find_space, name)).id
    found = await context.store.read(list_attempt_heartbeats, space, request.limit)
    return HeartbeatList(heartbeats=[AttemptHeartbeatResponse.from_model(one) for one in found])
