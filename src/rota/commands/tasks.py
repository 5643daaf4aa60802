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
from rota.commands.runs import QueuedRunResponse, keep_queued
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
MOST_FIRES = 100
DEFAULT = "default"
"""The schedule that a task has without naming it."""
_OTHER_KIND = "this is a task of the kind {}; create another one instead"


class TasksQuery(RequestModel):
    """Which tasks to list, newest first."""

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
    """A task with what it is doing, its tally and its newest runs.

    `warning` says why nobody is sent what it delivers, if that is so; `missing_programs` what it
    names and the machine that answers does not have, such as its program.
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
    """A task as it stands now, and whether it had to be created or changed for that."""

    change: Literal["created", "changed", "unchanged"]


class RunTask(TaskSelector):
    """What a run that was asked for is given."""

    payload: Json = None
    input: Text | None = None
    key: RunKey | None = None


class DisableTask(TaskSelector):
    """Why and until when a task's slots are not to run."""

    reason: Title = ""
    until: Word | None = None
    timezone: Zone | None = None


class DeletedTaskResponse(ResponseModel):
    """What was taken out of use, and the runs that were cancelled or are asked to stop."""

    deleted: bool = True
    id: int
    name: str
    cancelled: Sequence[int]
    stopping: Sequence[int]


@command("GET", "/v1/tasks", KeyScope.READ)
async def list_tasks(office: RequestContext, asked: TasksQuery) -> TaskList:
    """List tasks, newest first; a task's policy and the whole of its rules are shown with it."""
    store = office.store
    space = visible_space(office.caller, asked.space)
    wanted = TaskFilter(
        space_id=None if space is None else (await store.read(find_space, space)).id,
        name=asked.name,
        thread=asked.thread,
        kind=asked.kind,
        enabled=None if asked.state == "all" else asked.state == "enabled",
        words=asked.text,
        before=asked.before,
        limit=asked.limit,
    )
    found = await store.read(find_tasks, wanted)
    now = from_micros(store.now())
    more = found[-1][0].id if len(found) == asked.limit else None
    return TaskList(tasks=[summarise_task(task, own, now) for task, own in found], next=more)


@command("POST", "/v1/tasks", KeyScope.DEFINE, status=201)
async def create_task(office: RequestContext, asked: CreateTask) -> TaskDetailResponse:
    """Create a task."""
    _keep_shown(office, store_tasks.put_task)
    return await _shown(office, await _put(office, asked, asked.name))


@command("POST", "/v1/threads/{thread_key}/tasks", KeyScope.DEFINE, status=201)
async def create_thread_task(office: RequestContext, asked: CreateThreadTask) -> TaskDetailResponse:
    """Create a task for an agent that belongs to a conversation."""
    _keep_shown(office, store_tasks.put_task)
    wanted = CreateTask(
        title=asked.title,
        instructions=asked.instructions,
        thread=asked.thread_key,
        schedule=asked.schedule,
        policy=asked.policy,
    )
    return await _shown(office, await _put(office, wanted, None))


@command("GET", "/v1/tasks/{task}", KeyScope.READ)
async def show_task(office: RequestContext, asked: TaskSelector) -> TaskDetailResponse:
    """Return a task with its schedules, its tally, its newest runs and its next fires."""
    return await _shown(office, await resolve_task(office, asked.task, asked.space))


