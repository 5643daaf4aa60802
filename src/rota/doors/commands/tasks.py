"""Tasks: create, list, look at, change, run, enable, disable, delete; what is next, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from rota.doors.commands.budgets import ForecastGiven, forecast_given
from rota.doors.commands.fields import (
    Id,
    Json,
    Limit,
    RunKey,
    SpaceName,
    TaskName,
    Text,
    ThreadKey,
    Word,
)
from rota.doors.commands.finding import space_of, task_of
from rota.doors.commands.makers import check_maker, check_runner, origin_of
from rota.doors.commands.naming import free_name
from rota.doors.commands.runs import RunQueued, keep_queued, queued_run
from rota.doors.commands.shapes import Asked, Given, OneTask, RunGiven, run_given
from rota.doors.commands.task_requests import (
    KIND_OF,
    PROGRAM,
    ChangedTask,
    NewTask,
    NewThreadTask,
    PutTask,
    Title,
    WholeTask,
)
from rota.doors.commands.task_shapes import (
    ActivityGiven,
    SiteGiven,
    TaskGiven,
    TaskListed,
    activity_given,
    site_given,
    task_given,
    task_listed,
)
from rota.doors.commands.task_sites import changed_spec, check_patterns, check_site, lacks_of
from rota.doors.commands.wishes import Zone
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.errors import Invalid, NotPermitted, Stale
from rota.flow.define import runs, tasks
from rota.flow.define.agents import with_agent
from rota.flow.define.noticing import unled
from rota.flow.observe.moments import parse_instant
from rota.flow.observe.tasks import next_fires, view_task
from rota.model.instants import from_micros, to_micros
from rota.model.keys import KeyScope
from rota.model.tasks import After, Task, TaskKind
from rota.model.views import TaskFilter
from rota.rules.permission import seen_space
from rota.rules.programs import check_script

ROUTES = {TaskKind.AGENT: "agent", TaskKind.SCRIPT: "script", TaskKind.PYTHON: "python"}
FIRES = 3
MOST_FIRES = 100
DEFAULT = "default"
"""The schedule that a task has without naming it."""
_OTHER_KIND = "this is a task of the kind {}; create another one instead"


class TasksWanted(Asked):
    """Which tasks to list, newest first."""

    space: SpaceName | None = None
    thread: ThreadKey | None = None
    state: Literal["all", "enabled", "disabled"] = "all"
    kind: TaskKind | None = None
    name: TaskName | None = None
    text: Word | None = None
    before: Id | None = None
    limit: Limit = 100


class Tasks(Given):
    """Tasks, newest first; `next` continues the list as `before`."""

    tasks: list[TaskListed]
    next: int | None


class TaskShown(TaskGiven):
    """A task with what it is doing, its tally and its newest runs.

    `warning` says why nobody is sent what it delivers, if that is so; `lacks` what it names and
    the machine that answers does not have, such as its program.
    """

    site: SiteGiven | None
    activity: ActivityGiven
    counts: dict[str, int]
    recent: list[RunGiven]
    fires: list[datetime]
    forecast: ForecastGiven | None
    warning: str | None
    lacks: Sequence[str]


class TaskPut(TaskShown):
    """A task as it stands now, and whether it had to be created or changed for that."""

    change: Literal["created", "changed", "unchanged"]


class RunNow(OneTask):
    """What a run that was asked for is given."""

    payload: Json = None
    input: Text | None = None
    key: RunKey | None = None


class Disabled(OneTask):
    """Why and until when a task's slots are not to run."""

    reason: Title = ""
    until: Word | None = None
    timezone: Zone | None = None


class Deleted(Given):
    """What was taken out of use, and the runs that were cancelled or are asked to stop."""

    deleted: bool = True
    id: int
    name: str
    cancelled: Sequence[int]
    stopping: Sequence[int]


@command("GET", "/v1/tasks", KeyScope.READ)
async def list_tasks(office: Office, asked: TasksWanted) -> Tasks:
    """List tasks, newest first; a task's policy and the whole of its rules are shown with it."""
    store = office.store
    space = seen_space(office.caller, asked.space)
    wanted = TaskFilter(
        space_id=None if space is None else (await store.find_space(space)).id,
        name=asked.name,
        thread=asked.thread,
        kind=asked.kind,
        enabled=None if asked.state == "all" else asked.state == "enabled",
        words=asked.text,
        before=asked.before,
        limit=asked.limit,
    )
    found = await store.find_tasks(wanted)
    now = from_micros(store.now())
    more = found[-1][0].id if len(found) == asked.limit else None
    return Tasks(tasks=[task_listed(task, own, now) for task, own in found], next=more)


