"""`rota why`: what became of a task's slots, in words."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import iso
from rota.doors.cli.wire import zone_of
from rota.flow.define.names import get_task
from rota.flow.observe.facts import Span, gather
from rota.flow.observe.moments import parse_day, parse_instant
from rota.flow.observe.telling import clock, wall
from rota.flow.observe.why import Why, explain
from rota.model.instants import from_micros
from rota.ports.store import Store
from rota.rules.permission import LOCAL
from rota.timing.zones import zone


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("why")(why)


def why(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name.")],
    time: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TIME]", help="'7:00', 'yesterday', ISO 8601 [the last 24 h]."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option("--timezone", metavar="ZONE", help="Zone of TIME [the schedule's]."),
    ] = None,
    space: Annotated[
        str, typer.Option("--space", metavar="NAME", help="Whose task it is.")
    ] = "main",
) -> None:
    """Say what became of a task's slots: ran, late, skipped, missed, waiting, and why.

    Example: rota why report "yesterday 7:00"
    """
    desk = Desk(context)
    text = " ".join(time) if time else None

    async def work(store: Store) -> tuple[Why, str]:
        found = await get_task(store, LOCAL, task, space)
        own = await store.list_schedules([found.id])
        home = (await store.find_space(space)).timezone
        where = timezone or (zone_of(own[0]) if own else home)
        now = from_micros(store.now())
        span = None if text is None else _span(text, where, now)
        return explain(await gather(store, found, span), zone(where)), where

    told, where = desk.ask(work)
    desk.out.record(_record(told, where))
    desk.out.line(f"{told.task}  ({where})")
    for note in told.notes:
        desk.out.line(note)
    place = zone(where)
    several = len({story.schedule for story in told.stories if story.schedule}) > 1
    rows = []
    for story in told.stories:
        until = "" if story.until is None else f" to {clock(story.until, place)}"
        name = f"{story.schedule}: " if several and story.schedule else ""
        rows.append([f"{wall(story.at, place)}{until}", story.verdict, f"{name}{story.sentence}"])
    desk.out.table(["slot", "what", "why"], rows, "Nothing was planned and nothing ran.")


def _span(text: str, timezone: str, now: datetime) -> Span:
    day = parse_day(text, timezone, now, "time")
    if day is not None:
        return Span(start=day[0], end=day[1])
    instant = parse_instant(text, timezone, now, "time")
    whole_minute = instant.second == 0 and instant.microsecond == 0
    width = timedelta(minutes=1) if whole_minute else timedelta(seconds=1)
    return Span(start=instant, end=instant + width - timedelta(microseconds=1), instant=instant)


def _record(told: Why, timezone: str) -> dict[str, object]:
    return {
        "task": told.task,
        "timezone": timezone,
        "notes": told.notes,
        "slots": [
            {
                "at": iso(story.at),
                "until": iso(story.until),
                "count": story.count,
                "schedule": story.schedule,
                "verdict": story.verdict,
                "sentence": story.sentence,
                "run": story.run_id,
            }
            for story in told.stories
        ],
    }
