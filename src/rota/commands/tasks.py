"""Tasks: create, edit, enable, delete; their sites and names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from rota.commands.budgets import ForecastResponse, forecast_task
from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import (
    Id,
    Json,
    Limit,
    RunKey,
    SpaceName,
    TaskName,
    Text,
    ThreadKey,
    Title,
    Word,
    Zone,
    resolve_space,
    resolve_task,
)
from rota.commands.responses import (
    RequestModel,
    ResponseModel,
    RunResponse,
    TaskSelector,
)
from rota.commands.runs import QueuedRunResponse, record_queued
from rota.commands.task_inputs import (
    KIND_OF,
    SPEC_NAMES,
    CreateTask,
    CreateThreadTask,
    NewTaskInput,
    ScheduleInput,
    SetTask,
    TaskInput,
    UpdateTask,
)
from rota.commands.task_responses import (
    ActivityResponse,
    ScheduleResponse,
    SiteResponse,
    TaskResponse,
    TaskSummary,
    describe_site,
    summarise_task,
    task_etag,
    task_state,
)
from rota.errors import Conflict, Invalid, NotPermitted, Stale, Unavailable
from rota.flow.define import runs, tasks
from rota.flow.define.budgets import check_priced
from rota.flow.define.notifications import warn_unreachable_target
from rota.flow.define.policies import resolve_agent
from rota.flow.define.schedules import build_rule
from rota.flow.observe.time_text import parse_instant
from rota.flow.observe.views import next_fires, view_task
from rota.model.instants import from_micros, to_micros
from rota.model.keys import KeyScope
from rota.model.programs import LimitEnforcement
from rota.model.spaces import SpaceRole
from rota.model.tasks import After, Task, TaskKind
from rota.model.views import TaskFilter
from rota.ports.agent import AgentRegistry
from rota.rules.checks import CHECKS, patterns_in
from rota.rules.permissions import (
    FIRES_CHECKED,
    MAX_CREATED_SCHEDULES,
    check_created_tasks,
    check_judging_fields,
    check_pace,
    check_queue,
    check_reach,
    check_tools,
    origin_of,
    visible_space,
)
from rota.rules.task_spec import LIMIT_FIELDS, SITE_FIELDS, check_folder, check_script, site_of
from rota.store import settlement as store_settlement
from rota.store import tasks as store_tasks
from rota.store.audit import count_tasks_made_by_attempts
from rota.store.budgets import budgets_for_task
from rota.store.tasks import find_space, find_task, get_tasks, list_schedules
from rota.store.views import count_runs, find_tasks
from rota.timing.timetable import timetable

ROUTES = {TaskKind.AGENT: "agent", TaskKind.SCRIPT: "script", TaskKind.PYTHON: "python"}
FIRES = 3
MAX_FIRES = 100
DEFAULT = "default"
"""The name of a task's schedule if none is given."""
_OTHER_KIND = "this is a task of the kind {}; create a new task instead"


class TasksQuery(RequestModel):
    """Filter for tasks."""

    space: SpaceName | None = None
    thread: ThreadKey | None = None
    state: Literal["all", "enabled", "disabled"] = "all"
    kind: TaskKind | None = None
    name: TaskName | None = None
    text: Word | None = None
    before: Id | None = None
    limit: Limit = 100


class TaskList(ResponseModel):
    """Tasks, newest first; `next` continues the list as `before`."""

    tasks: list[TaskSummary]
    next: int | None


class TaskDetailResponse(TaskResponse):
    """A task with its activity, run counts and newest runs.

    `warning` is why its results cannot be delivered, if that is so. `missing_programs` are
    things that the task names and that the daemon's machine does not have, such as its program.
    """

    site: SiteResponse | None
    activity: ActivityResponse
    counts: dict[str, int]
    recent: list[RunResponse]
    fires: list[datetime]
    forecast: ForecastResponse | None
    warning: str | None
    missing_programs: Sequence[str]


