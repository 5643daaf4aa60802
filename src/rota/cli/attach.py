"""`rota attach`: the terminal of a running program."""

from __future__ import annotations

import os
import signal
import sys
import termios
import time
from collections.abc import Mapping
from typing import Annotated

import typer

from rota.cli.arguments import RunOrTask, SpaceName, resolve_run
from rota.cli.context import CliContext, Record
from rota.cli.run_text import ending
from rota.cli.runs import why_queued
from rota.commands.errors import DONE, FAILED, INTERRUPTED
from rota.errors import Refused, RotaError
from rota.model.runs import FINISHED
from rota.ports.executor import Terminal

LOOKS = 50
LOOK_SECONDS = 0.1
"""How often it is looked what became of a run whose pane is gone."""


def attach(
    context: typer.Context,
    run: RunOrTask,
    write: Annotated[bool, typer.Option("--write", help="Type into it, too.")] = False,
    space: SpaceName = None,
) -> None:
    """Show the terminal of a running program, on this machine.

    Executors with terminals have one; `rota doctor` lists the executors.

    Ctrl-b d leaves it, and the run goes on. Without --write nothing that is typed reaches it. A run
    that is queued is waited for; Ctrl-C leaves it.

    Example: rota attach 17
    """
    desk = CliContext(context)
    number = resolve_run(desk, run, ("running", "queued"), space)
    try:
        seen = desk.call("GET", f"/v1/runs/{number}")
        found = _begun(desk, seen)
    except KeyboardInterrupt:
        desk.out.talk(f"Left: run {number} is still queued.")
        raise typer.Exit(INTERRUPTED) from None
    _check_running(found)
    waited = seen["state"] == "queued"
    from rota.app.environment import terminal_environment  # noqa: PLC0415
    from rota.app.plugins import load_plugins  # noqa: PLC0415
    from rota.keeper.home import state_folders  # noqa: PLC0415 - slow to load

    kinds = load_plugins(desk.settings()).terminals()

    def look() -> list[Terminal]:
        states = state_folders(desk.around.home, number, found["attempt"])
        panes = (kind(str(state)) for state in states for kind in kinds)
        return [pane for pane in panes if pane.there]

    panes = look()
    for _ in range(LOOKS if waited else 0):
        if panes:
            break
        time.sleep(LOOK_SECONDS)
        panes = look()
    if not panes:
        message = (
            f"run {number} has no terminal in {desk.around.home}: its executor offers none, or it "
            f"runs elsewhere; follow it with `rota logs {number} -f`"
        )
        raise Refused(message)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = f"a pane is shown on a terminal only; follow it with `rota logs {number} -f`"
        raise Refused(message)
    desk.out.talk("Ctrl-b d leaves the pane; the run goes on.")
    told = {"TERM": "xterm", **terminal_environment()}
    code = lend(panes[-1].attach_argv(typing=write), told)
    if panes[-1].lives():
        raise typer.Exit(FAILED if code else DONE)
    _tell_end(desk, number)


def _begun(desk: CliContext, run: Record) -> Record:
    """Return a run once it is not queued any more, if it is to have a pane."""
    if run["state"] != "queued" or not _has_pane(desk, run):
        return run
    why = why_queued(desk, run)
    desk.out.talk(f"Run {run['id']} is queued{why and ': '}{why}. Waiting for it; Ctrl-C leaves.")
    while run["state"] == "queued":
        time.sleep(LOOK_SECONDS)
        run = desk.call("GET", f"/v1/runs/{run['id']}")
    return run


def _has_pane(desk: CliContext, run: Record) -> bool:
    """Whether the task of a run is to run in a pane, and somebody is here to see it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        site = desk.call("GET", f"/v1/tasks/{run['task_id']}", {"space": run["space"]})["site"]
    except RotaError:
        return False
    return site is not None and site["terminal"]


def _check_running(run: Record) -> None:
    number, state = run["id"], run["state"]
    if state in FINISHED:
        message = f"run {number} has ended: see `rota logs {number}`"
        raise Refused(message)
    if state != "running":
        message = (
            f"run {number} is {state}: there is a terminal only while a run goes on; see "
            f"`rota why {number}`"
        )
        raise Refused(message)


def _tell_end(desk: CliContext, number: int) -> None:
    """Say what became of a run whose pane is gone, as far as that is known in a moment."""
    for _ in range(LOOKS):
        run = desk.call("GET", f"/v1/runs/{number}")
        if run["state"] != "running":
            break
        time.sleep(LOOK_SECONDS)
    if run["state"] in FINISHED:
        desk.out.talk(ending(run))
    else:
        desk.out.talk(f"Its pane is gone, and run {number} is {run['state']}: rota why {number}")


PLAIN = (
    "\x1b[r"  # every line scrolls
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l"  # no mouse, no marks
    "\x1b[?1l\x1b>"  # keys say what they say
    "\x1b[?1049l"  # the screen of before
    "\x1b(B\x1b[0m\x1b[?25h"  # letters, no colours, a cursor
)
"""What a terminal is told whose program could not leave it itself."""


def lend(words: list[str], environment: Mapping[str, str]) -> int:
    """Let a program have the terminal until it ends, and return its exit code."""
    lent = sys.stdin.fileno()
    before = termios.tcgetattr(lent)
    sys.stdout.flush()
    child = os.posix_spawn(words[0], words, environment)
    held = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM)),
    }
    try:
        return _ended(child)
    finally:
        for number, usual in held.items():
            signal.signal(number, usual)
        if termios.tcgetattr(lent) != before:
            termios.tcsetattr(lent, termios.TCSAFLUSH, before)
            os.write(sys.stdout.fileno(), PLAIN.encode())


def _ended(child: int) -> int:
    """Wait for a program; while it is stopped this one is, so that the shell has its turn."""
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        os.kill(os.getpid(), signal.SIGSTOP)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("attach")(attach)
