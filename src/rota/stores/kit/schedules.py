"""Schedules as people define them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rota.errors import Stale
from rota.model.events import EventName
from rota.model.ids import ScheduleId, TaskId
from rota.model.instants import from_micros, maybe_instant, to_micros
from rota.model.plans import Plan, ScheduleState, StandingSchedule, StoredSchedule
from rota.model.tasks import NewTask, Task
from rota.stores.kit import tasks
from rota.stores.kit.quotas import check_schedules
from rota.stores.kit.session import EVENTS, Row, Rows, Session, one
from rota.stores.kit.tasks import SCHEDULES

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


async def find_schedule(session: Session, task_id: int, name: str) -> StoredSchedule | None:
    """Return a schedule of a task by name, or None."""
    row = await one(session, "find_schedule", task_id=task_id, name=name)
    return None if row is None else as_schedule(row)


async def list_schedules(session: Session, task_ids: list[int]) -> list[StoredSchedule]:
    """Return the schedules of tasks, in the order they were made."""
    rows = await session.rows("list_schedules", task_ids=task_ids) if task_ids else []
    return [as_schedule(row) for row in rows]


async def put_schedule(session: Session, record: dict[str, Any], now: int) -> StoredSchedule:
    """Create a schedule or replace the one of its name.

    The record carries the rule, the generation, the cursor to start from, the next slot, and when
    the schedule was made if its rule counts from then. Where it says what `stood` there (a cursor
    and a version, or nothing), Stale is raised if something else does.
    """
    found = await find_schedule(session, record["task_id"], record["name"])
    if "stood" in record:
        await _check_stood(session, found, record["stood"])
    if record["next_at"] is not None and (found is None or found.next_at is None):
        await check_schedules(session, record["task_id"])
    if found is None:
        made_at = record.get("created_at", now)
        await session.run("insert_schedules", rows=Rows([record]), now=made_at)
    else:
        await session.run("update_schedules", rows=Rows([{**record, "id": found.id}]), now=now)
    saved = await find_schedule(session, record["task_id"], record["name"])
    if saved is None:
        message = f"schedule {record['name']} vanished while it was written"
        raise RuntimeError(message)
    await _note(session, saved, "created" if found is None else "changed", now)
    session.wake(SCHEDULES)
    return saved


async def _check_stood(session: Session, found: StoredSchedule | None, stood: list[int]) -> None:
    """Raise Stale unless a schedule has this cursor and version, or none where there is none."""
    rows = [] if found is None else await session.rows("lock_schedules", ids=[found.id])
    standing = [number for row in rows for number in row[1:3]]
    if standing != stood:
        message = "the schedule was planned, changed or dropped at the same moment: try again"
        raise Stale(message)


async def put_task(
    session: Session,
    task: NewTask,
    after_id: int | None,
    schedule: dict[str, Any] | None,
    dropped: StoredSchedule | None,
    now: int,
) -> Task:
    """Create a task or bring the one of its name up to date, with or without a schedule.

    Whether a schedule stands as it stood is looked at first, since a changed task touches it.
    """
    if dropped is not None:
        await drop_schedule(session, dropped, now)
    record = dict(schedule or {})
    if "stood" in record:
        standing = await tasks.find_task(session, task.space_id, task.name)
        own = [] if standing is None else await list_schedules(session, [standing.id])
        found = next((one for one in own if one.name == record["name"]), None)
        await _check_stood(session, found, record.pop("stood"))
    saved = await tasks.put_task(session, task, after_id, now)
    if schedule is not None:
        await put_schedule(session, {**record, "task_id": saved.id}, now)
    return saved


async def drop_schedule(session: Session, schedule: StoredSchedule, now: int) -> None:
    """Take a schedule out of use; its slots stay in the history."""
    await _check_stood(session, schedule, [to_micros(schedule.cursor), schedule.version])
    await session.run("delete_schedule", id=schedule.id, now=now)
    await _note(session, schedule, "deleted", now)


async def standing(session: Session, mark: str, after: int, most: int) -> list[StandingSchedule]:
    """Return schedules that wait, by id; none if they are aligned with this mark already."""
    aligned = await one(session, "read_fact", name=ALIGNED)
    if aligned is not None and aligned[0] == mark:
        return []
    return [
        StandingSchedule(
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
        ) in await session.rows("standing_schedules", after=after, most=most)
    ]


async def align_schedules(
    session: Session, plans: Sequence[Plan], mark: str | None, now: int
) -> list[bool]:
    """Move schedules that still stand where they stood; a mark says that all are aligned with it.

    For a schedule that moved, what was before that counts as before its last change.
    """
    verdicts = await _move(session, plans, now) if plans else []
    if mark is not None:
        await session.run("note_fact", name=ALIGNED, value=mark)
    return verdicts


async def _move(session: Session, plans: Sequence[Plan], now: int) -> list[bool]:
    rows = await session.rows("lock_schedules", ids=sorted(plan.schedule_id for plan in plans))
    standing = {row[0]: (row[1], row[2]) for row in rows}
    verdicts = [standing.get(plan.schedule_id) == (plan.was, plan.version) for plan in plans]
    moved = Rows(
        {
            "id": plan.schedule_id,
            "cursor": plan.cursor,
            "next_at": plan.next_at,
            "updated_at": max(now, plan.cursor),
        }
        for plan, fits in zip(plans, verdicts, strict=True)
        if fits
    )
    await session.run("move_schedules", rows=moved)
    session.wake(SCHEDULES)
    return verdicts


async def _note(session: Session, schedule: StoredSchedule, what: str, now: int) -> None:
    record = {
        "name": EventName.SCHEDULE_CHANGED.value,
        "task_id": schedule.task_id,
        "data": json.dumps({"schedule": schedule.name, "what": what}),
    }
    await session.run("insert_events", rows=Rows([record]), now=now)
    session.wake(EVENTS)