class SetTaskResponse(TaskDetailResponse):
    """A task, and whether it was created or changed by the request."""

    change: Literal["created", "changed", "unchanged"]


class RunTask(TaskSelector):
    """Input of a requested run."""

    payload: Json = None
    input: Text | None = None
    key: RunKey | None = None


class DisableTask(TaskSelector):
    """Why a task is disabled, and until when."""

    reason: Title = ""
    until: Word | None = None
    timezone: Zone | None = None


class DeletedTaskResponse(ResponseModel):
    """The deleted task, with the runs that were cancelled or are stopping."""

    deleted: bool = True
    id: int
    name: str
    cancelled: Sequence[int]
    stopping: Sequence[int]


@command("GET", "/v1/tasks", KeyScope.READ)
async def list_tasks(context: RequestContext, request: TasksQuery) -> TaskList:
    """List tasks, newest first, without policies and full rules."""
    store = context.store
    space = visible_space(context.caller, request.space)
    query = TaskFilter(
        space_id=None if space is None else (await store.read(find_space, space)).id,
        name=request.name,
        thread=request.thread,
        kind=request.kind,
        enabled=None if request.state == "all" else request.state == "enabled",
        words=request.text,
        before=request.before,
        limit=request.limit,
    )
    found = await store.read(find_tasks, query)
    now = from_micros(store.now())
    more = found[-1][0].id if len(found) == request.limit else None
    return TaskList(tasks=[summarise_task(task, own, now) for task, own in found], next=more)


@command("POST", "/v1/tasks", KeyScope.DEFINE, status=201)
async def create_task(context: RequestContext, request: CreateTask) -> TaskDetailResponse:
    """Create a task."""
    _record_detail(context, store_tasks.put_task)
    return await _detail(context, await _put(context, request, request.name))


@command("POST", "/v1/threads/{thread_key}/tasks", KeyScope.DEFINE, status=201)
async def create_thread_task(
    context: RequestContext, request: CreateThreadTask
) -> TaskDetailResponse:
    """Create a task for an agent in a thread."""
    _record_detail(context, store_tasks.put_task)
    task = CreateTask(
        title=request.title,
        instructions=request.instructions,
        thread=request.thread_key,
        schedule=request.schedule,
        policy=request.policy,
    )
    return await _detail(context, await _put(context, task, None))


@command("GET", "/v1/tasks/{task}", KeyScope.READ)
async def show_task(context: RequestContext, request: TaskSelector) -> TaskDetailResponse:
    """Return a task with its schedules, run counts, newest runs and next fires."""
    return await _detail(context, await resolve_task(context, request.task, request.space))


@command("PATCH", "/v1/tasks/{task}", KeyScope.DEFINE)
async def change_task(context: RequestContext, request: UpdateTask) -> TaskDetailResponse:
    """Change the given fields of a task.

    With `If-Match`, only a task that has not changed since the caller read it.
    """
    task = await resolve_task(context, request.task, request.space)
    expected = await _check_version(context, task)
    spec = change_spec(task.spec, request)
    if request.command is not None or request.shell is not None:
        check_script(spec)
    kinds = {KIND_OF[name] for name in request.spec() if name in KIND_OF}
    if task.kind is TaskKind.AGENT and context.app.plugins.agents.takes_program(spec.get("agent")):
        kinds.discard(TaskKind.SCRIPT)
    if kinds - {task.kind}:
        raise Invalid("kind", ", ".join(kinds), _OTHER_KIND.format(task.kind))
    _check_call(context, request.call)
    await check_site(context, task.kind, spec, request, task.space)
    await check_maker(context, task.kind, spec, task.space, request.schedule, task)
    if request.checks is not None:
        await check_patterns(context, spec, task.space)
    after = task.after
    if "after" in request.model_fields_set:
        after = (
            None if request.after is None else After(task=request.after.task, on=request.after.on)
        )
    _record_detail(context, store_tasks.put_task, task)
    await tasks.put_task(
        context.store,
        context.caller,
        task.name,
        space=task.space,
        title=task.title if request.title is None else request.title,
        kind=task.kind,
        route=task.route,
        spec=resolve_agent(context.app.plugins.agents, task.kind, spec),
        policy=task.policy if request.policy is None else request.policy.over(task.policy),
        after=after,
        origin=task.origin if task.origin != tasks.CODE else "api",
        replace=True,
        wish=None if request.schedule is None else request.schedule.wish(),
        schedule=request.schedule_name,
        thread=task.thread,
        stood=expected,
        executors=context.app.plugins.executors,
        channels=context.app.plugins.channel_names,
    )
    return await _detail(context, task)