@command("POST", "/v1/tasks", KeyScope.DEFINE, status=201)
async def create_task(office: Office, asked: NewTask) -> TaskShown:
    """Create a task."""
    _keep_shown(office, "put_task")
    return await _shown(office, await _put(office, asked, asked.name))


@command("POST", "/v1/threads/{thread_key}/tasks", KeyScope.DEFINE, status=201)
async def create_thread_task(office: Office, asked: NewThreadTask) -> TaskShown:
    """Create a task for an agent that belongs to a conversation."""
    _keep_shown(office, "put_task")
    wanted = NewTask(
        title=asked.title,
        instructions=asked.instructions,
        thread=asked.thread_key,
        schedule=asked.schedule,
        policy=asked.policy,
    )
    return await _shown(office, await _put(office, wanted, None))


@command("GET", "/v1/tasks/{task}", KeyScope.READ)
async def show_task(office: Office, asked: OneTask) -> TaskShown:
    """Return a task with its schedules, its tally, its newest runs and its next fires."""
    return await _shown(office, await task_of(office, asked.task, asked.space))


@command("PATCH", "/v1/tasks/{task}", KeyScope.DEFINE)
async def change_task(office: Office, asked: ChangedTask) -> TaskShown:
    """Change what is given and leave the rest.

    With `If-Match` only the task that the caller has seen is changed.
    """
    task = await task_of(office, asked.task, asked.space)
    stood = await _as_seen(office, task)
    spec = changed_spec(task.spec, asked)
    if asked.command is not None or asked.shell is not None:
        check_script(spec)
    kinds = {KIND_OF[name] for name in asked.spec() if name in KIND_OF}
    if spec.get("agent") == PROGRAM:
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
    _keep_shown(office, "put_task", task)
    await tasks.put_task(
        office.store,
        office.caller,
        task.name,
        space=task.space,
        title=task.title if asked.title is None else asked.title,
        kind=task.kind,
        route=task.route,
        spec=with_agent(office.agents, task.kind, spec),
        policy=task.policy if asked.policy is None else asked.policy.over(task.policy),
        after=after,
        origin=task.origin if task.origin != tasks.CODE else "api",
        replace=True,
        wish=None if asked.schedule is None else asked.schedule.wish(),
        schedule=asked.schedule_name,
        thread=task.thread,
        stood=stood,
        channels=office.channels,
    )
    return await _shown(office, task)


@command("PUT", "/v1/tasks/{task}", KeyScope.DEFINE)
async def put_task(office: Office, asked: PutTask) -> TaskPut:
    """Let a task of a name be what is said, whether there is one or not.

    A number is one that there is, by its name or its id. What is left out is as in a new task:
    without a schedule the `default` one is dropped.
    """
    if asked.task.isdigit():
        found: Task | None = await task_of(office, asked.task, asked.space)
    else:
        owner = await office.store.find_space(space_of(office, asked.space))
        found = await office.store.find_task(owner.id, asked.task)
    stood = None if found is None else (await _shown(office, found)).etag()
    if found is not None:
        await _as_seen(office, found)
    name = asked.task if found is None else found.name

    async def recorded(within: Office, done: Task) -> TaskPut:
        return _changed(await _recorded(within, done), stood)

    office.keep_seen(recorded, "put_task", whole=False)
    task = await _put(office, asked, name, replace=found)
    return _changed(await _shown(office, task), stood)


def _changed(shown: TaskShown, stood: str | None) -> TaskPut:
    if stood is None:
        return TaskPut(**dict(shown), change="created")
    return TaskPut(**dict(shown), change="unchanged" if shown.etag() == stood else "changed")


@command("DELETE", "/v1/tasks/{task}", KeyScope.DEFINE)
async def delete_task(office: Office, asked: OneTask) -> Deleted:
    """Take a task out of use: queued runs are cancelled, running ones told to stop.

    Its history stays until retention, and its name may be used again.
    """
    task = await task_of(office, asked.task, asked.space)
    await _as_seen(office, task)

    def deleted(gone: tasks.Deletion) -> Deleted:
        return Deleted(id=task.id, name=task.name, cancelled=gone.cancelled, stopping=gone.stopping)

    def about_to(gone: tasks.Deletion) -> None:
        office.keep(lambda done: deleted(gone) if done else None, "delete_task")

    store, caller = office.store, office.caller
    return deleted(await tasks.delete_task(store, caller, task.name, task.space, about_to))


@command("POST", "/v1/tasks/{task}/run-now", KeyScope.RUN, status=201)
async def run_task(office: Office, asked: RunNow) -> RunQueued:
    """Queue a run now, also of a disabled task; its schedules do not move."""
    task = await task_of(office, asked.task, asked.space)
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
    return queued_run(done)


