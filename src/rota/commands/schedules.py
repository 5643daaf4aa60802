"""Schedules, previews, next fires, backfill and `why`."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import (
    NAME,
    WHOLE,
    Instant,
    Limit,
    SpaceName,
    TaskRef,
    Word,
    Zone,
    resolve_space,
    resolve_task,
)
from rota.commands.responses import From, RequestModel, ResponseModel, RunSelector, TaskSelector
from rota.commands.task_inputs import ScheduleInput
from rota.commands.task_responses import ScheduleResponse
from rota.flow import lookup
from rota.flow.define import runs, schedules
from rota.flow.define.schedules import build_rule
from rota.flow.observe.time_text import offset_changes, parse_day, parse_instant
from rota.flow.observe.views import next_fires
from rota.flow.observe.why import WhyReport, explain, explain_run
from rota.flow.observe.why_facts import WhySpan, load_facts, load_run_facts
from rota.model.instants import from_micros
from rota.model.keys import KeyScope
from rota.model.runs import Enqueued
from rota.model.schedules import RuleKind
from rota.model.tasks import Task
from rota.model.views import TaskFilter
from rota.rules.permissions import visible_space
from rota.store import tasks as store_tasks
from rota.store.settlement import enqueue
from rota.store.store import Store
from rota.store.tasks import find_space, get_tasks
from rota.store.views import find_tasks, list_attempts
from rota.timing.descriptions import describe
from rota.timing.timetable import timetable
from rota.timing.zones import zone

Name = Annotated[str, NAME]
MOST_FIRES = 100


class SchedulesQuery(RequestModel):
    """Which schedules to list."""

    task: TaskRef | None = None
    space: SpaceName | None = None
    limit: Limit = 1_000


class ScheduleList(ResponseModel):
    """Schedules, by task and name."""

    schedules: list[ScheduleResponse]


class ScheduleSelector(TaskSelector):
    """One schedule of a task."""

    name: Name


class SetSchedule(ScheduleSelector):
    """When a task is to run, under a name of its own."""

    schedule: ScheduleInput


class ScheduleRemovedResponse(ResponseModel):
    """What was taken out of use."""

    deleted: bool = True
    name: str


class PreviewSchedule(RequestModel):
    """A rule that nobody has kept yet."""

    schedule: ScheduleInput
    space: SpaceName | None = None
    n: Annotated[int, Field(ge=1, le=MOST_FIRES), WHOLE] = 5
    start: Instant | None = None


class SchedulePreviewResponse(ResponseModel):
    """A rule in words, when it fires, and what the clocks do meanwhile."""

    kind: RuleKind
    words: str
    timezone: str
    fires: list[datetime]
    local: list[str]
    notes: list[str]


@command("GET", "/v1/schedules", KeyScope.READ)
async def list_schedules(office: RequestContext, asked: SchedulesQuery) -> ScheduleList:
    """List schedules, of one task or of every task the caller may see."""
    store = office.store
    if asked.task is not None:
        own = await store.read(
            store_tasks.list_schedules, [(await resolve_task(office, asked.task, asked.space)).id]
        )
    else:
        space = visible_space(office.caller, asked.space)
        owner = None if space is None else (await store.read(find_space, space)).id
        found = await store.read(find_tasks, TaskFilter(space_id=owner, limit=asked.limit))
        own = [schedule for _, schedules in found for schedule in schedules]
    own.sort(key=lambda s: (s.space, s.task, s.name))
    return ScheduleList(
        schedules=[ScheduleResponse.from_model(schedule) for schedule in own[: asked.limit]]
    )


@command("PUT", "/v1/tasks/{task}/schedules/{name}", KeyScope.DEFINE)
async def put_schedule(office: RequestContext, asked: SetSchedule) -> ScheduleResponse:
    """Declare a schedule by name; the same wish again changes nothing."""
    task = await resolve_task(office, asked.task, asked.space)
    office.keep(ScheduleResponse.from_model, store_tasks.put_schedule)
    kept = await schedules.put_schedule(
        office.store,
        office.caller,
        task.name,
        asked.schedule.wish(),
        space=task.space,
        name=asked.name,
    )
    return ScheduleResponse.from_model(kept)


@command("DELETE", "/v1/tasks/{task}/schedules/{name}", KeyScope.DEFINE)
async def drop_schedule(office: RequestContext, asked: ScheduleSelector) -> ScheduleRemovedResponse:
    """Take a schedule out of use; its history stays."""
    task = await resolve_task(office, asked.task, asked.space)
    office.keep(lambda _: ScheduleRemovedResponse(name=asked.name), store_tasks.drop_schedule)
    gone = await schedules.drop_schedule(
        office.store, office.caller, task.name, task.space, asked.name
    )
    return ScheduleRemovedResponse(name=gone.name)


@command("POST", "/v1/schedules/preview", KeyScope.READ, writes=False)
async def preview_schedule(
    office: RequestContext, asked: PreviewSchedule
) -> SchedulePreviewResponse:
    """Say a rule in words and tell when it would fire; nothing is kept."""
    owner = await office.store.read(find_space, resolve_space(office, asked.space))
    now = from_micros(office.store.now())
    begin = asked.start or now
    rule = build_rule(asked.schedule.wish(), owner.timezone, begin, begin)
    after = begin - timedelta(microseconds=1) if rule.kind is RuleKind.ONCE else begin
    fires = [slot.due for slot in timetable(rule).take(after, asked.n)]
    where = zone(rule.timezone)
    last = fires[-1] if fires else begin
    return SchedulePreviewResponse(
        kind=rule.kind,
        words=describe(rule),
        timezone=rule.timezone,
        fires=fires,
        local=[fire.astimezone(where).isoformat() for fire in fires],
        notes=offset_changes(where, begin, last),
    )


class NextFiresQuery(TaskSelector):
    """How many of the next fires to tell."""

    n: Annotated[int, Field(ge=1, le=MOST_FIRES), WHOLE] = 5


class FireResponse(ResponseModel):
    """When a schedule fires."""

    at: datetime
    local: str
    schedule: str


class FireList(ResponseModel):
    """The next fires of a task, earliest first."""

    task: str
    fires: list[FireResponse]


class BackfillInput(TaskSelector):
    """Which slots to fill: from one time to another, in a zone."""

    start: Word
    end: Word = "now"
    timezone: Zone | None = None


class BackfillResponse(ResponseModel):
    """The runs that were queued, and the span whose slots they stand for."""

    runs: list[int]
    start: datetime
    end: datetime


class WhyQuery(TaskSelector):
    """What to explain: an instant, a day, or the last 24 hours."""

    at: Word | None = None
    timezone: Zone | None = None


class WhyEntryResponse(ResponseModel):
    """What became of one slot, of several that share a fate, or of a run that was asked for."""

    at: datetime
    until: datetime | None
    count: int
    schedule: str | None
    verdict: str
    sentence: str
    run: Annotated[int | None, From("run_id")]


class WhyResponse(ResponseModel):
    """What became of a task's slots, in words."""

    task: str
    timezone: str
    notes: list[str]
    slots: list[WhyEntryResponse]