@command("PATCH", "/v1/tasks/{task}", KeyScope.DEFINE)
async def change_task(office: RequestContext, asked: UpdateTask) -> TaskDetailResponse:
    """Change what is given and leave the rest.

    With `If-Match` only the task that the caller has seen is changed.
    """
    task = await resolve_task(office, asked.task, asked.space)
    stood = await _as_seen(office, task)
    spec = changed_spec(task.spec, asked)
    if asked.command is not None or asked.shell is not None:
        check_script(spec)
    kinds = {KIND_OF[name] for name in asked.spec() if name in KIND_OF}
    if task.kind is TaskKind.AGENT and office.app.plugins.agents.takes_program(spec.get("agent")):
        kinds.discard(TaskKind.SCRIPT)
    if kinds - {task.kind}:
        raise Invalid("kind", ", ".join(kinds), _OTHER_KIND.format(task.kind))
    _check_call(office, asked.call)
    await check_site(office, task.kind, spec, asked, task.space)
    await check_maker(office, task.kind, spec, task.space, asked.schedule, task)
    if asked.checks is not None:
        await check_patterns(office, spec, task.space)
    after = task.after
    if "after" in asked.model_fields_set:
        after = None if asked.after is None else After(task=asked.after.task, on=asked.after.on)
    _keep_shown(office, store_tasks.put_task, task)
    await tasks.put_task(
        office.store,
        office.caller,
        task.name,
        space=task.space,
        title=task.title if asked.title is None else asked.title,
        kind=task.kind,
        route=task.route,
        spec=resolve_agent(office.app.plugins.agents, task.kind, spec),
        policy=task.policy if asked.policy is None else asked.policy.over(task.policy),
        after=after,
        origin=task.origin if task.origin != tasks.CODE else "api",
        replace=True,
        wish=None if asked.schedule is None else asked.schedule.wish(),
        schedule=asked.schedule_name,
        thread=task.thread,
        stood=stood,
        executors=office.app.plugins.executors,
        channels=office.app.plugins.channel_names,
    )
    return await _shown(office, task)


@command("PUT", "/v1/tasks/{task}", KeyScope.DEFINE)
async def put_task(office: RequestContext, asked: SetTask) -> SetTaskResponse:
    """Let a task of a name be what is said, whether there is one or not.

    A number is one that there is, by its name or its id. What is left out is as in a new task:
    without a schedule the `default` one is dropped.
    """
    if asked.task.isdigit():
        found: Task | None = await resolve_task(office, asked.task, asked.space)
    else:
        owner = await office.store.read(find_space, resolve_space(office, asked.space))
        found = await office.store.read(find_task, owner.id, asked.task)
    stood = None if found is None else (await _shown(office, found)).etag()
    if found is not None:
        await _as_seen(office, found)
    name = asked.task if found is None else found.name

    async def recorded(within: RequestContext, done: Task) -> SetTaskResponse:
        return _changed(await _recorded(within, done), stood)

    office.keep_seen(recorded, store_tasks.put_task, whole=False)
    task = await _put(office, asked, name, replace=found)
    return _changed(await _shown(office, task), stood)


def _changed(shown: TaskDetailResponse, stood: str | None) -> SetTaskResponse:
    if stood is None:
        return SetTaskResponse(**dict(shown), change="created")
    return SetTaskResponse(
        **dict(shown), change="unchanged" if shown.etag() == stood else "changed"
    )


@command("DELETE", "/v1/tasks/{task}", KeyScope.DEFINE)
async def delete_task(office: RequestContext, asked: TaskSelector) -> DeletedTaskResponse:
    """Take a task out of use: queued runs are cancelled, running ones told to stop.

    Its history stays until retention, and its name may be used again.
    """
    task = await resolve_task(office, asked.task, asked.space)
    await _as_seen(office, task)

    def deleted(gone: tasks.DeletedTask) -> DeletedTaskResponse:
        return DeletedTaskResponse(
            id=task.id, name=task.name, cancelled=gone.cancelled, stopping=gone.stopping
        )

    def about_to(gone: tasks.DeletedTask) -> None:
        office.keep(lambda done: deleted(gone) if done else None, store_settlement.delete_task)

    store, caller = office.store, office.caller
    return deleted(await tasks.delete_task(store, caller, task.name, task.space, about_to))


@command("POST", "/v1/tasks/{task}/run-now", KeyScope.RUN, status=201)
async def run_task(office: RequestContext, asked: RunTask) -> QueuedRunResponse:
    """Queue a run now, also of a disabled task; its schedules do not move."""
    task = await resolve_task(office, asked.task, asked.space)
    payload = asked.payload
    if asked.input is not None:
        if payload is not None:
            raise Invalid("input", asked.input, "give either an input or a payload")
        payload = {"input": asked.input}
    await check_runner(office, task, payload)
    keep_queued(office, asked.key)
    done = await runs.run_now(
        office.store, office.caller, task.name, task.space, payload=payload, key=asked.key
    )
    return QueuedRunResponse.from_model(done)


