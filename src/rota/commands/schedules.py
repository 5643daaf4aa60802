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
from rota.flow.observe import why
from rota.flow.observe.time_text import offset_changes, parse_day, parse_instant
from rota.flow.observe.views import next_fires
from rota.flow.observe.why import WhyReport
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
    """Filter for schedules."""

    task: TaskRef | None = None
    space: SpaceName | None = None
    limit: Limit = 1_000


class ScheduleList(ResponseModel):
    """Schedules, by task and name."""

    schedules: list[ScheduleResponse]


class ScheduleSelector(TaskSelector):
    """A schedule of a task."""

    name: Name


class SetSchedule(ScheduleSelector):
    """A schedule to create or replace."""

    schedule: ScheduleInput


class ScheduleRemovedResponse(ResponseModel):
    """The removed schedule."""

    deleted: bool = True
    name: str


class PreviewSchedule(RequestModel):
    """A rule to preview."""

    schedule: ScheduleInput
    space: SpaceName | None = None
    n: Annotated[int, Field(ge=1, le=MOST_FIRES), WHOLE] = 5
    start: Instant | None = None


class SchedulePreviewResponse(ResponseModel):
    """A rule in words, its next fires, and clock changes in that time."""

    kind: RuleKind
    words: str
    timezone: str
    fires: list[datetime]
    local: list[str]
    notes: list[str]


@command("GET", "/v1/schedules", KeyScope.READ)
async def list_schedules(context: RequestContext, request: SchedulesQuery) -> ScheduleList:
    """List schedules, of one task or of all visible tasks."""
    store = context.store
    if request.task is not None:
        own = await store.read(
            store_tasks.list_schedules,
            [(await resolve_task(context, request.task, request.space)).id],
        )
    else:
        space = visible_space(context.caller, request.space)
        owner = None if space is None else (await store.read(find_space, space)).id
        found = await store.read(find_tasks, TaskFilter(space_id=owner, limit=request.limit))
        own = [schedule for _, schedules in found for schedule in schedules]
    own.sort(key=lambda s: (s.space, s.task, s.name))
    return ScheduleList(
        schedules=[ScheduleResponse.from_model(schedule) for schedule in own[: request.limit]]
    )


@command("PUT", "/v1/tasks/{task}/schedules/{name}", KeyScope.DEFINE)
async def put_schedule(context: RequestContext, request: SetSchedule) -> ScheduleResponse:
    """Create or replace a schedule by name; an equal one does not change."""
    task = await resolve_task(context, request.task, request.space)
    context.record(ScheduleResponse.from_model, store_tasks.put_schedule)
    kept = await schedules.put_schedule(
        context.store,
        context.caller,
        task.name,
        request.schedule.wish(),
        space=task.space,
        name=request.name,
    )
    return ScheduleResponse.from_model(kept)


@command("DELETE", "/v1/tasks/{task}/schedules/{name}", KeyScope.DEFINE)
async def drop_schedule(
    context: RequestContext, request: ScheduleSelector
) -> ScheduleRemovedResponse:
    """Remove a schedule; its history is kept."""
    task = await resolve_task(context, request.task, request.space)
    context.record(lambda _: ScheduleRemovedResponse(name=request.name), store_tasks.drop_schedule)
    gone = await schedules.drop_schedule(
        context.store, context.caller, task.name, task.space, request.name
    )
    return ScheduleRemovedResponse(name=gone.name)


@command("POST", "/v1/schedules/preview", KeyScope.READ, writes=False)
async def preview_schedule(
    context: RequestContext, request: PreviewSchedule
) -> SchedulePreviewResponse:
    """Return a rule in words with its next fires; nothing is stored."""
    owner = await context.store.read(find_space, resolve_space(context, request.space))
    now = from_micros(context.store.now())
    begin = request.start or now
    rule = build_rule(request.schedule.wish(), owner.timezone, begin, begin)
    after = begin - timedelta(microseconds=1) if rule.kind is RuleKind.ONCE else begin
    fires = [slot.due for slot in timetable(rule).take(after, request.n)]
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
    """Number of fires to return."""

    n: Annotated[int, Field(ge=1, le=MOST_FIRES), WHOLE] = 5


class FireResponse(ResponseModel):
    """A fire of a schedule."""

    at: datetime
    local: str
    schedule: str


class FireList(ResponseModel):
    """The next fires of a task, earliest first."""

    task: str
    fires: list[FireResponse]


