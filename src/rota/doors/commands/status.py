"""How the whole is doing: queue, workers, machines, and what was asked for."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

from rota.doors.commands.shapes import LARGEST_ID, Asked, Given, Id, Limit, Nothing, SpaceName
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.flow.observe.status import view_status
from rota.model.instants import from_micros
from rota.model.keys import KeyScope
from rota.model.spaces import Role
from rota.model.views import WorkerView
from rota.rules.permission import seen_space


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


class StatusGiven(Given):
    """Everything at a glance."""

    at: datetime
    queue: QueueGiven
    schedules: SchedulesGiven
    unserved_routes: list[str]
    next_due: datetime | None
    workers: list[WorkerGiven]
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
        alive=not worker.fenced and worker.lease_until >= now,
        started_at=worker.started_at,
        seen_at=worker.seen_at,
    )


@command("GET", "/v1/status", KeyScope.READ)
async def show_status(office: Office, asked: Nothing) -> StatusGiven:  # noqa: ARG001
    """Return how the whole is doing."""
    seen = await view_status(office.store, office.bounds.warnings)
    queue = seen.queue
    whole = office.caller.role is Role.MAIN
    return StatusGiven(
        at=seen.now,
        queue=QueueGiven(
            ready=queue.ready,
            later=queue.later,
            held=queue.held,
            running=queue.running,
            waiting=queue.waiting,
            stuck=queue.stuck,
            oldest_seconds=seen.ages,
        ),
        schedules=SchedulesGiven(active=queue.schedules, quarantined=queue.quarantined),
        unserved_routes=list(queue.unserved_routes),
        next_due=seen.next_due,
        workers=[_worker(worker, seen.now) for worker in seen.workers] if whole else [],
        warnings=[WarningGiven(code=w.code, message=w.sentence) for w in seen.warnings],
    )


@command("GET", "/v1/workers", KeyScope.ADMIN)
async def list_workers(office: Office, asked: Nothing) -> Workers:  # noqa: ARG001
    """List workers."""
    now = from_micros(office.store.now())
    found = await office.store.list_workers()
    return Workers(workers=[_worker(worker, now) for worker in found])


@command("GET", "/v1/machines", KeyScope.ADMIN)
async def list_machines(office: Office, asked: Nothing) -> Machines:  # noqa: ARG001
    """List hosts with the workers on them."""
    now = from_micros(office.store.now())
    hosts: dict[str, list[WorkerGiven]] = defaultdict(list)
    for worker in await office.store.list_workers():
        hosts[worker.host].append(_worker(worker, now))
    return Machines(
        machines=[
            MachineGiven(
                host=host,
                workers=len(on),
                alive=sum(worker.alive for worker in on),
                slots=sum(worker.slots for worker in on if worker.alive),
                running=sum(worker.running for worker in on),
                seen_at=max(worker.seen_at for worker in on),
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