@command("POST", "/v1/tasks/{task}/enable", KeyScope.DEFINE)
async def enable_task(office: Office, asked: OneTask) -> TaskShown:
    """Let a task's slots run again, from now on."""
    task = await task_of(office, asked.task, asked.space)
    _keep_shown(office, "enable_task", task)
    return await _shown(
        office, await tasks.enable_task(office.store, office.caller, task.name, task.space)
    )


@command("POST", "/v1/tasks/{task}/disable", KeyScope.DEFINE)
async def disable_task(office: Office, asked: Disabled) -> TaskShown:
    """Stop a task's slots from running, for good or until a time; what runs goes on."""
    task = await task_of(office, asked.task, asked.space)
    until = None
    if asked.until is not None:
        home = (await office.store.find_space(task.space)).timezone
        now = from_micros(office.store.now())
        until = parse_instant(asked.until, asked.timezone or home, now, "until")
    _keep_shown(office, "disable_task", task)
    changed = await tasks.disable_task(
        office.store, office.caller, task.name, task.space, reason=asked.reason, until=until
    )
    return await _shown(office, changed)


async def _put(
    office: Office, asked: WholeTask, name: str | None, *, replace: Task | None = None
) -> Task:
    """Make a task, or the one that it replaces what was asked for."""
    if asked.command is not None:
        check_script(asked.spec())
    space = space_of(office, asked.space) if replace is None else replace.space
    kind = next(KIND_OF[name] for name in KIND_OF if getattr(asked, name) is not None)
    if replace is not None and replace.kind is not kind:
        raise Invalid("kind", kind, _OTHER_KIND.format(replace.kind))
    _check_call(office, asked.call)
    owner = await office.store.find_space(space)
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
        title=asked.title,
        kind=kind,
        route=ROUTES[kind],
        spec=with_agent(office.agents, kind, _with_its_agent(asked, replace)),
        policy=base if asked.policy is None else asked.policy.over(base),
        after=following,
        origin=await origin_of(office, owner.id),
        replace=replace is not None,
        wish=None if asked.schedule is None else asked.schedule.wish(),
        thread=asked.thread,
        channels=office.channels,
        drops=DEFAULT if asked.schedule is None and replace is not None else None,
    )


def _with_its_agent(asked: WholeTask, stands: Task | None) -> dict[str, Any]:
    """Return what was asked for; a task that stands keeps its agent, whatever the setting is."""
    told = asked.spec()
    known = None if stands is None else stands.spec.get("agent")
    if asked.instructions is not None and known not in {None, PROGRAM}:
        told.setdefault("agent", known)
    return told


def _check_call(office: Office, call: str | None) -> None:
    if call is not None and not office.local and call not in office.bounds.calls:
        message = (
            f"the callable {call!r} may not be named over the network: add it to the setting "
            "`calls`, or create the task with `rota` on the machine itself"
        )
        raise NotPermitted(message)


async def _as_seen(office: Office, task: Task) -> int | None:
    """Refuse to change a task that is no longer as the caller has seen it."""
    if office.stands is None:
        return None
    own = await office.store.list_schedules([task.id])
    given = task_given(task, own, from_micros(office.store.now()))
    if office.stands not in {"*", given.etag()}:
        message = f"the task {task.name!r} has changed meanwhile: look at it again"
        raise Stale(message)
    return to_micros(task.updated_at)


def _keep_shown(office: Office, change: str, known: Task | None = None) -> None:
    """Keep a task as it stands after a change."""

    async def recorded(within: Office, done: object) -> TaskShown | None:
        task = done if isinstance(done, Task) else known
        return None if task is None or done is False else await _recorded(within, task)

    office.keep_seen(recorded, change, whole=False)


async def _recorded(office: Office, task: Task) -> TaskShown:
    """Return a task without what its machine says of it: for that no transaction waits."""
    return await _shown(dataclasses.replace(office, sites=None), task)


async def _shown(office: Office, task: Task) -> TaskShown:
    view = await view_task(office.store, office.caller, task.name, task.space)
    given = task_given(view.task, view.schedules, view.now)
    fires = sorted(at for s in view.schedules for at in next_fires(s, view.now, FIRES))
    role = (await office.store.find_space(view.task.space)).role
    return TaskShown(
        **dict(given),
        site=await site_given(view.task, role, office.sites),
        activity=activity_given(view.activity),
        counts=view.counts,
        recent=[run_given(run) for run in view.recent],
        fires=fires[:FIRES],
        forecast=await forecast_given(office, view.task),
        warning=unled(view.task.policy.deliver_to, office.channels),
        lacks=await lacks_of(office, view.task, role),
    )
