"""Tasks, schedules, spaces and threads: what people and programs define."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from rota.errors import NotFound, Stale
from rota.model.codec import from_json, to_json
from rota.model.events import EventName
from rota.model.ids import SpaceId, TaskId
from rota.model.instants import from_micros, maybe_instant, to_micros
from rota.model.spaces import Role, Space
from rota.model.tasks import After, AfterOn, NewTask, Policy, Task, TaskKind
from rota.stores.kit.session import EVENTS, Row, Rows, Session, one

SCHEDULES = "schedules"
"""The topic of schedules that were added or changed."""


@lru_cache(maxsize=1_000)
def policy_of(text: str) -> Policy:
    """Return a stored policy; tasks with equal policies share one value."""
    return from_json(Policy, json.loads(text))


def as_space(row: Row) -> Space:
    """Return a row of spaces as a value."""
    return Space(
        id=SpaceId(row[0]),
        name=row[1],
        role=Role(row[2]),
        timezone=row[3],
        created_at=from_micros(row[4]),
    )


async def add_space(session: Session, name: str, role: Role, timezone: str, now: int) -> Space:
    """Create a space, or return the one of that name."""
    await session.run(
        "insert_spaces",
        rows=Rows([{"name": name, "role": role.value, "timezone": timezone}]),
        now=now,
    )
    return await find_space(session, name)


async def set_space(session: Session, name: str, timezone: str) -> Space:
    """Change a space's time zone."""
    await session.run("set_space", name=name, timezone=timezone)
    return await find_space(session, name)


async def find_space(session: Session, name: str) -> Space:
    """Return a space by name."""
    row = await one(session, "find_space", name=name)
    if row is None:
        raise NotFound("space", name, "see `rota space list`")
    return as_space(row)


async def add_thread(session: Session, space_id: int, key: str, now: int) -> None:
    """Make sure a thread exists."""
    await session.run("insert_threads", rows=Rows([{"space_id": space_id, "key": key}]), now=now)


TASK_COLUMNS = 22


def as_task(row: Row) -> Task:
    """Return a row of tasks as a value; a claim reads the same few rows again and again."""
    return _as_task(tuple(row))


@lru_cache(maxsize=10_000)
def _as_task(row: tuple[Any, ...]) -> Task:
    (
        task_id,
        space_id,
        space,
        name,
        title,
        kind,
        route,
        spec,
        policy,
        after_task,
        after_on,
        origin,
        enabled,
        enabled_since,
        paused_until,
        disabled_reason,
        failures,
        created_at,
        updated_at,
        deleted_at,
        thread,
        disabled_at,
    ) = row
    after = None if after_task is None else After(task=after_task, on=AfterOn(after_on))
    return Task(
        id=TaskId(task_id),
        space_id=SpaceId(space_id),
        space=space,
        name=name,
        title=title,
        kind=TaskKind(kind),
        route=route,
        spec=json.loads(spec),
        policy=policy_of(policy),
        after=after,
        origin=origin,
        enabled=bool(enabled),
        enabled_since=from_micros(enabled_since),
        paused_until=maybe_instant(paused_until),
        disabled_reason=disabled_reason,
        failures=failures,
        created_at=from_micros(created_at),
        updated_at=from_micros(updated_at),
        deleted_at=maybe_instant(deleted_at),
        thread=thread,
        disabled_at=maybe_instant(disabled_at),
    )


async def find_task(session: Session, space_id: int, name: str) -> Task | None:
    """Return a task by name, or None; deleted ones are not found."""
    row = await one(session, "find_task", space_id=space_id, name=name)
    return None if row is None else as_task(row)


async def task_named(session: Session, space: str, name: str) -> Task | None:
    """Return a task by its space's name and its own."""
    row = await one(session, "task_named", space=space, name=name)
    return None if row is None else as_task(row)


async def get_tasks(session: Session, ids: list[int]) -> list[Task]:
    """Return tasks by id, deleted ones included."""
    return [as_task(row) for row in await session.rows("get_tasks", ids=ids)] if ids else []


async def put_task(session: Session, task: NewTask, after_id: int | None, now: int) -> Task:
    """Create a task or bring the one of its name up to date; unchanged ones stay untouched."""
    record: dict[str, Any] = {
        "space_id": task.space_id,
        "name": task.name,
        "title": task.title,
        "kind": task.kind.value,
        "route": task.route,
        "spec": json.dumps(task.spec, sort_keys=True),
        "policy": json.dumps(to_json(task.policy), sort_keys=True),
        "after_task_id": after_id,
        "after_on": None if task.after is None else task.after.on.value,
        "origin": task.origin,
        "thread": task.thread,
    }
    if task.thread is not None:
        await join_thread(session, task.space_id, task.thread, now)
    found = await find_task(session, task.space_id, task.name)
    if task.stood is not None and (found is None or to_micros(found.updated_at) != task.stood):
        message = f"the task {task.name!r} has changed meanwhile: look at it again"
        raise Stale(message)
    if found is not None and _same(found, task):
        return found
    if found is None:
        await session.run("insert_tasks", rows=Rows([record]), now=now)
    else:
        await session.run("update_tasks", rows=Rows([{**record, "id": found.id}]), now=now)
        await session.run("touch_schedules", task_ids=[found.id])
    saved = await find_task(session, task.space_id, task.name)
    if saved is None:
        raise NotFound("task", task.name)
    name = EventName.TASK_CREATED if found is None else EventName.TASK_CHANGED
    await note(session, name, saved, {"origin": task.origin}, now)
    return saved


async def join_thread(session: Session, space_id: int, key: str, now: int) -> None:
    """Make sure a thread exists and belongs to a space."""
    await add_thread(session, space_id, key, now)
    row = await one(session, "find_thread", key=key)
    if row is None or row[0] != space_id:
        raise NotFound("thread", key)


def _same(found: Task, task: NewTask) -> bool:
    return (
        found.title == task.title
        and found.kind == task.kind
        and found.route == task.route
        and found.spec == task.spec
        and found.policy == task.policy
        and found.after == task.after
        and found.origin == task.origin
        and found.thread == task.thread
    )


async def note(
    session: Session, name: EventName, task: Task, data: dict[str, object], now: int
) -> None:
    """Record an event about a task."""
    record: dict[str, object] = {
        "name": name.value,
        "space_id": task.space_id,
        "task_id": task.id,
        "data": json.dumps(data),
    }
    await session.run("insert_events", rows=Rows([record]), now=now)
    session.wake(EVENTS)


async def enable_task(session: Session, task: Task, now: int) -> None:
    """Let a task's slots run again, from now on; its failures are forgotten."""
    await session.run("touch_schedules", task_ids=[task.id])
    await session.run("enable_task", id=task.id, now=now)
    await note(session, EventName.TASK_ENABLED, task, {}, now)
    session.wake(SCHEDULES)


async def disable_task(
    session: Session, task: Task, reason: str, until: int | None, now: int
) -> None:
    """Stop a task's slots from running, for good or until an instant."""
    if until is None:
        await session.run("disable_task", id=task.id, reason=reason, now=now)
    else:
        await session.run("pause_task", id=task.id, until=until, now=now)
    await note(session, EventName.TASK_DISABLED, task, {"reason": reason, "until": until}, now)


async def delete_task(session: Session, task: Task, now: int) -> None:
    """Take a task and its schedules out of use; runs, slots and events stay until retention."""
    await session.run("delete_task", id=task.id, now=now)
    await session.run("delete_schedules_of", task_id=task.id, now=now)
    await note(session, EventName.TASK_DELETED, task, {}, now)
