"""`rota watch`: status and newest runs, live in the terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.idle_words import NOBODY, idle_words
from rota.doors.cli.output import painted
from rota.doors.cli.run_words import run_columns, run_row
from rota.doors.cli.show import wall_named
from rota.doors.cli.status import queue_pairs, tell_status, worker_rows
from rota.doors.cli.tables import rich_table
from rota.doors.cli.values import whole
from rota.errors import Unavailable
from rota.model.texts import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

REFRESH_SECONDS = 1.0
MOST_RUNS = 200


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("watch")(watch)


def watch(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    runs: Annotated[str, typer.Option("--runs", metavar="N", help="So many runs.")] = "15",
) -> None:
    """Watch the queue, the workers and the newest runs until Ctrl-C.

    Example: rota watch
    """
    desk = Desk(context)
    most = whole("runs", runs, 1, MOST_RUNS)
    if once or desk.out.as_json or not sys.stdout.isatty():
        _show_once(desk, most)
        return
    from rich.console import Console  # noqa: PLC0415 - slow to load
    from rich.live import Live  # noqa: PLC0415

    try:
        with Live(
            console=Console(file=painted(sys.stdout)), screen=True, auto_refresh=False
        ) as live:
            while True:
                live.update(_screen(desk, most), refresh=True)
                time.sleep(REFRESH_SECONDS)
    except KeyboardInterrupt:
        return


def _show_once(desk: Desk, most: int) -> None:
    status = desk.call("GET", "/v1/status")
    found = desk.call("GET", "/v1/runs", {"limit": most})
    desk.out.record({"status": status, "runs": found["runs"]})
    if desk.out.as_json:
        return
    zone = desk.zone()
    tell_status(desk.out, status)
    desk.out.line()
    desk.out.table(run_columns(zone), [run_row(run, zone) for run in found["runs"]], "No runs.")


def _screen(desk: Desk, most: int) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415 - slow to load
    from rich.text import Text  # noqa: PLC0415

    try:
        zone = desk.zone()
        status = desk.call("GET", "/v1/status")
        found = desk.call("GET", "/v1/runs", {"limit": most})["runs"]
    except Unavailable as fault:
        desk.ask_anew()
        return Text(visible(f"{fault}; trying again"), style="yellow")
    queue = "   ".join(f"{name} {value}" for name, value in queue_pairs(status) if value)
    told = [visible(f"! {w['code']}: {w['message']}") for w in status["warnings"]]
    warnings = [Text(words, style="yellow") for words in told]
    workers: Any = Text(visible(idle_words(status) or NOBODY), style="yellow")
    rows = worker_rows(status)
    if rows:
        workers = rich_table(("worker", "state", "busy", "seen", "roles"), rows)
    return Group(
        Text(f"Rota  {wall_named(status['at'], zone)}   Ctrl-C ends", style="bold"),
        Text(queue),
        *warnings,
        Text(),
        workers,
        Text(),
        rich_table(run_columns(zone), [run_row(run, zone) for run in found]),
    )
