"""What is looked at when an attempt makes or changes a task; people are not held to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.doors.commands.wishes import ScheduleAsked
from rota.doors.kit.office import Office
from rota.errors import Conflict
from rota.flow.define.agents import with_agent
from rota.flow.define.budgets import check_priced
from rota.flow.define.schedules import build_rule
from rota.model.instants import from_micros
from rota.model.tasks import Task, TaskKind
from rota.rules.inside import (
    FIRES_TRIED,
    MOST_SCHEDULES,
    check_hands,
    check_judges,
    check_pace,
    check_queue,
    check_reach,
    check_room,
    origin_behind,
)
from rota.rules.sites import site_of
from rota.timing.timetable import timetable

PERSON = "api"
AT_THE_MACHINE = "cli"


async def origin_of(office: Office, space_id: int) -> str:
    """Return what is kept of who makes a task; refuse an attempt that has made enough."""
    own = await _own_task(office)
    if own is None:
        return AT_THE_MACHINE if office.local else PERSON
    check_room(await office.store.count_made(space_id))
    return origin_behind(own.origin)


async def check_maker(
    office: Office,
    kind: TaskKind,
    spec: Mapping[str, Any],
    space: str,
    schedule: ScheduleAsked | None = None,
    stands: Task | None = None,
) -> None:
    """Refuse an attempt that would make a task reach further than itself, or fire too often."""
    await _check_money(office, kind, spec, space, stands)
    own = await _own_task(office)
    if own is None:
        return
    store = office.store
    if kind is not TaskKind.PYTHON:
        mine = site_of(own.spec, (await store.find_space(own.space)).role)
        check_reach(mine, site_of(spec, (await store.find_space(space)).role))
        check_hands(own.spec, kind, spec)
        check_judges(own.spec, None if stands is None else stands.spec, spec)
    if schedule is None:
        return
    if stands is not None and len(await store.list_schedules([stands.id])) >= MOST_SCHEDULES:
        message = f"it has {MOST_SCHEDULES} schedules already: change one of them"
        raise Conflict(message)
    now = from_micros(store.now())
    rule = build_rule(schedule.wish(), (await store.find_space(space)).timezone, now, now)
    check_pace([slot.due for slot in timetable(rule).take(now, FIRES_TRIED)])


async def _check_money(
    office: Office, kind: TaskKind, spec: Mapping[str, Any], space: str, stands: Task | None
) -> None:
    """Refuse an agent whose money nobody could count where a budget counts it."""
    if kind is not TaskKind.AGENT:
        return
    owner = await office.store.find_space(space)
    known = await office.store.budgets_of(0 if stands is None else stands.id, owner.id)
    for caps in known.values():
        check_priced(office.agents, with_agent(office.agents, kind, spec), caps)


async def check_runner(office: Office, task: Task, payload: object) -> None:
    """Refuse an attempt that would queue too much, or tell a task without walls what to do."""
    if office.caller.attempt is None:
        return
    counts = await office.store.count_runs(task.id)
    check_queue(counts.get("queued", 0))
    if payload is not None:
        await check_maker(office, task.kind, task.spec, task.space, stands=task)


async def _own_task(office: Office) -> Task | None:
    held = office.caller.attempt
    if held is None:
        return None
    (own,) = await office.store.get_tasks([held.task_id])
    return own
