"""`rota next`: when a rule fires; no database, no home."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import wall_named
from rota.doors.cli.values import now, whole
from rota.flow.observe.moments import parse_instant
from rota.timing.natural import read
from rota.timing.timetable import timetable
from rota.timing.words import describe
from rota.timing.zones import zone

MOST_FIRES = 1_000


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("next")(preview)


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
    desk = Desk(context)
    most = whole("n", count, 1, MOST_FIRES)
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
        desk.out.line(f"  {wall_named(fire, wanted.timezone)}")
    if not fires:
        desk.out.line("  never again")
