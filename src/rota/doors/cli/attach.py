"""`rota attach`: look at the living pane of a run, and type into it."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.run_words import FINISHED
from rota.doors.cli.values import RunNumber, run_number
from rota.errors import Refused


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("attach")(attach)


def attach(
    context: typer.Context,
    run: RunNumber,
    write: Annotated[bool, typer.Option("--write", help="Type into it, too.")] = False,
) -> None:
    """Show the living pane of a run whose task runs in tmux, on this machine.

    Ctrl-b d leaves it, and the run goes on. Without --write nothing that is typed reaches it.

    Example: rota attach 17
    """
    desk = Desk(context)
    number = run_number(run)
    found = desk.call("GET", f"/v1/runs/{number}")
    if found["state"] in FINISHED:
        message = f"run {number} has ended, and its pane with it: see `rota logs {number}`"
        raise Refused(message)
    from rota.executors.kit.yard import states_of  # noqa: PLC0415 - slow to load
    from rota.executors.tmux.pane import Pane  # noqa: PLC0415
    from rota.wiring.surroundings import terminal_environment  # noqa: PLC0415

    states = states_of(desk.around.home, number, found["attempt"])
    panes = [pane for pane in (Pane(str(state)) for state in states) if pane.there]
    if not panes:
        message = (
            f"run {number} has no pane in {desk.around.home}: only tasks with --executor tmux have "
            f"one, while they run; follow it with `rota logs {number} -f`"
        )
        raise Refused(message)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = f"a pane is shown on a terminal only; follow it with `rota logs {number} -f`"
        raise Refused(message)
    words = panes[-1].attach_argv(typing=write)
    desk.close()
    desk.out.talk("Ctrl-b d leaves the pane; the run goes on.")
    sys.stderr.flush()
    told = {"TERM": "xterm", **terminal_environment()}
    os.execve(words[0], words, told)  # noqa: S606 - becoming tmux is the point
