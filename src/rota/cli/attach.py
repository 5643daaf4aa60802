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
from rota.cli.run_text import ending_text
from rota.cli.runs import find_wait_reason
from rota.commands.errors import DONE, FAILED, INTERRUPTED
from rota.errors import Refused, RotaError
from rota.model.runs import FINISHED
from rota.ports.executor import Terminal

POLLS = 50
POLL_SECONDS = 0.1
"""How often a run is polled for its terminal and for its end."""


def attach(
    context: typer.Context,
    run: RunOrTask,
    write: Annotated[bool, typer.Option("--write", help="Send typed keys to the program")] = False,
    space: SpaceName = None,
) -> None:
    """Attach to the terminal of a running program, on this machine.

    Only some executors have terminals; `rota doctor` lists the executors. Ctrl-b d detaches, and
    the run continues. Without --write the terminal is read-only. If the run is queued, the
    command waits for its start; Ctrl-C stops waiting.

    Example: rota attach 17
    """
    cli = CliContext(context)
    number = resolve_run(cli, run, ("running", "queued"), space)
    try:
        queued = cli.call("GET", f"/v1/runs/{number}")
        found = _wait_for_start(cli, queued)
    except KeyboardInterrupt:
        cli.out.talk(f"Stopped waiting; run {number} is still queued.")
        raise typer.Exit(INTERRUPTED) from None
    _check_running(found)
    waited = queued["state"] == "queued"
    from rota.app.environment import terminal_environment  # noqa: PLC0415
    from rota.app.plugins import load_plugins  # noqa: PLC0415
    from rota.keeper.home import state_folders  # noqa: PLC0415 - slow to load

    kinds = load_plugins(cli.settings()).terminals()

    def find_terminals() -> list[Terminal]:
        states = state_folders(cli.around.home, number, found["attempt"])
        terminals = (kind(str(state)) for state in states for kind in kinds)
        return [terminal for terminal in terminals if terminal.there]

    terminals = find_terminals()
    for _ in range(POLLS if waited else 0):
        if terminals:
            break
        time.sleep(POLL_SECONDS)
        terminals = find_terminals()
    if not terminals:
        message = (
            f"run {number} has no terminal in {cli.around.home}: its executor has none, or it runs "
            f"on another machine; use `rota logs {number} -f`"
        )
        raise Refused(message)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        message = f"standard input and output must be a terminal: use `rota logs {number} -f`"
        raise Refused(message)
    cli.out.talk("Press Ctrl-b d to detach; the run continues.")
    environment = {"TERM": "xterm", **terminal_environment()}
    code = run_in_terminal(terminals[-1].attach_argv(typing=write), environment)
    if terminals[-1].lives():
        raise typer.Exit(FAILED if code else DONE)
    _report_end(cli, number)


def _wait_for_start(cli: CliContext, run: Record) -> Record:
    """Return a run after it has left the queue, if it will have a terminal."""
    if run["state"] != "queued" or not _has_terminal(cli, run):
        return run
    why = find_wait_reason(cli, run)
    cli.out.talk(f"Run {run['id']} is queued{why and ': '}{why}. Waiting; press Ctrl-C to stop.")
    while run["state"] == "queued":
        time.sleep(POLL_SECONDS)
        run = cli.call("GET", f"/v1/runs/{run['id']}")
    return run


def _has_terminal(cli: CliContext, run: Record) -> bool:
    """Whether a run will have a terminal, and this process has one to show it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        site = cli.call("GET", f"/v1/tasks/{run['task_id']}", {"space": run["space"]})["site"]
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
            f"run {number} is {state}: it has a terminal only while it runs; see "
            f"`rota why {number}`"
        )
        raise Refused(message)


def _report_end(cli: CliContext, number: int) -> None:
    """Write the outcome of a run after its terminal has closed."""
    for _ in range(POLLS):
        run = cli.call("GET", f"/v1/runs/{number}")
        if run["state"] != "running":
            break
        time.sleep(POLL_SECONDS)
    if run["state"] in FINISHED:
        cli.out.talk(ending_text(run))
    else:
        cli.out.talk(
            f"The terminal has closed, and run {number} is {run['state']}: see `rota why {number}`"
        )


RESET = (
    "\x1b[r"  # scroll the whole screen
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l"  # no mouse
    "\x1b[?1l\x1b>"  # normal cursor keys and keypad
    "\x1b[?1049l"  # main screen
    "\x1b(B\x1b[0m\x1b[?25h"  # normal characters and cursor
)
"""Resets a terminal after a program that was killed."""


def run_in_terminal(words: list[str], environment: Mapping[str, str]) -> int:
    """Run a program in this terminal, and return its exit code."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    sys.stdout.flush()
    child = os.posix_spawn(words[0], words, environment)
    handlers = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM)),
    }
    try:
        return _wait_for_exit(child)
    finally:
        for number, previous in handlers.items():
            signal.signal(number, previous)
        if termios.tcgetattr(terminal) != before:
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
            os.write(sys.stdout.fileno(), RESET.encode())


def _wait_for_exit(child: int) -> int:
    """Wait for a program; if it is suspended, suspend this process for the shell as well."""
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        os.kill(os.getpid(), signal.SIGSTOP)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("attach")(attach)
