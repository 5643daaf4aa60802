"""`rota runs`, `rota cancel`, `rota retry`, `rota backfill`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.idle_words import tell_if_idle
from rota.doors.cli.run_words import run_columns, run_row
from rota.doors.cli.show import wall_named
from rota.doors.cli.values import (
    LARGEST,
    DryRun,
    SpaceName,
    TaskName,
    maybe_run,
    maybe_whole,
    run_number,
    whole,
)
from rota.doors.cli.which_run import UNFINISHED, one_run
from rota.errors import RotaError
from rota.flow.observe.telling import counted

MOST_LISTED = 1_000


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("runs")(list_all)
    app.command("cancel")(cancel)
    app.command("retry")(retry)
    app.command("backfill")(backfill)


def list_all(
    context: typer.Context,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="Only of this task.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", metavar="STATE", help="queued, running, waiting, succeeded, failed …"
        ),
    ] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "20",
    before: Annotated[
        str | None, typer.Option("--before", metavar="RUN", help="Only runs older than this one.")
    ] = None,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Only of this space.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="With those whose gate woke nobody.")
    ] = False,
) -> None:
    """List runs, newest first.

    Example: rota runs --task report --state failed
    """
    desk = Desk(context)
    wanted: Record = {
        "state": state,
        "limit": whole("limit", limit, 1, MOST_LISTED),
        "before": maybe_whole("before", before, 1, LARGEST),
        "space": space,
        "quiet": True if every else None,
    }
    try:
        wanted["task"] = None if task is None else desk.reference(task, space)
        found = desk.call("GET", "/v1/runs", wanted)
    except RotaError as fault:
        raise (fault if task is None else desk.better(fault, task, space)) from None
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(space)
    nothing = "No runs." if found["runs"] or every else _nothing(desk, wanted)
    desk.out.table(run_columns(zone), [run_row(run, zone) for run in found["runs"]], nothing)
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --before {found['next']}")


def _nothing(desk: Desk, wanted: Record) -> str:
    """Return the sentence in place of an empty list, which may only leave the quiet out."""
    found = desk.call("GET", "/v1/runs", {**wanted, "quiet": True})
    if not found["runs"]:
        return "No runs."
    more = "" if found["next"] is None else " or more"
    return f"No runs but {counted(len(found['runs']), 'quiet one')}{more}: --all shows them."


def cancel(
    context: typer.Context,
    which: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|TASK...", help="Numbers of runs, or a task that has one unfinished run."
        ),
    ],
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """End runs that have not begun, or ask whoever works on them to stop.

    Example: rota cancel 12 13
    """
    desk = Desk(context)
    numbers = dict.fromkeys(one_run(desk, each, UNFINISHED, space) for each in which)
    *others, last = [f"/v1/runs/{number}/cancel" for number in numbers]
    done = [_cancelled(desk, desk.rehearsed("POST", path, dry_run=dry_run)) for path in others]
    done.append(_cancelled(desk, desk.call("POST", last, dry_run=dry_run)))
    desk.out.record(done[0] if len(done) == 1 else {"runs": done})
    if any(run["state"] == "running" for run in done):
        tell_if_idle(desk)


def _cancelled(desk: Desk, run: Record) -> Record:
    if run:
        asked = "is asked to stop" if run["state"] == "running" else "is cancelled"
        desk.out.line(f"Run {run['id']} of {run['task']} {asked}.")
    return run


def retry(
    context: typer.Context,
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="The run's number, or a task: its newest failed run."),
    ],
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Queue a new run with what a finished one was given.

    Example: rota retry 12
    """
    desk = Desk(context)
    number = None if maybe_run(run) is None else run_number(run)
    if number is None:
        done = desk.task("POST", run, "/retry", {"space": space}, dry_run=dry_run)
        number = done["retried"]
    else:
        done = desk.call("POST", f"/v1/runs/{number}/retry", dry_run=dry_run)
    desk.out.record(done)
    again = done["run"]
    desk.out.line(f"Queued run {again}, as run {number} was. Follow it: rota logs {again} -f")
    tell_if_idle(desk)


def backfill(
    context: typer.Context,
    task: TaskName,
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="From this time …")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="… to this one.")] = "now",
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Zone of both.")
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Queue a run for every slot of a span that has none; slots that ran are left alone.

    Example: rota backfill report --from 2026-11-01 --to 2026-11-08
    """
    desk = Desk(context)
    wanted = {"start": start, "end": end, "timezone": timezone, "space": space}
    done = desk.task("POST", task, "/backfill", wanted, dry_run=dry_run)
    desk.out.record(done)
    if desk.out.as_json:
        return
    zone = timezone or desk.zone(space)
    between = f"{wall_named(done['start'], zone)} and {wall_named(done['end'], zone)}"
    desk.out.line(f"Queued {counted(len(done['runs']), 'run')} for slots between {between}.")
    if done["runs"]:
        tell_if_idle(desk)
