"""A task's slots: which come next, and what became of those that came."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from rota.doors.commands.fields import WHOLE, Word
from rota.doors.commands.finding import task_of
from rota.doors.commands.shapes import Given, OneRun, OneTask
from rota.doors.commands.wishes import Zone
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.flow.define import runs
from rota.flow.observe.facts import Span, gather, gather_run
from rota.flow.observe.moments import parse_day, parse_instant
from rota.flow.observe.tasks import next_fires
from rota.flow.observe.why import Why, explain, explain_run
from rota.model.instants import from_micros
from rota.model.keys import KeyScope
from rota.model.runs import Enqueued
from rota.model.tasks import Task
from rota.ports.store import Store
from rota.rules.permission import seen_space
from rota.timing.zones import zone

MOST_FIRES = 100


class NextOf(OneTask):
    """How many of the next fires to tell."""

    n: Annotated[int, Field(ge=1, le=MOST_FIRES), WHOLE] = 5


class FireGiven(Given):
    """When a schedule fires."""

    at: datetime
    local: str
    schedule: str


class Fires(Given):
    """The next fires of a task, earliest first."""

    task: str
    fires: list[FireGiven]


class SlotsBetween(OneTask):
    """Which slots to fill: from one time to another, in a zone."""

    start: Word
    end: Word = "now"
    timezone: Zone | None = None


class Filled(Given):
    """The runs that were queued, and the span whose slots they stand for."""

    runs: list[int]
    start: datetime
    end: datetime


class WhyOf(OneTask):
    """What to explain: an instant, a day, or the last 24 hours."""

    at: Word | None = None
    timezone: Zone | None = None


class StoryGiven(Given):
    """What became of one slot, of several that share a fate, or of a run that was asked for."""

    at: datetime
    until: datetime | None
    count: int
    schedule: str | None
    verdict: str
    sentence: str
    run: int | None


class WhyGiven(Given):
    """What became of a task's slots, in words."""

    task: str
    timezone: str
    notes: list[str]
    slots: list[StoryGiven]


@command("GET", "/v1/tasks/{task}/next", KeyScope.READ)
async def next_of_task(office: Office, asked: NextOf) -> Fires:
    """Tell when a task's schedules fire next."""
    task = await task_of(office, asked.task, asked.space)
    now = from_micros(office.store.now())
    found = []
    for schedule in await office.store.list_schedules([task.id]):
        fires = next_fires(schedule, now, asked.n)
        where = zone(_zone_of(schedule.rule)) if fires else None
        found += [
            FireGiven(at=at, local=at.astimezone(where).isoformat(), schedule=schedule.name)
            for at in fires
        ]
    found.sort(key=lambda fire: fire.at)
    return Fires(task=task.name, fires=found[: asked.n])


@command("POST", "/v1/tasks/{task}/backfill", KeyScope.RUN, status=201)
async def backfill_task(office: Office, asked: SlotsBetween) -> Filled:
    """Queue a run for every slot of a span that has none; slots that ran are left alone."""
    store = office.store
    task = await task_of(office, asked.task, asked.space)
    where = asked.timezone or (await store.find_space(task.space)).timezone
    now = from_micros(store.now())
    first = parse_instant(asked.start, where, now, "start")
    last = parse_instant(asked.end, where, now, "end")
    # A slot at the very beginning of the span belongs to it.
    begin = first - timedelta(microseconds=1)

    def filled(outcomes: list[list[Enqueued]]) -> Filled:
        return Filled(runs=list(runs.created(outcomes)), start=first, end=last)

    office.keep(filled, "enqueue")
    ids = await runs.backfill(store, office.caller, task.name, begin, last, task.space)
    return Filled(runs=list(ids), start=first, end=last)


@command("GET", "/v1/tasks/{task}/why", KeyScope.READ)
async def why_of_task(office: Office, asked: WhyOf) -> WhyGiven:
    """Say what became of a task's slots: ran, late, skipped, missed, waiting, and why."""
    store = office.store
    task = await task_of(office, asked.task, asked.space)
    where = asked.timezone or await _zone_of_task(store, task)
    now = from_micros(store.now())
    span = None if asked.at is None else _span(asked.at, where, now)
    facts = await gather(store, task, span, seen_space(office.caller, None), office.own)
    return _why(explain(facts, zone(where)), where)


@command("GET", "/v1/runs/{run}/why", KeyScope.READ)
async def why_of_run(office: Office, asked: OneRun) -> WhyGiven:
    """Say what became of one run, when it was last heard of, and how its attempts ended."""
    store = office.store
    run = await runs.find_run(store, office.caller, asked.run)
    (task,) = await store.get_tasks([run.task_id])
    where = await _zone_of_task(store, task)
    facts = await gather_run(store, task, run, seen_space(office.caller, None), office.own)
    return _why(explain_run(facts, await store.list_attempts(run.id), zone(where)), where)


async def _zone_of_task(store: Store, task: Task) -> str:
    own = await store.list_schedules([task.id])
    return _zone_of(own[0].rule) if own else (await store.find_space(task.space)).timezone


def _why(told: Why, where: str) -> WhyGiven:
    return WhyGiven(
        task=told.task,
        timezone=where,
        notes=told.notes,
        slots=[
            StoryGiven(
                at=story.at,
                until=story.until,
                count=story.count,
                schedule=story.schedule,
                verdict=story.verdict,
                sentence=story.sentence,
                run=story.run_id,
            )
            for story in told.stories
        ],
    )


def _span(text: str, timezone: str, now: datetime) -> Span:
    day = parse_day(text, timezone, now, "at")
    if day is not None:
        return Span(start=day[0], end=day[1])
    instant = parse_instant(text, timezone, now, "at")
    whole_minute = instant.second == 0 and instant.microsecond == 0
    width = timedelta(minutes=1) if whole_minute else timedelta(seconds=1)
    return Span(start=instant, end=instant + width - timedelta(microseconds=1), instant=instant)


def _zone_of(rule: str) -> str:
    return str(json.loads(rule)["timezone"])
