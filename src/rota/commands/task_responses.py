"""Tasks and schedules as they are sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from rota.commands.responses import ResponseModel
from rota.errors import RotaError
from rota.flow.observe.views import TaskActivity
from rota.model.instants import to_micros
from rota.model.json import to_json
from rota.model.programs import LimitEnforcement, NetworkAccess
from rota.model.schedules import RuleKind, ScheduleState, StoredSchedule
from rota.model.spaces import SpaceRole
from rota.model.tasks import AfterOn, Policy, Task, TaskKind
from rota.ports.host import SiteChecker
from rota.rules.checks import CHECKS, GATE, NEXT_CHECK
from rota.rules.task_spec import AGENT_FIELDS, LIMIT_FIELDS, site_of
from rota.timing.descriptions import describe
from rota.timing.rule_builders import from_record

MAX_LISTED = 2_000
"""How many tasks are kept as they were listed."""


class ScheduleSummary(ResponseModel):
    """When a task runs, in words."""

    id: int
    name: str
    kind: RuleKind | None
    words: str
    timezone: str
    state: ScheduleState
    note: str | None
    next_at: datetime | None


class ScheduleResponse(ScheduleSummary):
    """When a task runs."""

    task: str
    task_id: int
    space: str
    version: int
    rule: dict[str, Any]


class DependencyResponse(ResponseModel):
    """The task that a task follows."""

    task: str
    on: AfterOn


class TaskSummary(ResponseModel):
    """What to do, and when."""

    id: int
    name: str
    space: str
    thread: str | None
    title: str
    kind: TaskKind
    route: str
    instructions: str | None
    call: str | None
    command: list[str] | None
    shell: bool
    state: Literal["enabled", "disabled", "paused"]
    paused_until: datetime | None
    disabled_reason: str | None
    failures: int
    origin: str
    after: DependencyResponse | None
    schedules: Sequence[ScheduleSummary]
    created_at: datetime
    updated_at: datetime


class TaskResponse(TaskSummary):
    """What to do, when, and under which rules; `wish` is what its agent was asked for."""

    agent: str | None
    wish: dict[str, Any]
    policy: dict[str, Any]
    checks: list[dict[str, Any]]
    gate: dict[str, Any] | None
    next_check: dict[str, Any] | None
    schedules: Sequence[ScheduleResponse]

    def etag(self) -> str:
        """Return what changes whenever the task or one of its schedules does."""
        parts = [to_micros(self.updated_at), *(s.version for s in self.schedules)]
        return f'"{self.id}-{"-".join(format(part, "x") for part in parts)}"'


class SiteResponse(ResponseModel):
    """Where a task's programs run; `usual` says that the task leaves it to its space.

    `held` says for whom each of its bounds can be held where this was asked.
    """

    executor: str
    usual: bool
    isolated: bool
    image: str | None
    mounts: list[str]
    network: NetworkAccess
    folder: str | None
    memory_mib: int | None
    processes: int | None
    cpus: float | None
    held: dict[str, LimitEnforcement]


class ActivityResponse(ResponseModel):
    """What a task is doing; `position` is its place in the queue of its pool and space, from 1."""

    state: Literal["free", "queued", "running", "waiting"]
    run: int | None
    since: datetime | None
    position: int | None
    question: str | None


_listed: dict[int, tuple[Task, Sequence[StoredSchedule], TaskSummary]] = {}


class _Told(NamedTuple):
    record: dict[str, Any]
    kind: RuleKind | None
    words: str


@lru_cache(maxsize=10_000)
def _told(rule: str) -> _Told:
    """Return what a stored rule says, and says in words; many schedules share one."""
    record = json.loads(rule)
    try:
        read = from_record(record)
        return _Told(record, read.kind, describe(read))
    except RotaError as fault:  # set aside by the planner; the rest of the answer still stands
        return _Told(record, None, f"cannot be read: {fault}")


@lru_cache(maxsize=1_000)
def _policy(policy: Policy) -> dict[str, Any]:
    record = to_json(policy)
    return record if isinstance(record, dict) else {}


def schedule_given(schedule: StoredSchedule) -> ScheduleResponse:
    """Return a schedule with its rule, and the rule in words."""
    return ScheduleResponse.model_construct(
        **_schedule_line(schedule),
        task=schedule.task,
        task_id=schedule.task_id,
        space=schedule.space,
        version=schedule.version,
        rule=_told(schedule.rule).record,
    )


def _schedule_line(schedule: StoredSchedule) -> dict[str, Any]:
    record, kind, words = _told(schedule.rule)
    return {
        "id": schedule.id,
        "name": schedule.name,
        "kind": kind,
        "words": words,
        "timezone": str(record.get("timezone", "UTC")),
        "state": schedule.state,
        "note": schedule.note,
        "next_at": schedule.next_at,
    }


def task_given(task: Task, schedules: Sequence[StoredSchedule], now: datetime) -> TaskResponse:
    """Return a task with its schedules and its policy."""
    return TaskResponse.model_construct(
        **_task_line(task, _task_state(task, now)),
        agent=_text(task.spec.get("agent")),
        wish={name: task.spec[name] for name in AGENT_FIELDS if name in task.spec},
        policy=_policy(task.policy),
        checks=task.spec.get(CHECKS) or [],
        gate=task.spec.get(GATE),
        next_check=task.spec.get(NEXT_CHECK),
        schedules=[schedule_given(schedule) for schedule in schedules],
    )


def task_listed(task: Task, schedules: Sequence[StoredSchedule], now: datetime) -> TaskSummary:
    """Return a task as a list shows it; one that stands as it stood is not made anew."""
    state = _task_state(task, now)
    known = _listed.get(task.id)
    if known is not None and known[0] is task and known[1] == schedules and known[2].state == state:
        return known[2]
    lines = [ScheduleSummary.model_construct(**_schedule_line(schedule)) for schedule in schedules]
    made = TaskSummary.model_construct(**_task_line(task, state), schedules=lines)
    if len(_listed) >= MAX_LISTED:
        _listed.clear()
    _listed[task.id] = (task, schedules, made)
    return made


async def site_given(task: Task, role: SpaceRole, sites: SiteChecker | None) -> SiteResponse | None:
    """Return where a task's programs run; callables have no other place than Rota itself."""
    if task.kind is TaskKind.PYTHON:
        return None
    try:
        site = site_of(task.spec, role)
    except RotaError:  # its runs are refused with the reason; the rest of the answer still stands
        return None
    bounds = [name for name in LIMIT_FIELDS if task.spec.get(name) is not None]
    held = await sites.limit_enforcement(site) if sites is not None and bounds else {}
    return SiteResponse.model_construct(
        executor=site.executor,
        usual=task.spec.get("executor") is None,
        isolated=site.isolated,
        image=site.image,
        mounts=[str(share) for share in site.mounts],
        network=site.network,
        folder=_text(task.spec.get("folder")),
        memory_mib=task.spec.get("memory_mib"),
        processes=task.spec.get("processes"),
        cpus=task.spec.get("cpus"),
        held={name: held[name] for name in bounds if name in held},
    )


