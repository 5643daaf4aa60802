"""Schedules: list, put, drop, and preview a rule before it is kept."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from rota.doors.commands.fields import NAME, WHOLE, Instant, Limit, SpaceName, TaskRef
from rota.doors.commands.finding import space_of, task_of
from rota.doors.commands.shapes import Asked, Given, OneTask
from rota.doors.commands.task_shapes import ScheduleGiven, schedule_given
from rota.doors.commands.wishes import ScheduleAsked
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.flow.define import schedules
from rota.flow.define.schedules import build_rule
from rota.flow.observe.changes import offset_changes
from rota.model.instants import from_micros
from rota.model.keys import KeyScope
from rota.model.schedules import RuleKind
from rota.model.views import TaskFilter
from rota.rules.permission import seen_space
from rota.timing.timetable import timetable
from rota.timing.words import describe
from rota.timing.zones import zone

Name = Annotated[str, NAME]
MOST_FIRES = 100


class SchedulesWanted(Asked):
    """Which schedules to list."""

    task: TaskRef | None = None
    space: SpaceName | None = None
    limit: Limit = 1_000


class Schedules(Given):
    """Schedules, by task and name."""

    schedules: list[ScheduleGiven]


class OneSchedule(OneTask):
    """One schedule of a task."""

    name: Name


class PutSchedule(OneSchedule):
    """When a task is to run, under a name of its own."""

    schedule: ScheduleAsked


class Dropped(Given):
    """What was taken out of use."""

    deleted: bool = True
    name: str


class Preview(Asked):
    """A rule that nobody has kept yet."""

    schedule: ScheduleAsked
    space: SpaceName | None = None
    n: Annotated[int, Field(ge=1, le=MOST_FIRES), WHOLE] = 5
    start: Instant | None = None


class Previewed(Given):
    """A rule in words, when it fires, and what the clocks do meanwhile."""

    kind: RuleKind
    words: str
    timezone: str
    fires: list[datetime]
    local: list[str]
    notes: list[str]


@command("GET", "/v1/schedules", KeyScope.READ)
async def list_schedules(office: Office, asked: SchedulesWanted) -> Schedules:
    """List schedules, of one task or of every task the caller may see."""
    store = office.store
    if asked.task is not None:
        own = await store.list_schedules([(await task_of(office, asked.task, asked.space)).id])
    else:
        space = seen_space(office.caller, asked.space)
        owner = None if space is None else (await store.find_space(space)).id
        found = await store.find_tasks(TaskFilter(space_id=owner, limit=asked.limit))
        own = [schedule for _, schedules in found for schedule in schedules]
    own.sort(key=lambda s: (s.space, s.task, s.name))
    return Schedules(schedules=[schedule_given(schedule) for schedule in own[: asked.limit]])


@command("PUT", "/v1/tasks/{task}/schedules/{name}", KeyScope.DEFINE)
async def put_schedule(office: Office, asked: PutSchedule) -> ScheduleGiven:
    """Declare a schedule by name; the same wish again changes nothing."""
    task = await task_of(office, asked.task, asked.space)
    office.keep(schedule_given, "put_schedule")
    kept = await schedules.put_schedule(
        office.store,
        office.caller,
        task.name,
        asked.schedule.wish(),
        space=task.space,
        name=asked.name,
    )
    return schedule_given(kept)


@command("DELETE", "/v1/tasks/{task}/schedules/{name}", KeyScope.DEFINE)
async def drop_schedule(office: Office, asked: OneSchedule) -> Dropped:
    """Take a schedule out of use; its history stays."""
    task = await task_of(office, asked.task, asked.space)
    office.keep(lambda _: Dropped(name=asked.name), "drop_schedule")
    gone = await schedules.drop_schedule(
        office.store, office.caller, task.name, task.space, asked.name
    )
    return Dropped(name=gone.name)


@command("POST", "/v1/schedules/preview", KeyScope.READ, writes=False)
async def preview_schedule(office: Office, asked: Preview) -> Previewed:
    """Say a rule in words and tell when it would fire; nothing is kept."""
    owner = await office.store.find_space(space_of(office, asked.space))
    now = from_micros(office.store.now())
    begin = asked.start or now
    rule = build_rule(asked.schedule.wish(), owner.timezone, begin, begin)
    after = begin - timedelta(microseconds=1) if rule.kind is RuleKind.ONCE else begin
    fires = [slot.due for slot in timetable(rule).take(after, asked.n)]
    where = zone(rule.timezone)
    last = fires[-1] if fires else begin
    return Previewed(
        kind=rule.kind,
        words=describe(rule),
        timezone=rule.timezone,
        fires=fires,
        local=[fire.astimezone(where).isoformat() for fire in fires],
        notes=offset_changes(where, begin, last),
    )