@command("PUT", "/v1/tasks/{task}", KeyScope.DEFINE)
async def put_task(context: RequestContext, request: SetTask) -> SetTaskResponse:
    """Create or replace the task of a name.

    A number is the name or id of an existing task. Fields left out are as in a new task: without a
    schedule, the `default` one is removed.
    """
    if request.task.isdigit():
        found: Task | None = await resolve_task(context, request.task, request.space)
    else:
        owner = await context.store.read(find_space, resolve_space(context, request.space))
        found = await context.store.read(find_task, owner.id, request.task)
    expected = None if found is None else (await _detail(context, found)).etag()
    if found is not None:
        await _check_version(context, found)
    name = request.task if found is None else found.name

    async def recorded(within: RequestContext, done: Task) -> SetTaskResponse:
        return _set_response(await _unprobed_detail(within, done), expected)

    context.record_with(recorded, store_tasks.put_task, whole=False)
    task = await _put(context, request, name, replace=found)
    return _set_response(await _detail(context, task), expected)


def _set_response(shown: TaskDetailResponse, expected: str | None) -> SetTaskResponse:
    if expected is None:
        return SetTaskResponse(**dict(shown), change="created")
    return SetTaskResponse(
        **dict(shown), change="unchanged" if shown.etag() == expected else "changed"
    )


@command("DELETE", "/v1/tasks/{task}", KeyScope.DEFINE)
async def delete_task(context: RequestContext, request: TaskSelector) -> DeletedTaskResponse:
    """Delete a task: queued runs are cancelled, running ones are asked to stop.

    Its history is kept for the retention period, and its name can be used again.
    """
    task = await resolve_task(context, request.task, request.space)
    await _check_version(context, task)

    def deleted(gone: tasks.DeletedTask) -> DeletedTaskResponse:
        return DeletedTaskResponse(
            id=task.id, name=task.name, cancelled=gone.cancelled, stopping=gone.stopping
        )

    def about_to(gone: tasks.DeletedTask) -> None:
        context.record(lambda done: deleted(gone) if done else None, store_settlement.delete_task)

    store, caller = context.store, context.caller
    return deleted(await tasks.delete_task(store, caller, task.name, task.space, about_to))


@command("POST", "/v1/tasks/{task}/run-now", KeyScope.RUN, status=201)
async def run_task(context: RequestContext, request: RunTask) -> QueuedRunResponse:
    """Queue a run now, even if the task is disabled; its schedules do not change."""
    task = await resolve_task(context, request.task, request.space)
    payload = request.payload
    if request.input is not None:
        if payload is not None:
            raise Invalid("input", request.input, "give an input or a payload, not both")
        payload = {"input": request.input}
    await check_runner(context, task, payload)
    record_queued(context, request.key)
    done = await runs.run_now(
        context.store, context.caller, task.name, task.space, payload=payload, key=request.key
    )
    return QueuedRunResponse.from_model(done)


@command("POST", "/v1/tasks/{task}/enable", KeyScope.DEFINE)
async def enable_task(context: RequestContext, request: TaskSelector) -> TaskDetailResponse:
    """Enable a task: its slots run again, from now on."""
    task = await resolve_task(context, request.task, request.space)
    _record_detail(context, store_tasks.enable_task, task)
    return await _detail(
        context, await tasks.enable_task(context.store, context.caller, task.name, task.space)
    )


