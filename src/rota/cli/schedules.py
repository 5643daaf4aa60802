"""`rota schedule`, `next` and `why`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from rota.cli.arguments import (
    Count,
    Limit,
    SpaceName,
    now,
    optional_run,
    page,
    whole_number,
)
from rota.cli.context import CliContext
from rota.cli.display import Column, instant, wall_time_with_zone
from rota.errors import Invalid, RotaError
from rota.flow.observe.time_text import clock_text, first_line, parse_instant, wall_time_text
from rota.timing.descriptions import describe
from rota.timing.natural_language import read
from rota.timing.timetable import timetable
from rota.timing.zones import zone

SHORT = 60
COLUMNS = (
    Column("task", "task"),
    Column("schedule", "name"),
    Column("state", "state"),
    Column("when", lambda schedule: first_line(schedule["words"], SHORT)),
    Column("next", lambda schedule: wall_time_with_zone(schedule["next_at"], schedule["timezone"])),
)
NO_SCHEDULES = 'No schedules found. To add one: rota add "weekdays 7:00" "Summarise my inbox"'

schedule_app = typer.Typer(
    help="Show schedules; `rota task edit` changes them.\n\nExample: rota schedule list report",
    rich_markup_mode=None,
)


@schedule_app.command("list")
def list_schedules(
    context: typer.Context,
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Name or id of a task [default: all]")
    ] = None,
    limit: Limit = "1000",
    space: SpaceName = None,
) -> None:
    """List schedules, by task and name.

    Example: rota schedule list report
    """
    cli = CliContext(context)
    try:
        query = {**page(limit), "task": task, "space": space}
        found = cli.call("GET", "/v1/schedules", query)
    except RotaError as error:
        raise (error if task is None else cli.with_suggestion(error, task, space)) from None
    cli.show_list(found, "schedules", COLUMNS, NO_SCHEDULES)


def why(
    context: typer.Context,
    which: Annotated[
        str, typer.Argument(metavar="TASK|RUN", help="Name of the task, or number of a run")
    ],
    time: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TIME", help="'7:00', 'yesterday' or ISO 8601 [default: the last 24 h]"
        ),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone", metavar="ZONE", help="Time zone of TIME [default: that of the schedule]"
        ),
    ] = None,
    space: SpaceName = None,
) -> None:
    """Explain what happened to a task's slots: ran, late, skipped, missed or waiting.

    Shows at most the 40 newest slots. For a running run it shows the time of its last heartbeat.

    Example: rota why report "yesterday 7:00"
    """
    cli = CliContext(context)
    number = optional_run(which)
    if number is None:
        query = {"at": " ".join(time) if time else None, "timezone": timezone, "space": space}
        report = cli.task("GET", which, "/why", query)
    elif time or timezone:
        raise Invalid("time", " ".join(time or [timezone or ""]), "needs a task instead of a run")
    else:
        report = cli.call("GET", f"/v1/runs/{number}/why")
    cli.out.record(report)
    cli.out.line(f"{report['task']}  ({report['timezone']})")
    for note in report["notes"]:
        cli.out.line(note)
    place = ZoneInfo(report["timezone"])
    slots = report["slots"]
    several = len({slot["schedule"] for slot in slots if slot["schedule"]}) > 1
    rows = []
    for slot in slots:
        until = "" if slot["until"] is None else f" to {clock_text(instant(slot['until']), place)}"
        name = f"{slot['schedule']}: " if several and slot["schedule"] else ""
        at = f"{wall_time_text(instant(slot['at']), place)}{until}"
        rows.append([at, slot["outcome"], f"{name}{slot['sentence']}"])
    cli.out.table(["slot", "outcome", "reason"], rows, "No slots and no runs found.")


MAX_FIRES = 1_000


def preview(
    context: typer.Context,
    rule: Annotated[
        list[str],
        typer.Argument(metavar="RULE", help="Cron expression, recurrence rule, or words"),
    ],
    timezone: Annotated[
        str, typer.Option("--timezone", metavar="ZONE", help="IANA time zone")
    ] = "UTC",
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Time to start from [default: now]"),
    ] = None,
    count: Count = "5",
) -> None:
    """Describe a schedule rule and show its next times.

    Example: rota next "every weekday at 7" --timezone Europe/Berlin -n 3
    """
    cli = CliContext(context)
    limit = whole_number("n", count, 1, MAX_FIRES)
    begin = now()
    if start is not None:
        begin = parse_instant(start, timezone, begin, "from")
    parsed = read(" ".join(rule), now=begin, timezone=timezone)
    where = zone(parsed.timezone)
    # A single time that is exactly the start is still in the future.
    after = begin - timedelta(microseconds=1) if parsed.kind == "once" else begin
    fires = [slot.due for slot in timetable(parsed).take(after, limit)]
    words = describe(parsed)
    cli.out.record(
        {"words": words, "fires": [fire.astimezone(where).isoformat() for fire in fires]}
    )
    cli.out.line(words)
    for fire in fires:
        cli.out.line(f"  {wall_time_with_zone(fire, parsed.timezone)}")
    if not fires:
        cli.out.line("  no more times")


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(schedule_app, name="schedule")
    app.command("why")(why)
    app.command("next")(preview)