@command("POST", "/v1/tasks/{task}/enable", KeyScope.DEFINE)
async def enable_task(office: RequestContext, asked: TaskSelector) -> TaskDetailResponse:
    """Let a task's slots run again, from now on."""
    task = await resolve_task(office, asked.task, asked.space)
    _keep_shown(office, store_tasks.enable_task, task)
    return await _shown(
        office, await tasks.enable_task(office.store, office.caller, task.name, task.space)
    )


@command("POST", "/v1/tasks/{task}/disable", KeyScope.DEFINE)
async def disable_task(office: RequestContext, asked: DisableTask) -> TaskDetailResponse:
    """Stop a task's slots from running, for good or until a time; what runs goes on."""
    task = await resolve_task(office, asked.task, asked.space)
    until = None
    if asked.until is not None:
        home = (await office.store.read(find_space, task.space)).timezone
        now = from_micros(office.store.now())
        until = parse_instant(asked.until, asked.timezone or home, now, "until")
    _keep_shown(office, store_settlement.disable_task, task)
    changed = await tasks.disable_task(
        office.store, office.caller, task.name, task.space, reason=asked.reason, until=until
    )
    return await _shown(office, changed)


async def _put(
    office: RequestContext, asked: NewTaskInput, name: str | None, *, replace: Task | None = None
) -> Task:
    """Make a task, or the one that it replaces what was asked for."""
    if asked.command is not None:
        check_script(asked.spec())
    space = resolve_space(office, asked.space) if replace is None else replace.space
    kind = next(KIND_OF[name] for name in KIND_OF if getattr(asked, name) is not None)
    if replace is not None and replace.kind is not kind:
        raise Invalid("kind", kind, _OTHER_KIND.format(replace.kind))
    _check_call(office, asked.call)
    owner = await office.store.read(find_space, space)
    await check_site(office, kind, asked.spec(), asked, space)
    await check_maker(office, kind, asked.spec(), space, asked.schedule)
    await check_patterns(office, asked.spec(), space)
    base = await tasks.usual_policy(office.store, owner.id, kind)
    following = None if asked.after is None else After(task=asked.after.task, on=asked.after.on)
    return await tasks.put_task(
        office.store,
        office.caller,
        name or await free_name(office, owner.id, asked),
        space=space,
        title=asked.title or "",
        kind=kind,
        route=ROUTES[kind],
        spec=resolve_agent(
            office.app.plugins.agents,
            kind,
            _with_its_agent(asked, replace, office.app.plugins.agents),
        ),
        policy=base if asked.policy is None else asked.policy.over(base),
        after=following,
        origin=await task_origin(office, owner.id),
        replace=replace is not None,
        wish=None if asked.schedule is None else asked.schedule.wish(),
        thread=asked.thread,
        executors=office.app.plugins.executors,
        channels=office.app.plugins.channel_names,
        drops=DEFAULT if asked.schedule is None and replace is not None else None,
    )


def _with_its_agent(
    asked: NewTaskInput, stands: Task | None, agents: AgentRegistry
) -> dict[str, Any]:
    """Return what was asked for; a task that stands keeps its agent, whatever the setting is."""
    told = asked.spec()
    known: Any = None if stands is None else stands.spec.get("agent")
    if asked.instructions is not None and known is not None and (not agents.takes_program(known)):
        told.setdefault("agent", known)
    return told


def _check_call(office: RequestContext, call: str | None) -> None:
    if call is not None and not office.local and call not in office.app.limits.calls:
        message = (
            f"the callable {call!r} may not be named over the network: add it to the setting "
            "`calls`, or create the task with `rota` on the machine itself"
        )
        raise NotPermitted(message)


async def _as_seen(office: RequestContext, task: Task) -> int | None:
    """Refuse to change a task that is no longer as the caller has seen it."""
    if office.expected_version is None:
        return None
    own = await office.store.read(list_schedules, [task.id])
    if office.expected_version not in {"*", task_etag(task, own)}:
        message = f"the task {task.name!r} has changed meanwhile: look at it again"
        raise Stale(message)
    return to_micros(task.updated_at)