@command("POST", "/v1/tasks/{task}/disable", KeyScope.DEFINE)
async def disable_task(context: RequestContext, request: DisableTask) -> TaskDetailResponse:
    """Disable a task, permanently or until a time; running runs continue."""
    task = await resolve_task(context, request.task, request.space)
    until = None
    if request.until is not None:
        home = (await context.store.read(find_space, task.space)).timezone
        now = from_micros(context.store.now())
        until = parse_instant(request.until, request.timezone or home, now, "until")
    _record_detail(context, store_settlement.disable_task, task)
    changed = await tasks.disable_task(
        context.store, context.caller, task.name, task.space, reason=request.reason, until=until
    )
    return await _detail(context, changed)


async def _put(
    context: RequestContext, request: NewTaskInput, name: str | None, *, replace: Task | None = None
) -> Task:
    """Create a task, or replace an existing one."""
    if request.command is not None:
        check_script(request.spec())
    space = resolve_space(context, request.space) if replace is None else replace.space
    kind = next(KIND_OF[name] for name in KIND_OF if getattr(request, name) is not None)
    if replace is not None and replace.kind is not kind:
        raise Invalid("kind", kind, _OTHER_KIND.format(replace.kind))
    _check_call(context, request.call)
    owner = await context.store.read(find_space, space)
    await check_site(context, kind, request.spec(), request, space)
    await check_maker(context, kind, request.spec(), space, request.schedule)
    await check_patterns(context, request.spec(), space)
    base = await tasks.usual_policy(context.store, owner.id, kind)
    following = (
        None if request.after is None else After(task=request.after.task, on=request.after.on)
    )
    return await tasks.put_task(
        context.store,
        context.caller,
        name or await find_free_name(context, owner.id, request),
        space=space,
        title=request.title or "",
        kind=kind,
        route=ROUTES[kind],
        spec=resolve_agent(
            context.app.plugins.agents,
            kind,
            _new_spec(request, replace, context.app.plugins.agents),
        ),
        policy=base if request.policy is None else request.policy.over(base),
        after=following,
        origin=await task_origin(context, owner.id),
        replace=replace is not None,
        wish=None if request.schedule is None else request.schedule.wish(),
        thread=request.thread,
        executors=context.app.plugins.executors,
        channels=context.app.plugins.channel_names,
        drops=DEFAULT if request.schedule is None and replace is not None else None,
    )


def _new_spec(
    request: NewTaskInput, existing: Task | None, agents: AgentRegistry
) -> dict[str, Any]:
    """Return the spec of a request; an existing task keeps its agent when the setting changes."""
    spec = request.spec()
    known: Any = None if existing is None else existing.spec.get("agent")
    if request.instructions is not None and known is not None and (not agents.takes_program(known)):
        spec.setdefault("agent", known)
    return spec


def _check_call(context: RequestContext, call: str | None) -> None:
    if call is not None and not context.local and call not in context.app.limits.calls:
        message = (
            f"the function {call!r} is not allowed over the network: add it to the setting "
            "`calls`, or create the task with `rota` on the same machine"
        )
        raise NotPermitted(message)


async def _check_version(context: RequestContext, task: Task) -> int | None:
    """Refuse to change a task that has changed since the caller read it."""
    if context.expected_version is None:
        return None
    own = await context.store.read(list_schedules, [task.id])
    if context.expected_version not in {"*", task_etag(task, own)}:
        message = f"the task {task.name!r} has changed: read it again"
        raise Stale(message)
    return to_micros(task.updated_at)


def _record_detail(
    context: RequestContext, change: Callable[..., Any], known: Task | None = None
) -> None:
    """Record the response about a task after a change."""

    async def recorded(within: RequestContext, done: object) -> TaskDetailResponse | None:
        task = done if isinstance(done, Task) else known
        return None if task is None or done is False else await _unprobed_detail(within, task)

    context.record_with(recorded, change, whole=False)


async def _unprobed_detail(context: RequestContext, task: Task) -> TaskDetailResponse:
    """Return a task without what must be probed on the machine while a transaction is open."""
    return await _detail(context.with_app(sites=None), task)