@command("GET", "/v1/tasks/{task}/next", KeyScope.READ)
async def next_of_task(office: RequestContext, asked: NextFiresQuery) -> FireList:
    """Tell when a task's schedules fire next."""
    task = await resolve_task(office, asked.task, asked.space)
    now = from_micros(office.store.now())
    found = []
    for schedule in await office.store.read(store_tasks.list_schedules, [task.id]):
        fires = next_fires(schedule, now, asked.n)
        where = zone(_zone_of(schedule.rule)) if fires else None
        found += [
            FireResponse(at=at, local=at.astimezone(where).isoformat(), schedule=schedule.name)
            for at in fires
        ]
    found.sort(key=lambda fire: fire.at)
    return FireList(task=task.name, fires=found[: asked.n])


@command("POST", "/v1/tasks/{task}/backfill", KeyScope.RUN, status=201)
async def backfill_task(office: RequestContext, asked: BackfillInput) -> BackfillResponse:
    """Queue a run for every slot of a span that has none; slots that ran are left alone."""
    store = office.store
    task = await resolve_task(office, asked.task, asked.space)
    where = asked.timezone or (await store.read(find_space, task.space)).timezone
    now = from_micros(store.now())
    first = parse_instant(asked.start, where, now, "start")
    last = parse_instant(asked.end, where, now, "end")
    # A slot at the very beginning of the span belongs to it.
    begin = first - timedelta(microseconds=1)

    def filled(outcomes: list[list[Enqueued]]) -> BackfillResponse:
        return BackfillResponse(runs=list(runs.created(outcomes)), start=first, end=last)

    office.keep(filled, enqueue)
    ids = await runs.backfill(store, office.caller, task.name, begin, last, task.space)
    return BackfillResponse(runs=list(ids), start=first, end=last)


@command("GET", "/v1/tasks/{task}/why", KeyScope.READ)
async def why_of_task(office: RequestContext, asked: WhyQuery) -> WhyResponse:
    """Say what became of a task's slots: ran, late, skipped, missed, waiting, and why."""
    store = office.store
    task = await resolve_task(office, asked.task, asked.space)
    where = asked.timezone or await _zone_of_task(store, task)
    now = from_micros(store.now())
    span = None if asked.at is None else _span(asked.at, where, now)
    facts = await load_facts(store, task, span, visible_space(office.caller, None), office.own)
    return _why(explain(facts, zone(where)), where)


@command("GET", "/v1/runs/{run}/why", KeyScope.READ)
async def why_of_run(office: RequestContext, asked: RunSelector) -> WhyResponse:
    """Say what became of one run, when it was last heard of, and how its attempts ended."""
    store = office.store
    run = await lookup.find_run(store, office.caller, asked.run)
    (task,) = await store.read(get_tasks, [run.task_id])
    where = await _zone_of_task(store, task)
    facts = await load_run_facts(store, task, run, visible_space(office.caller, None), office.own)
    return _why(explain_run(facts, await store.read(list_attempts, run.id), zone(where)), where)


async def _zone_of_task(store: Store, task: Task) -> str:
    own = await store.read(store_tasks.list_schedules, [task.id])
    return _zone_of(own[0].rule) if own else (await store.read(find_space, task.space)).timezone


def _why(told: WhyReport, where: str) -> WhyResponse:
    return WhyResponse(
        task=told.task,
        timezone=where,
        notes=told.notes,
        slots=[WhyEntryResponse.from_model(entry) for entry in told.stories],
    )


def _span(text: str, timezone: str, now: datetime) -> WhySpan:
    day = parse_day(text, timezone, now, "at")
    if day is not None:
        return WhySpan(start=day[0], end=day[1])
    instant = parse_instant(text, timezone, now, "at")
    whole_minute = instant.second == 0 and instant.microsecond == 0
    width = timedelta(minutes=1) if whole_minute else timedelta(seconds=1)
    return WhySpan(start=instant, end=instant + width - timedelta(microseconds=1), instant=instant)


def _zone_of(rule: str) -> str:
    return str(json.loads(rule)["timezone"])