class BackfillInput(TaskSelector):
    """The period of slots to run."""

    start: Word
    end: Word = "now"
    timezone: Zone | None = None


class BackfillResponse(ResponseModel):
    """The queued runs, and the period of their slots."""

    runs: list[int]
    start: datetime
    end: datetime


class WhyQuery(TaskSelector):
    """What to explain: an instant, a day, or the last 24 hours."""

    at: Word | None = None
    timezone: Zone | None = None


class WhyEntryResponse(ResponseModel):
    """The outcome of a slot, of several equal ones, or of a requested run."""

    at: datetime
    until: datetime | None
    count: int
    schedule: str | None
    outcome: str
    sentence: str
    run: Annotated[int | None, From("run_id")]


class WhyResponse(ResponseModel):
    """The outcomes of a task's slots, in words."""

    task: str
    timezone: str
    notes: list[str]
    slots: list[WhyEntryResponse]


@command("GET", "/v1/tasks/{task}/next", KeyScope.READ)
async def list_fires(context: RequestContext, request: NextFiresQuery) -> FireList:
    """Return the next fires of a task."""
    task = await resolve_task(context, request.task, request.space)
    now = from_micros(context.store.now())
    found = []
    for schedule in await context.store.read(store_tasks.list_schedules, [task.id]):
        fires = next_fires(schedule, now, request.n)
        where = zone(_zone_of(schedule.rule)) if fires else None
        found += [
            FireResponse(at=at, local=at.astimezone(where).isoformat(), schedule=schedule.name)
            for at in fires
        ]
    found.sort(key=lambda fire: fire.at)
    return FireList(task=task.name, fires=found[: request.n])


@command("POST", "/v1/tasks/{task}/backfill", KeyScope.RUN, status=201)
async def backfill_task(context: RequestContext, request: BackfillInput) -> BackfillResponse:
    """Queue a run for every slot of a period that has none."""
    store = context.store
    task = await resolve_task(context, request.task, request.space)
    where = request.timezone or (await store.read(find_space, task.space)).timezone
    now = from_micros(store.now())
    first = parse_instant(request.start, where, now, "start")
    last = parse_instant(request.end, where, now, "end")
    # A slot at the very beginning of the span belongs to it.
    begin = first - timedelta(microseconds=1)

    def filled(outcomes: list[list[Enqueued]]) -> BackfillResponse:
        return BackfillResponse(runs=list(runs.created(outcomes)), start=first, end=last)

    context.record(filled, enqueue)
    ids = await runs.backfill(store, context.caller, task.name, begin, last, task.space)
    return BackfillResponse(runs=list(ids), start=first, end=last)


@command("GET", "/v1/tasks/{task}/why", KeyScope.READ)
async def explain_task(context: RequestContext, request: WhyQuery) -> WhyResponse:
    """Explain the outcomes of a task's slots: ran, late, skipped, missed or waiting."""
    store = context.store
    task = await resolve_task(context, request.task, request.space)
    where = request.timezone or await _zone_of_task(store, task)
    now = from_micros(store.now())
    span = None if request.at is None else _span(request.at, where, now)
    facts = await load_facts(
        store, task, span, visible_space(context.caller, None), context.daemon_state
    )
    return _why(why.explain(facts, zone(where)), where)


@command("GET", "/v1/runs/{run}/why", KeyScope.READ)
async def explain_run(context: RequestContext, request: RunSelector) -> WhyResponse:
    """Explain the state of a run, its last heartbeat and how its attempts ended."""
    store = context.store
    run = await lookup.find_run(store, context.caller, request.run)
    (task,) = await store.read(get_tasks, [run.task_id])
    where = await _zone_of_task(store, task)
    facts = await load_run_facts(
        store, task, run, visible_space(context.caller, None), context.daemon_state
    )
    return _why(why.explain_run(facts, await store.read(list_attempts, run.id), zone(where)), where)


async def _zone_of_task(store: Store, task: Task) -> str:
    own = await store.read(store_tasks.list_schedules, [task.id])
    return _zone_of(own[0].rule) if own else (await store.read(find_space, task.space)).timezone


def _why(report: WhyReport, where: str) -> WhyResponse:
    return WhyResponse(
        task=report.task,
        timezone=where,
        notes=report.notes,
        slots=[WhyEntryResponse.from_model(entry) for entry in report.stories],
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
