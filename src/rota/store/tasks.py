"""Spaces, tasks, schedules and task state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rota.errors import NotFound, Stale
from rota.model.events import EventName
from rota.model.ids import ScheduleId, SpaceId, TaskId
from rota.model.instants import from_micros, maybe_instant, to_micros
from rota.model.json import from_json, to_json
from rota.model.schedules import ScheduleCursor, SchedulePlan, ScheduleState, StoredSchedule
from rota.model.spaces import Space, SpaceRole
from rota.model.tasks import After, AfterOn, NewTask, Policy, SeenItem, StateEntry, Task, TaskKind
from rota.store.quotas import check_schedules
from rota.store.transactions import EVENTS, QueryRows, Row, Transaction, one

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
        role=SpaceRole(row[2]),
        timezone=row[3],
        created_at=from_micros(row[4]),
    )


async def add_space(tx: Transaction, name: str, role: SpaceRole, timezone: str) -> Space:
    """Create a space, or return the one of that name."""
    await tx.run(
        "insert_spaces",
        rows=QueryRows([{"name": name, "role": role.value, "timezone": timezone}]),
        now=tx.now(),
    )
    return await find_space(tx, name)


async def set_space(tx: Transaction, name: str, timezone: str) -> Space:
    """Change a space's time zone."""
    await tx.run("set_space", name=name, timezone=timezone)
    return await find_space(tx, name)


async def find_space(tx: Transaction, name: str) -> Space:
    """Return a space by name."""
    row = await one(tx, "find_space", name=name)
    if row is None:
        raise NotFound("space", name, "see `rota space list`")
    return as_space(row)


async def add_thread(tx: Transaction, space_id: int, key: str) -> None:
    """Make sure a thread exists."""
    await tx.run(
        "insert_threads", rows=QueryRows([{"space_id": space_id, "key": key}]), now=tx.now()
    )


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


async def find_task(tx: Transaction, space_id: int, name: str) -> Task | None:
    """Return a task by name, or None; deleted ones are not found."""
    row = await one(tx, "find_task", space_id=space_id, name=name)
    return None if row is None else as_task(row)


async def find_task_in_space(tx: Transaction, space: str, name: str) -> Task | None:
    """Return a task by its space's name and its own."""
    row = await one(tx, "task_named", space=space, name=name)
    return None if row is None else as_task(row)


async def get_tasks(tx: Transaction, ids: Sequence[int]) -> list[Task]:
    """Return tasks by id, deleted ones included."""
    return [as_task(row) for row in await tx.rows("get_tasks", ids=ids)] if ids else []


async def write_task(tx: Transaction, task: NewTask, after_id: int | None, now: int) -> Task:
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
        await join_thread(tx, task.space_id, task.thread)
    found = await find_task(tx, task.space_id, task.name)
    if task.stood is not None and (found is None or to_micros(found.updated_at) != task.stood):
        message = f"the task {task.name!r} has changed meanwhile: look at it again"
        raise Stale(message)
    if found is not None and _same(found, task):
        return found
    if found is None:
        await tx.run("insert_tasks", rows=QueryRows([record]), now=now)
    else:
        await tx.run("update_tasks", rows=QueryRows([{**record, "id": found.id}]), now=now)
        await tx.run("touch_schedules", task_ids=[found.id])
    saved = await find_task(tx, task.space_id, task.name)
    if saved is None:
        raise NotFound("task", task.name)
    name = EventName.TASK_CREATED if found is None else EventName.TASK_CHANGED
    await note(tx, name, saved, {"origin": task.origin}, now)
    return saved


async def join_thread(tx: Transaction, space_id: int, key: str) -> None:
    """Make sure a thread exists and belongs to a space."""
    await add_thread(tx, space_id, key)
    row = await one(tx, "find_thread", key=key)
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
    tx: Transaction, name: EventName, task: Task, data: dict[str, object], now: int
) -> None:
    """Record an event about a task."""
    record: dict[str, object] = {
        "name": name.value,
        "space_id": task.space_id,
        "task_id": task.id,
        "data": json.dumps(data),
    }
    await tx.run("insert_events", rows=QueryRows([record]), now=now)
    tx.wake(EVENTS)


async def enable_task(tx: Transaction, task: Task) -> None:
    """Let a task's slots run again, from now on; its failures are forgotten."""
    now = tx.now()
    await tx.run("touch_schedules", task_ids=[task.id])
    await tx.run("enable_task", id=task.id, now=now)
    await note(tx, EventName.TASK_ENABLED, task, {}, now)
    tx.wake(SCHEDULES)


async def disable_task(
    tx: Transaction, task: Task, reason: str, until: int | None, now: int
) -> None:
    """Stop a task's slots from running, for good or until an instant."""
    if until is None:
        await tx.run("disable_task", id=task.id, reason=reason, now=now)
    else:
        await tx.run("pause_task", id=task.id, until=until, now=now)
    await note(tx, EventName.TASK_DISABLED, task, {"reason": reason, "until": until}, now)