def _keep_shown(
    office: RequestContext, change: Callable[..., Any], known: Task | None = None
) -> None:
    """Keep a task as it stands after a change."""

    async def recorded(within: RequestContext, done: object) -> TaskDetailResponse | None:
        task = done if isinstance(done, Task) else known
        return None if task is None or done is False else await _recorded(within, task)

    office.keep_seen(recorded, change, whole=False)


async def _recorded(office: RequestContext, task: Task) -> TaskDetailResponse:
    """Return a task without what its machine says of it: for that no transaction waits."""
    return await _shown(office.with_app(sites=None), task)


async def _shown(office: RequestContext, task: Task) -> TaskDetailResponse:
    view = await view_task(office.store, office.caller, task.name, task.space)
    fires = sorted(at for s in view.schedules for at in next_fires(s, view.now, FIRES))
    role = (await office.store.read(find_space, view.task.space)).role
    return TaskDetailResponse.from_model(
        view.task,
        state=task_state(view.task, view.now),
        schedules=[ScheduleResponse.from_model(schedule) for schedule in view.schedules],
        site=await describe_site(view.task, role, office.app.plugins.executors, office.app.sites),
        activity=ActivityResponse.from_model(view.activity),
        counts=view.counts,
        recent=[RunResponse.from_model(run) for run in view.recent],
        fires=fires[:FIRES],
        forecast=await forecast_task(office, view.task),
        warning=warn_unreachable_target(
            view.task.policy.deliver_to, office.app.plugins.channel_names
        ),
        missing_programs=await lacks_of(office, view.task, role),
    )


KEPT = frozenset({*KIND_OF, "agent", "model_tier", "shell"})
"""Fields of the spec that a change replaces and never removes."""
CHANGEABLE = frozenset(SPEC_NAMES) - KEPT


def changed_spec(stood: Mapping[str, Any], asked: TaskInput) -> dict[str, Any]:
    """Return a task's spec with what was asked for, and without what was asked to be nothing.

    An executor says its whole site anew.
    """
    anew = SITE_FIELDS if "executor" in asked.model_fields_set else ()
    dropped = {name for name in CHANGEABLE if name in asked.model_fields_set}
    kept = {name: stood[name] for name in stood if name not in dropped and name not in anew}
    return {**kept, **asked.spec()}


async def check_patterns(office: RequestContext, spec: Mapping[str, Any], space: str) -> None:
    """Refuse checks whose patterns are no regular expressions, or take too long to compile."""
    told = patterns_in(spec)
    if not told or office.app.probes is None:
        return
    fault = await office.app.probes.check_patterns(space, [pattern for _, pattern in told])
    if fault is not None:
        n, why = fault
        field, pattern = (CHECKS, len(told)) if n is None else told[n]
        raise Invalid(field, pattern, why)


async def check_site(
    office: RequestContext,
    kind: TaskKind,
    spec: Mapping[str, Any],
    asked: TaskInput,
    space: str,
) -> None:
    """Refuse a site that the task may not have, or that it names and cannot be had here.

    What a task leaves to its space is not tried: it may run on another machine, or later.
    """
    touched = [
        name for name in (*SITE_FIELDS, "folder", *LIMIT_FIELDS) if name in asked.model_fields_set
    ]
    said = [name for name in touched if getattr(asked, name) is not None]
    if not touched or (kind is TaskKind.PYTHON and not said):
        return
    if kind is TaskKind.PYTHON:
        raise Invalid(said[0], getattr(asked, said[0]), "a callable runs within Rota: leave it out")
    if spec.get("folder") is not None:
        check_folder(spec["folder"])
    role = (await office.store.read(find_space, space)).role
    site = site_of(spec, role, office.app.plugins.executors)
    if office.app.sites is None:
        return
    if any(name in SITE_FIELDS for name in said):
        await office.app.sites.admit(site, role)
    chosen = spec.get("executor") and spec.get("cpus")
    if chosen and (await office.app.sites.limit_enforcement(site))["cpus"] is LimitEnforcement.NOT:
        message = f"{site.executor} cannot bound processors here: leave cpus out; see `rota doctor`"
        raise Unavailable(message)