async def _detail(context: RequestContext, task: Task) -> TaskDetailResponse:
    view = await view_task(context.store, context.caller, task.name, task.space)
    fires = sorted(at for s in view.schedules for at in next_fires(s, view.now, FIRES))
    role = (await context.store.read(find_space, view.task.space)).role
    return TaskDetailResponse.from_model(
        view.task,
        state=task_state(view.task, view.now),
        schedules=[ScheduleResponse.from_model(schedule) for schedule in view.schedules],
        site=await describe_site(view.task, role, context.app.plugins.executors, context.app.sites),
        activity=ActivityResponse.from_model(view.activity),
        counts=view.counts,
        recent=[RunResponse.from_model(run) for run in view.recent],
        fires=fires[:FIRES],
        forecast=await forecast_task(context, view.task),
        warning=warn_unreachable_target(
            view.task.policy.deliver_to, context.app.plugins.channel_names
        ),
        missing_programs=await find_missing(context, view.task, role),
    )


KEPT = frozenset({*KIND_OF, "agent", "model_tier", "shell"})
"""Fields of the spec that a change can replace but not remove."""
CHANGEABLE = frozenset(SPEC_NAMES) - KEPT


def change_spec(expected: Mapping[str, Any], request: TaskInput) -> dict[str, Any]:
    """Return a task's spec with the changes of a request; null removes a field.

    An executor replaces the whole site.
    """
    anew = SITE_FIELDS if "executor" in request.model_fields_set else ()
    dropped = {name for name in CHANGEABLE if name in request.model_fields_set}
    kept = {name: expected[name] for name in expected if name not in dropped and name not in anew}
    return {**kept, **request.spec()}


async def check_patterns(context: RequestContext, spec: Mapping[str, Any], space: str) -> None:
    """Refuse checks whose regular expressions are invalid or take too long to compile."""
    patterns = patterns_in(spec)
    if not patterns or context.app.probes is None:
        return
    error = await context.app.probes.check_patterns(space, [pattern for _, pattern in patterns])
    if error is not None:
        n, why = error
        field, pattern = (CHECKS, len(patterns)) if n is None else patterns[n]
        raise Invalid(field, pattern, why)


async def check_site(
    context: RequestContext,
    kind: TaskKind,
    spec: Mapping[str, Any],
    request: TaskInput,
    space: str,
) -> None:
    """Refuse a site that is not permitted, or that the task names and this machine lacks.

    The default site is not probed: the task may run on another machine, or later.
    """
    touched = [
        name for name in (*SITE_FIELDS, "folder", *LIMIT_FIELDS) if name in request.model_fields_set
    ]
    given = [name for name in touched if getattr(request, name) is not None]
    if not touched or (kind is TaskKind.PYTHON and not given):
        return
    if kind is TaskKind.PYTHON:
        raise Invalid(
            given[0], getattr(request, given[0]), "a function runs inside Rota: leave it out"
        )
    if spec.get("folder") is not None:
        check_folder(spec["folder"])
    role = (await context.store.read(find_space, space)).role
    site = site_of(spec, role, context.app.plugins.executors)
    if context.app.sites is None:
        return
    if any(name in SITE_FIELDS for name in given):
        await context.app.sites.admit(site, role)
    chosen = spec.get("executor") and spec.get("cpus")
    if chosen and (await context.app.sites.limit_enforcement(site))["cpus"] is LimitEnforcement.NOT:
        message = (
            f"{site.executor} cannot limit processors on this machine: leave cpus out, "
            "or see `rota doctor`"
        )
        raise Unavailable(message)


async def find_missing(context: RequestContext, task: Task, role: SpaceRole) -> Sequence[str]:
    """Return what a task names and the daemon's machine lacks; empty without a daemon."""
    if context.app.sites is None or context.local:
        return []
    return await context.app.sites.missing_programs(task, role)


API_ORIGIN = "api"
CLI_ORIGIN = "cli"


