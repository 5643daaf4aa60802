"""`rota schedule`, `next` and `why`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from rota.cli.arguments import SpaceName, now, optional_run, whole_number
from rota.cli.context import CliContext
from rota.cli.display import NOTHING, instant, wall_time_with_zone
from rota.errors import Invalid, RotaError
from rota.flow.observe.time_text import clock_text, first_line, parse_instant, wall_time_text
from rota.timing.descriptions import describe
from rota.timing.natural_language import read
from rota.timing.timetable import timetable
from rota.timing.zones import zone

MAX_LISTED = 1_000
LONGEST_WORDS = 60

schedule_app = typer.Typer(
    help="Schedules: when tasks run. `rota task edit` changes them.\n\n"
    "Example: rota schedule list report",
    rich_markup_mode=None,
)


@schedule_app.command("list")
def list_all(
    context: typer.Context,
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Those of one task [all].")
    ] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "1000",
    space: SpaceName = None,
) -> None:
    """List schedules, by task and name.

    Example: rota schedule list report
    """
    desk = CliContext(context)
    most = whole_number("limit", limit, 1, MAX_LISTED)
    try:
        found = desk.call("GET", "/v1/schedules", {"task": task, "space": space, "limit": most})
    except RotaError as fault:
        raise (fault if task is None else desk.better(fault, task, space)) from None
    desk.out.record(found)
    rows = [
        [
            one["task"],
            one["name"],
            one["state"],
            first_line(one["words"], LONGEST_WORDS),
            NOTHING
            if one["next_at"] is None
            else wall_time_with_zone(one["next_at"], one["timezone"]),
        ]
        for one in found["schedules"]
    ]
    columns = ["task", "schedule", "state", "when", "next"]
    desk.out.table(columns, rows, 'No schedules: rota add "weekdays 7:00" "..." makes one.')


def why(
    context: typer.Context,
    which: Annotated[
        str, typer.Argument(metavar="TASK|RUN", help="A task's name, or a run's number.")
    ],
    time: Annotated[
        list[str] | None,
        typer.Argument(metavar="TIME", help="'7:00', 'yesterday', ISO 8601 [the last 24 h]."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option("--timezone", metavar="ZONE", help="Zone of TIME [the schedule's]."),
    ] = None,
    space: SpaceName = None,
) -> None:
    """Say what became of a task's slots: ran, late, skipped, missed, waiting, and why.

    At most 40 slots are told, the newest that have come; the answer says so. Of a run that goes on
    it tells when it was last heard of.

    Example: rota why report "yesterday 7:00"
    """
    desk = CliContext(context)
    number = optional_run(which)
    if number is None:
        wanted = {"at": " ".join(time) if time else None, "timezone": timezone, "space": space}
        told = desk.task("GET", which, "/why", wanted)
    elif time or timezone:
        raise Invalid("time", " ".join(time or [timezone or ""]), "goes with a task, not a run")
    else:
        told = desk.call("GET", f"/v1/runs/{number}/why")
    desk.out.record(told)
    desk.out.line(f"{told['task']}  ({told['timezone']})")
    for note in told["notes"]:
        desk.out.line(note)
    place = ZoneInfo(told["timezone"])
    slots = told["slots"]
    several = len({slot["schedule"] for slot in slots if slot["schedule"]}) > 1
    rows = []
    for slot in slots:
        until = "" if slot["until"] is None else f" to {clock_text(instant(slot['until']), place)}"
        name = f"{slot['schedule']}: " if several and slot["schedule"] else ""
        at = f"{wall_time_text(instant(slot['at']), place)}{until}"
        rows.append([at, slot["outcome"], f"{name}{slot['sentence']}"])
    desk.out.table(["slot", "what", "why"], rows, "Nothing was planned and nothing ran.")


MOST_FIRES = 1_000


def preview(
    context: typer.Context,
    rule: Annotated[
        list[str], typer.Argument(metavar="RULE", help="A cron line, an RRULE or words.")
    ],
    timezone: Annotated[str, typer.Option("--timezone", metavar="ZONE", help="IANA zone.")] = "UTC",
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Count from this time [now].")
    ] = None,
    count: Annotated[str, typer.Option("-n", metavar="N", help="How many.")] = "5",
) -> None:
    """Say a rule in words and show when it fires next.

    Example: rota next "every weekday at 7" --timezone Europe/Berlin -n 3
    """
    desk = CliContext(context)
    most = whole_number("n", count, 1, MOST_FIRES)
    begin = now()
    if start is not None:
        begin = parse_instant(start, timezone, begin, "from")
    wanted = read(" ".join(rule), now=begin, timezone=timezone)
    where = zone(wanted.timezone)
    # A single instant that is exactly the start is still to come for whoever asks.
    after = begin - timedelta(microseconds=1) if wanted.kind == "once" else begin
    fires = [slot.due for slot in timetable(wanted).take(after, most)]
    words = describe(wanted)
    desk.out.record(
        {"words": words, "fires": [fire.astimezone(where).isoformat() for fire in fires]}
    )
    desk.out.line(words)
    for fire in fires:
        desk.out.line(f"  {wall_time_with_zone(fire, wanted.timezone)}")
    if not fires:
        desk.out.line("  never again")


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(schedule_app, name="schedule")
    app.command("why")(why)
    app.command("next")(preview)