async def lacks_of(office: RequestContext, task: Task, role: SpaceRole) -> Sequence[str]:
    """Return what a task names and the daemon's machine does not have; nobody else knows."""
    if office.app.sites is None or office.local:
        return []
    return await office.app.sites.missing_programs(task, role)


PERSON = "api"
AT_THE_MACHINE = "cli"


async def task_origin(office: RequestContext, space_id: int) -> str:
    """Return what is kept of who makes a task; refuse an attempt that has made enough."""
    own = await _own_task(office)
    if own is None:
        return AT_THE_MACHINE if office.local else PERSON
    check_created_tasks(await office.store.read(count_tasks_made_by_attempts, space_id))
    return origin_of(own.origin)


async def check_maker(
    office: RequestContext,
    kind: TaskKind,
    spec: Mapping[str, Any],
    space: str,
    schedule: ScheduleInput | None = None,
    stands: Task | None = None,
) -> None:
    """Refuse an attempt that would make a task reach further than itself, or fire too often."""
    await _check_money(office, kind, spec, space, stands)
    own = await _own_task(office)
    if own is None:
        return
    store = office.store
    if kind is not TaskKind.PYTHON:
        executors = office.app.plugins.executors
        mine = site_of(own.spec, (await store.read(find_space, own.space)).role, executors)
        check_reach(mine, site_of(spec, (await store.read(find_space, space)).role, executors))
        check_tools(own.spec, kind, spec)
        check_judging_fields(own.spec, None if stands is None else stands.spec, spec)
    if schedule is None:
        return
    if (
        stands is not None
        and len(await store.read(list_schedules, [stands.id])) >= MAX_CREATED_SCHEDULES
    ):
        message = f"it has {MAX_CREATED_SCHEDULES} schedules already: change one of them"
        raise Conflict(message)
    now = from_micros(store.now())
    rule = build_rule(schedule.wish(), (await store.read(find_space, space)).timezone, now, now)
    check_pace([slot.due for slot in timetable(rule).take(now, FIRES_CHECKED)])


async def _check_money(
    office: RequestContext, kind: TaskKind, spec: Mapping[str, Any], space: str, stands: Task | None
) -> None:
    """Refuse an agent whose money nobody could count where a budget counts it."""
    if kind is not TaskKind.AGENT:
        return
    owner = await office.store.read(find_space, space)
    known = await office.store.read(budgets_for_task, 0 if stands is None else stands.id, owner.id)
    for caps in known.values():
        check_priced(
            office.app.plugins.agents, resolve_agent(office.app.plugins.agents, kind, spec), caps
        )


async def check_runner(office: RequestContext, task: Task, payload: object) -> None:
    """Refuse an attempt that would queue too much, or tell a task without walls what to do."""
    if office.caller.attempt is None:
        return
    counts = await office.store.read(count_runs, task.id)
    check_queue(counts.get("queued", 0))
    if payload is not None:
        await check_maker(office, task.kind, task.spec, task.space, stands=task)


async def _own_task(office: RequestContext) -> Task | None:
    held = office.caller.attempt
    if held is None:
        return None
    (own,) = await office.store.read(get_tasks, [held.task_id])
    return own


LONGEST_SLUG = 40
MOST_READ = 1_000
"""How many characters are looked at: Unicode's forms of many marks take their square."""
SPELLED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "ø": "oe"})


async def free_name(office: RequestContext, space_id: int, asked: NewTaskInput) -> str:
    """Return a name that nobody has, made of what the task is about."""
    said = asked.title or asked.instructions or asked.call or " ".join(asked.command or ())
    slug = name = slug_of(said)
    count = 1
    while await office.store.read(find_task, space_id, name) is not None:
        count += 1
        name = f"{slug}-{count}"
    return name


def slug_of(said: str) -> str:
    """Return the name that words make."""
    plain = _plain(said[:MOST_READ].lower())
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LONGEST_SLUG].strip("-")
    if not slug or slug.isdigit():  # a number alone is an id
        slug = f"task-{slug}".strip("-")
    return slug


def _plain(text: str) -> str:
    """Return text with letters for those that have marks."""
    whole = unicodedata.normalize("NFC", text).translate(SPELLED)
    parted = unicodedata.normalize("NFKD", whole)
    return "".join(sign for sign in parted if not unicodedata.combining(sign))