def activity_given(seen: TaskActivity) -> ActivityResponse:
    """Return what a task is doing as it goes over a wire."""
    run, asked = seen.run, seen.question
    return ActivityResponse.model_construct(
        state=seen.state,
        run=None if run is None else run.id,
        since=None if run is None else run.started_at or run.created_at,
        position=None if seen.ahead is None else seen.ahead + 1,
        question=None if asked is None else asked.question,
    )


def _task_state(task: Task, now: datetime) -> str:
    if not task.enabled:
        return "disabled"
    return "paused" if task.paused_until is not None and task.paused_until > now else "enabled"


def _task_line(task: Task, state: str) -> dict[str, Any]:
    after = None
    if task.after is not None:
        after = DependencyResponse.model_construct(task=task.after.task, on=task.after.on)
    return {
        "id": task.id,
        "name": task.name,
        "space": task.space,
        "thread": task.thread,
        "title": task.title,
        "kind": task.kind,
        "route": task.route,
        "instructions": _text(task.spec.get("instructions")),
        "call": _text(task.spec.get("call")),
        "command": task.spec.get("command"),
        "shell": bool(task.spec.get("shell")),
        "state": state,
        "paused_until": task.paused_until,
        "disabled_reason": task.disabled_reason,
        "failures": task.failures,
        "origin": task.origin,
        "after": after,
        "created_at": task.created_at,
        "updated_at": task.updated_at,
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
