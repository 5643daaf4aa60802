"""Create, change, disable and delete tasks; one-off tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rota.errors import Conflict, Invalid, NotFound
from rota.flow.define.notifications import check_channel, check_target, default_target
from rota.flow.define.policies import check_conversation, check_policy, check_timeouts
from rota.flow.define.schedules import ScheduleSpec, prepare_schedule
from rota.flow.define.threads import check_claimed
from rota.flow.lookup import check_line, check_name, get_task
from rota.flow.task_changes import cancel_runs, disable, plan_due_then_list, retry_if_stale
from rota.model.executors import NO_EXECUTORS, ExecutorRegistry
from rota.model.instants import to_micros
from rota.model.schedules import StoredSchedule
from rota.model.tasks import MAX_TITLE, After, NewTask, Policy, Pool, Task, TaskKind
from rota.rules.checks import check_done
from rota.rules.permissions import Caller, check_space
from rota.rules.queue import check_chain
from rota.rules.task_spec import ONE_OFF_NAMES, ONE_OFF_ORIGIN, check_new_name
from rota.store import settlement as store_settlement
from rota.store import tasks as store_tasks
from rota.store.store import Store
from rota.store.tasks import find_space, find_task
from rota.store.views import list_tasks
from rota.store.workers import list_queued_runs, list_running_runs

CODE = "code"
"""The origin of tasks that a program declares; only that program changes their policy."""


async def put_task(
    store: Store,
    caller: Caller,
    name: str,
    *,
    space: str = "main",
    title: str = "",
    kind: TaskKind = TaskKind.PYTHON,
    route: str,
    spec: dict[str, Any] | None = None,
    policy: Policy | None = None,
    after: After | None = None,
    origin: str = "cli",
    replace: bool = False,
    wish: ScheduleSpec | None = None,
    schedule: str = "default",
    thread: str | None = None,
    stood: int | None = None,
    executors: ExecutorRegistry = NO_EXECUTORS,
    channels: Sequence[str] = (),
    drops: str | None = None,
) -> Task:
    """Create a task, or with `replace` update the one of its name.

    `stood` is when the caller believes that the task was last changed; Stale if it has changed
    since. With `channels`, results can go only to these.

    With a wish, its schedule is created in the same transaction, and `drops` is deleted in it. If
    either is invalid, nothing changes. Only the program that declared a task can change it.
    """
    check_space(caller, space)
    check_name("name", name)
    policy = policy or Policy()
    check_policy(policy)
    check_timeouts(policy, kind)
    check_conversation(policy, spec or {})
    owner = await store.read(find_space, space)
    check_done(spec or {}, kind, owner.role, executors)
    found = await store.read(find_task, owner.id, name)
    _check_title(title, found)
    _check_standing(name, found, origin, replace=replace)
    stands = None if found is None else found.policy.deliver_to
    if policy.deliver_to is not None and policy.deliver_to != stands:
        await check_target(store, caller, space, policy.deliver_to, "deliver_to")
        if channels:
            await check_channel(store, channels, policy.deliver_to, thread, "deliver_to")
    await check_claimed(store, caller, space, thread)
    after_id = await _upstream(store, owner.id, name, after)
    task = NewTask(
        space_id=owner.id,
        name=name,
        title=title,
        kind=kind,
        route=route,
        spec=spec or {},
        policy=policy,
        after=after,
        origin=origin,
        thread=thread,
        stood=stood,
    )
    if wish is None and drops is None:
        return await store.write(store_tasks.put_task, task, after_id)

    async def put() -> Task:
        standing, record = await store.read(find_task, owner.id, name), None
        if wish is not None:
            record = await prepare_schedule(store, owner, name, standing, wish, schedule)
        dropped = await _schedule_of(store, standing, drops)
        return await store.write(store_tasks.put_task, task, after_id, record, dropped)

    return await retry_if_stale(put)


def _check_title(title: str, found: Task | None) -> None:
    if len(title) > MAX_TITLE:
        raise Invalid("title", title, f"keep it within {MAX_TITLE} characters")
    if found is None or found.title != title:
        check_line("title", title)


def _check_standing(name: str, found: Task | None, origin: str, *, replace: bool) -> None:
    """Refuse to change a task of another origin, or one that exists already."""
    if found is None:
        check_new_name(name)
    elif not replace:
        message = f"there is a task {name!r} already: edit it, or choose another name"
        raise Conflict(message)
    elif found.origin == CODE and origin != CODE:
        message = f"the task {name!r} is declared by a program: change it there"
        raise Conflict(message)


async def _schedule_of(store: Store, task: Task | None, name: str | None) -> StoredSchedule | None:
    if task is None or name is None:
        return None
    standing = await plan_due_then_list(store, task.id, store.now())
    return next((schedule for schedule in standing if schedule.name == name), None)


async def usual_policy(store: Store, space_id: int, kind: TaskKind) -> Policy:
    """Return the default policy of a new task in a space."""
    place = await default_target(store, space_id)
    return Policy(metered=kind is not TaskKind.PYTHON, deliver_to=place)


async def _upstream(store: Store, space_id: int, name: str, after: After | None) -> int | None:
    if after is None:
        return None
    tasks = {task.name: task for task in await store.read(list_tasks, space_id)}
    if after.task == name:
        raise Invalid("after", after.task, "a task cannot follow itself")
    if after.task not in tasks:
        raise NotFound("task", after.task, "the task to follow must exist first")
    chain = {t.name: t.after.task for t in tasks.values() if t.after is not None}
    check_chain(name, after.task, chain)
    return tasks[after.task].id


async def enable_task(store: Store, caller: Caller, name: str, space: str = "main") -> Task:
    """Enable a task; missed slots stay missed."""
    task = await get_task(store, caller, name, space)
    if task.enabled and task.paused_until is None:
        return task
    await store.write(store_tasks.enable_task, task)
    return await get_task(store, caller, name, space)


async def disable_task(
    store: Store,
    caller: Caller,
    name: str,
    space: str = "main",
    *,
    reason: str = "",
    until: datetime | None = None,
) -> Task:
    """Disable a task, permanently or until an instant.

    Planned runs that have not started are cancelled; requested runs stay.
    """
    task = await get_task(store, caller, name, space)
    now = store.now()
    if until is not None and to_micros(until) <= now:
        raise Invalid("until", until.isoformat(), "is in the past; give a future time")
    why = reason or f"{'paused' if until else 'disabled'} by {caller.name}"
    await disable(store, task, why, until)
    return await get_task(store, caller, name, space)


class DeletedTask(NamedTuple):
    """A deleted task, with the numbers of its cancelled and running runs."""

    task: Task
    cancelled: Sequence[int]
    stopping: Sequence[int]


async def delete_task(
    store: Store,
    caller: Caller,
    name: str,
    space: str = "main",
    about_to: Callable[[DeletedTask], None] | None = None,
) -> DeletedTask:
    """Delete a task: queued runs are cancelled, running ones asked to stop.

    Its history stays until retention, and its name is free. `about_to` gets the outcome of each try
    before it is committed.
    """
    task = await get_task(store, caller, name, space)
    gone = DeletedTask(task, [], [])
    done = False
    while not done:  # runs that are queued meanwhile are cancelled too
        await plan_due_then_list(store, task.id, store.now())
        queued = await store.read(list_queued_runs, task.id, planned_only=False)
        running = await store.read(list_running_runs, task.id)
        ends = cancel_runs(queued, task, "its task was deleted", store.now())
        gone = DeletedTask(task, [run.run_id for run in queued], running)
        if about_to is not None:
            about_to(gone)
        done = await store.write(store_settlement.delete_task, task, ends, running)
    return gone


"""The origin of tasks that Rota creates itself."""


async def task_for(store: Store, caller: Caller, kind: TaskKind, space: str) -> Task:
    """Return the task of a space for one-off runs of a kind."""
    name = ONE_OFF_NAMES[kind]
    owner = await store.read(find_space, space)
    found = await store.read(find_task, owner.id, name)
    if found is None:
        return await put_task(
            store,
            caller,
            name,
            space=space,
            title=f"One-off work of {'an agent' if kind is TaskKind.AGENT else 'a program'}",
            kind=kind,
            route=kind.value,
            policy=Policy(pool=Pool.FOREGROUND),
            origin=ONE_OFF_ORIGIN,
        )
    if found.origin != ONE_OFF_ORIGIN:
        message = f"the task {name!r} has a reserved name: rename it"
        raise Conflict(message)
    return found
