"""`rota pause-all`, `resume-all`, `stop`, `start`: let nothing begin, and let it again."""

from __future__ import annotations

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.values import DryRun


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("pause-all")(pause_all)
    app.command("resume-all")(resume_all)
    app.command("stop")(stop)
    app.command("start")(start)


def pause_all(context: typer.Context, dry_run: DryRun = False) -> None:
    """Let nothing new begin, in every process on the database; what runs goes on.

    Slots that come due meanwhile are skipped and not caught up.

    Example: rota pause-all
    """
    desk = Desk(context)
    desk.out.record(desk.call("POST", "/v1/pause-all", dry_run=dry_run))
    desk.out.line("Everything is paused until: rota resume-all")


def resume_all(context: typer.Context, dry_run: DryRun = False) -> None:
    """Let work begin again, from now on.

    Example: rota resume-all
    """
    desk = Desk(context)
    desk.out.record(desk.call("POST", "/v1/resume-all", dry_run=dry_run))
    desk.out.line("Work begins again.")


def stop(context: typer.Context, dry_run: DryRun = False) -> None:
    """Stop the work of the daemon: it lets what runs end, and its API stays open.

    Example: rota stop
    """
    desk = Desk(context)
    done = desk.call("POST", "/v1/stop", dry_run=dry_run)
    desk.out.record(done)
    desk.out.line(f"The daemon is {done['state']}. Let it work again: rota start")


def start(context: typer.Context, dry_run: DryRun = False) -> None:
    """Let the daemon work again after `rota stop`; a new daemon is started by `rota up`.

    Example: rota start
    """
    desk = Desk(context)
    done = desk.call("POST", "/v1/start", dry_run=dry_run)
    desk.out.record(done)
    desk.out.line(f"The daemon is {done['state']}.")