async def delete_task(tx: Transaction, task: Task, now: int) -> None:
    """Take a task and its schedules out of use; runs, slots and events stay until retention."""
    await tx.run("delete_task", id=task.id, now=now)
    await tx.run("delete_schedules_of", task_id=task.id, now=now)
    await note(tx, EventName.TASK_DELETED, task, {}, now)


ALIGNED = "aligned"
"""The fact that says with what the schedules are aligned."""


def as_schedule(row: Row) -> StoredSchedule:
    """Return a row of schedules as a value; its rule stays a record until timing reads it."""
    (
        schedule_id,
        task_id,
        task,
        space,
        name,
        rule,
        generation,
        version,
        state,
        note,
        cursor,
        next_at,
        created_at,
        updated_at,
    ) = row
    return StoredSchedule(
        id=ScheduleId(schedule_id),
        task_id=TaskId(task_id),
        task=task,
        space=space,
        name=name,
        rule=rule,
        generation=generation,
        version=version,
        state=ScheduleState(state),
        note=note,
        cursor=from_micros(cursor),
        next_at=maybe_instant(next_at),
        created_at=from_micros(created_at),
        updated_at=from_micros(updated_at),
    )


async def find_schedule(tx: Transaction, task_id: int, name: str) -> StoredSchedule | None:
    """Return a schedule of a task by name, or None."""
    row = await one(tx, "find_schedule", task_id=task_id, name=name)
    return None if row is None else as_schedule(row)


async def list_schedules(tx: Transaction, task_ids: Sequence[int]) -> list[StoredSchedule]:
    """Return the schedules of tasks, in the order they were made."""
    rows = await tx.rows("list_schedules", task_ids=task_ids) if task_ids else []
    return [as_schedule(row) for row in rows]


async def put_schedule(tx: Transaction, record: dict[str, Any]) -> StoredSchedule:
    """Create a schedule or replace the one of its name.

    The record carries the rule, the generation, the cursor to start from, the next slot, and when
    the schedule was made if its rule counts from then. Where it says what `stood` there (a cursor
    and a version, or nothing), Stale is raised if something else does.
    """
    now = tx.now()
    found = await find_schedule(tx, record["task_id"], record["name"])
    if "stood" in record:
        await _check_stood(tx, found, record["stood"])
    if record["next_at"] is not None and (found is None or found.next_at is None):
        await check_schedules(tx, record["task_id"])
    if found is None:
        made_at = record.get("created_at", now)
        await tx.run("insert_schedules", rows=QueryRows([record]), now=made_at)
    else:
        await tx.run("update_schedules", rows=QueryRows([{**record, "id": found.id}]), now=now)
    saved = await find_schedule(tx, record["task_id"], record["name"])
    if saved is None:
        message = f"schedule {record['name']} vanished while it was written"
        raise RuntimeError(message)
    await _note(tx, saved, "created" if found is None else "changed", now)
    tx.wake(SCHEDULES)
    return saved


async def _check_stood(tx: Transaction, found: StoredSchedule | None, stood: list[int]) -> None:
    """Raise Stale unless a schedule has this cursor and version, or none where there is none."""
    rows = [] if found is None else await tx.rows("lock_schedules", ids=[found.id])
    versions = [number for row in rows for number in row[1:3]]
    if versions != stood:
        message = "the schedule was planned, changed or dropped at the same moment: try again"
        raise Stale(message)


async def put_task(
    tx: Transaction,
    task: NewTask,
    after_id: int | None,
    schedule: dict[str, Any] | None = None,
    dropped: StoredSchedule | None = None,
) -> Task:
    """Create a task or bring the one of its name up to date, with or without a schedule.

    Whether a schedule stands as it stood is looked at first, since a changed task touches it.
    """
    now = tx.now()
    if dropped is not None:
        await drop_schedule(tx, dropped)
    record = dict(schedule or {})
    if "stood" in record:
        existing = await find_task(tx, task.space_id, task.name)
        own = [] if existing is None else await list_schedules(tx, [existing.id])
        found = next((one for one in own if one.name == record["name"]), None)
        await _check_stood(tx, found, record.pop("stood"))
    saved = await write_task(tx, task, after_id, now)
    if schedule is not None:
        await put_schedule(tx, {**record, "task_id": saved.id})
    return saved


async def drop_schedule(tx: Transaction, schedule: StoredSchedule) -> None:
    """Take a schedule out of use; its slots stay in the history."""
    now = tx.now()
    await _check_stood(tx, schedule, [to_micros(schedule.cursor), schedule.version])
    await tx.run("delete_schedule", id=schedule.id, now=now)
    await _note(tx, schedule, "deleted", now)