async def task_origin(context: RequestContext, space_id: int) -> str:
    """Return the origin of a new task; refuse an attempt that has created too many."""
    own = await _attempt_task(context)
    if own is None:
        return CLI_ORIGIN if context.local else API_ORIGIN
    check_created_tasks(await context.store.read(count_tasks_made_by_attempts, space_id))
    return origin_of(own.origin)


async def check_maker(
    context: RequestContext,
    kind: TaskKind,
    spec: Mapping[str, Any],
    space: str,
    schedule: ScheduleInput | None = None,
    existing: Task | None = None,
) -> None:
    """Refuse a task of an attempt that has more rights than its own task, or fires too often."""
    await _check_money(context, kind, spec, space, existing)
    own = await _attempt_task(context)
    if own is None:
        return
    store = context.store
    if kind is not TaskKind.PYTHON:
        executors = context.app.plugins.executors
        mine = site_of(own.spec, (await store.read(find_space, own.space)).role, executors)
        check_reach(mine, site_of(spec, (await store.read(find_space, space)).role, executors))
        check_tools(own.spec, kind, spec)
        check_judging_fields(own.spec, None if existing is None else existing.spec, spec)
    if schedule is None:
        return
    if (
        existing is not None
        and len(await store.read(list_schedules, [existing.id])) >= MAX_CREATED_SCHEDULES
    ):
        message = f"the task already has {MAX_CREATED_SCHEDULES} schedules: change one of them"
        raise Conflict(message)
    now = from_micros(store.now())
    rule = build_rule(schedule.wish(), (await store.read(find_space, space)).timezone, now, now)
    check_pace([slot.due for slot in timetable(rule).take(now, FIRES_CHECKED)])


async def _check_money(
    context: RequestContext,
    kind: TaskKind,
    spec: Mapping[str, Any],
    space: str,
    existing: Task | None,
) -> None:
    """Refuse an agent without a price where a budget limits the cost."""
    if kind is not TaskKind.AGENT:
        return
    owner = await context.store.read(find_space, space)
    known = await context.store.read(
        budgets_for_task, 0 if existing is None else existing.id, owner.id
    )
    for caps in known.values():
        check_priced(
            context.app.plugins.agents, resolve_agent(context.app.plugins.agents, kind, spec), caps
        )


async def check_runner(context: RequestContext, task: Task, payload: object) -> None:
    """Refuse an attempt that queues too many runs, or controls a task with more rights."""
    if context.caller.attempt is None:
        return
    counts = await context.store.read(count_runs, task.id)
    check_queue(counts.get("queued", 0))
    if payload is not None:
        await check_maker(context, task.kind, task.spec, task.space, existing=task)


async def _attempt_task(context: RequestContext) -> Task | None:
    held = context.caller.attempt
    if held is None:
        return None
    (own,) = await context.store.read(get_tasks, [held.task_id])
    return own


MAX_SLUG = 40
MAX_SLUG_SOURCE = 1_000
"""Maximum text for a name: normalizing combining marks takes quadratic time."""
SPELLED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "ø": "oe"})


async def find_free_name(context: RequestContext, space_id: int, request: NewTaskInput) -> str:
    """Return an unused name, derived from the title or the work."""
    work = request.instructions or request.call or " ".join(request.command or ())
    source = request.title or work
    slug = name = make_slug(source)
    count = 1
    while await context.store.read(find_task, space_id, name) is not None:
        count += 1
        name = f"{slug}-{count}"
    return name


def make_slug(source: str) -> str:
    """Return a text as a task name."""
    plain = _plain(source[:MAX_SLUG_SOURCE].lower())
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MAX_SLUG].strip("-")
    if not slug or slug.isdigit():  # a number alone is an id
        slug = f"task-{slug}".strip("-")
    return slug


def _plain(text: str) -> str:
    """Return text with accents removed."""
    whole = unicodedata.normalize("NFC", text).translate(SPELLED)
    parted = unicodedata.normalize("NFKD", whole)
    return "".join(sign for sign in parted if not unicodedata.combining(sign))
