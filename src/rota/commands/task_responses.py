"""Responses about tasks and schedules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from rota.commands.responses import From, ResponseModel
from rota.errors import RotaError
from rota.model.executors import ExecutorRegistry
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

MAX_SUMMARIES = 2_000
"""How many summaries of tasks are kept."""


class _ReadRule(NamedTuple):
    record: dict[str, Any]
    kind: RuleKind | None
    words: str


@lru_cache(maxsize=10_000)
def _read_rule(rule: str) -> _ReadRule:
    """Return a stored rule with its words; many schedules share one."""
    record = json.loads(rule)
    try:
        read = from_record(record)
        return _ReadRule(record, read.kind, describe(read))
    except RotaError as error:  # quarantined by the planner; the rest of the response still holds
        return _ReadRule(record, None, f"cannot be read: {error}")


@lru_cache(maxsize=1_000)
def _policy_record(policy: Policy) -> object:
    return to_json(policy)


def _spec_text(name: str) -> From:
    """Return the origin of a field that is an optional text of the task's spec."""

    def read(spec: Mapping[str, object]) -> str | None:
        value = spec.get(name)
        return value if isinstance(value, str) else None

    return From("spec", read)


class ScheduleSummary(ResponseModel):
    """A schedule of a task, in words."""

    id: int
    name: str
    kind: Annotated[RuleKind | None, From("rule", lambda rule: _read_rule(rule).kind)]
    words: Annotated[str, From("rule", lambda rule: _read_rule(rule).words)]
    timezone: Annotated[
        str, From("rule", lambda rule: str(_read_rule(rule).record.get("timezone", "UTC")))
    ]
    state: ScheduleState
    note: str | None
    next_at: datetime | None


class ScheduleResponse(ScheduleSummary):
    """A schedule of a task."""

    task: str
    task_id: int
    space: str
    version: int
    rule: Annotated[dict[str, Any], From(read=lambda rule: _read_rule(rule).record)]


class DependencyResponse(ResponseModel):
    """The task after whose runs a task runs."""

    task: str
    on: AfterOn


class TaskSummary(ResponseModel):
    """A task, as in a list."""

    id: int
    name: str
    space: str
    thread: str | None
    title: str
    kind: TaskKind
    route: str
    instructions: Annotated[str | None, _spec_text("instructions")]
    call: Annotated[str | None, _spec_text("call")]
    command: Annotated[list[str] | None, From("spec", methodcaller("get", "command"))]
    shell: Annotated[bool, From("spec", lambda spec: bool(spec.get("shell")))]
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
    """A task with its policy; `agent_spec` is the spec of its agent."""

    agent: Annotated[str | None, _spec_text("agent")]
    agent_spec: Annotated[
        dict[str, Any],
        From("spec", lambda spec: {name: spec[name] for name in AGENT_FIELDS if name in spec}),
    ]
    policy: Annotated[dict[str, Any], From(read=_policy_record)]
    checks: Annotated[list[dict[str, Any]], From("spec", lambda spec: spec.get(CHECKS) or [])]
    gate: Annotated[dict[str, Any] | None, From("spec", methodcaller("get", GATE))]
    next_check: Annotated[dict[str, Any] | None, From("spec", methodcaller("get", NEXT_CHECK))]
    schedules: Sequence[ScheduleResponse]

    def etag(self) -> str:
        """Return the ETag of the task."""
        return task_etag(self, self.schedules)


class SiteResponse(ResponseModel):
    """Where a task's programs run; `default` means that this is the default of its space.

    `terminal` means that `rota attach` can show its runs. `enforced_limits` is how each of its
    resource limits can be enforced on the daemon's machine.
    """

    executor: str
    default: bool
    terminal: bool
    isolated: bool
    image: str | None
    mounts: Annotated[list[str], From(read=lambda mounts: [str(mount) for mount in mounts])]
    network: NetworkAccess
    folder: str | None
    memory_mib: int | None
    processes: int | None
    cpus: float | None
    enforced_limits: dict[str, LimitEnforcement]


class ActivityResponse(ResponseModel):
    """The activity of a task; `position` is its place in the queue of its pool and space."""

    state: Literal["free", "queued", "running", "waiting"]
    run: Annotated[int | None, From("run", attrgetter("id"))]
    since: Annotated[datetime | None, From("run", lambda run: run.started_at or run.created_at)]
    position: Annotated[int | None, From("ahead", lambda ahead: ahead + 1)]
    question: Annotated[str | None, From("question", attrgetter("question"))]


class _Changing(Protocol):
    """A task, or the response about one."""

    @property
    def id(self) -> int: ...
    @property
    def updated_at(self) -> datetime: ...


class _Versioned(Protocol):
    @property
    def version(self) -> int: ...


def task_etag(task: _Changing, schedules: Sequence[_Versioned]) -> str:
    """Return a text that changes with the task and with each of its schedules."""
    parts = [to_micros(task.updated_at), *(schedule.version for schedule in schedules)]
    return f'"{task.id}-{"-".join(format(part, "x") for part in parts)}"'


_summaries: dict[int, tuple[Task, Sequence[StoredSchedule], TaskSummary]] = {}


def summarise_task(task: Task, schedules: Sequence[StoredSchedule], now: datetime) -> TaskSummary:
    """Return the summary of a task, from a cache if the task is unchanged."""
    state = task_state(task, now)
    known = _summaries.get(task.id)
    if known is not None and known[0] is task and known[1] == schedules and known[2].state == state:
        return known[2]
    own = [ScheduleSummary.from_model(schedule) for schedule in schedules]
    made = TaskSummary.from_model(task, state=state, schedules=own)
    if len(_summaries) >= MAX_SUMMARIES:
        _summaries.clear()
    _summaries[task.id] = (task, schedules, made)
    return made


async def describe_site(
    task: Task, role: SpaceRole, executors: ExecutorRegistry, sites: SiteChecker | None
) -> SiteResponse | None:
    """Return the site of a task; None for functions, which run inside Rota."""
    if task.kind is TaskKind.PYTHON:
        return None
    try:
        site = site_of(task.spec, role, executors)
    except RotaError:  # its runs are refused with the reason; the rest of the response still holds
        return None
    bounds = [name for name in LIMIT_FIELDS if task.spec.get(name) is not None]
    held = await sites.limit_enforcement(site) if sites is not None and bounds else {}
    return SiteResponse.from_model(
        site,
        default=task.spec.get("executor") is None,
        terminal=executors.named(site.executor).terminal,
        folder=task.spec.get("folder"),
        **{name: task.spec.get(name) for name in LIMIT_FIELDS},
        enforced_limits={name: held[name] for name in bounds if name in held},
    )


def task_state(task: Task, now: datetime) -> str:
    """Return whether a task is enabled, disabled or paused."""
    if not task.enabled:
        return "disabled"
    return "paused" if task.paused_until is not None and task.paused_until > now else "enabled"