async def list_waiting_schedules(
    tx: Transaction, mark: str, after: int, most: int
) -> list[ScheduleCursor]:
    """Return schedules that wait, by id; none if they are aligned with this mark already."""
    aligned = await one(tx, "read_fact", name=ALIGNED)
    if aligned is not None and aligned[0] == mark:
        return []
    return [
        ScheduleCursor(
            id=ScheduleId(schedule_id),
            version=version,
            generation=generation,
            rule=rule,
            stagger=stagger,
            cursor=cursor,
            next_at=next_at,
            slot_key=key_of_run or key_of_ledger,
        )
        for (
            schedule_id,
            version,
            generation,
            rule,
            stagger,
            cursor,
            next_at,
            key_of_run,
            key_of_ledger,
        ) in await tx.rows("standing_schedules", after=after, most=most)
    ]


async def align_schedules(
    tx: Transaction, plans: Sequence[SchedulePlan], mark: str | None
) -> list[bool]:
    """Move schedules that still stand where they stood; a mark says that all are aligned with it.

    For a schedule that moved, what was before that counts as before its last change.
    """
    verdicts = await _move(tx, plans, tx.now()) if plans else []
    if mark is not None:
        await tx.run("note_fact", name=ALIGNED, value=mark)
    return verdicts


async def _move(tx: Transaction, plans: Sequence[SchedulePlan], now: int) -> list[bool]:
    rows = await tx.rows("lock_schedules", ids=sorted(plan.schedule_id for plan in plans))
    found = {row[0]: (row[1], row[2]) for row in rows}
    verdicts = [found.get(plan.schedule_id) == (plan.was, plan.version) for plan in plans]
    moved = QueryRows(
        {
            "id": plan.schedule_id,
            "cursor": plan.cursor,
            "next_at": plan.next_at,
            "updated_at": max(now, plan.cursor),
        }
        for plan, fits in zip(plans, verdicts, strict=True)
        if fits
    )
    await tx.run("move_schedules", rows=moved)
    tx.wake(SCHEDULES)
    return verdicts


async def _note(tx: Transaction, schedule: StoredSchedule, what: str, now: int) -> None:
    record = {
        "name": EventName.SCHEDULE_CHANGED.value,
        "task_id": schedule.task_id,
        "data": json.dumps({"schedule": schedule.name, "what": what}),
    }
    await tx.run("insert_events", rows=QueryRows([record]), now=now)
    tx.wake(EVENTS)


def _as_remembered(row: Row) -> StateEntry:
    return StateEntry(key=row[0], value=row[1], updated_at=from_micros(row[2]), updated_by=row[3])


def _as_seen(row: Row) -> SeenItem:
    return SeenItem(
        provider=row[0],
        item=row[1],
        data=row[2],
        first_at=from_micros(row[3]),
        last_at=from_micros(row[4]),
        count=row[5],
    )


async def put_state(tx: Transaction, task_id: int, key: str, value: str, who: str) -> StateEntry:
    """Keep a value under a key, whatever stood there."""
    now = tx.now()
    await tx.run("put_state", task_id=task_id, key=key, value=value, who=who, now=now)
    return StateEntry(key=key, value=value, updated_at=from_micros(now), updated_by=who)


async def get_state(tx: Transaction, task_id: int, key: str) -> StateEntry | None:
    """Return what stands under a key."""
    row = await one(tx, "get_state", task_id=task_id, key=key)
    return None if row is None else _as_remembered(row)


async def list_state(tx: Transaction, task_id: int, after: str, most: int) -> list[StateEntry]:
    """Return what a task keeps, by key."""
    rows = await tx.rows("list_state", task_id=task_id, after=after, most=most)
    return [_as_remembered(row) for row in rows]


async def count_state(tx: Transaction, task_id: int) -> int:
    """Return how many values a task keeps."""
    return int((await tx.rows("count_state", task_id=task_id))[0][0])


async def drop_state(tx: Transaction, task_id: int, key: str) -> bool:
    """Forget what stands under a key; false if nothing does."""
    return bool(await tx.rows("drop_state", task_id=task_id, key=key))


async def mark_seen(
    tx: Transaction, task_id: int, items: Sequence[tuple[str, str, str]]
) -> list[SeenItem]:
    """Count items (provider, item, data) as seen once more; each at most once in a call."""
    now = tx.now()
    rows = QueryRows({"provider": p, "item": i, "data": d} for p, i, d in items)
    found = await tx.rows("mark_seen", task_id=task_id, rows=rows, now=now)
    by_name = {(row[0], row[1]): _as_seen(row) for row in found}
    return [by_name[provider, item] for provider, item, _ in items]


async def get_seen(tx: Transaction, task_id: int, provider: str, item: str) -> SeenItem | None:
    """Return an item as it was seen, or None."""
    row = await one(tx, "get_seen", task_id=task_id, provider=provider, item=item)
    return None if row is None else _as_seen(row)
