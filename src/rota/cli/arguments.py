"""Values as typed: numbers, JSON, files, runs and tasks."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from rota.cli.context import CliContext, Record
from rota.errors import Invalid, NotFound, RotaError
from rota.executors.inprocess.run_context import resolve
from rota.runtime.clock import SystemClock

LARGEST = 2**62
FILE = "@"
"""Begins the name of a file in the place of JSON; a text for people may begin like that itself."""

SpaceName = Annotated[
    str | None, typer.Option("--space", metavar="NAME", help="Whose it is [your own].")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Try it, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
TaskName = Annotated[str, typer.Argument(metavar="TASK", help="The task's name or id.")]


def optional_run(text: str) -> int | None:
    """Return the number of a run, or None if a text is no number."""
    digits = text.removeprefix("#")
    return int(digits) if digits.isascii() and digits.isdigit() else None


def whole_number(field: str, text: str, least: int, most: int) -> int:
    """Return a whole number between two bounds, or refuse the text."""
    advice = f"give a whole number from {least} to {most}"
    try:
        number = int(text)
    except ValueError:
        raise Invalid(field, text, advice) from None
    if not least <= number <= most:
        raise Invalid(field, text, advice)
    return number


def optional_whole_number(field: str, text: str | None, least: int, most: int) -> int | None:
    """Return whole() of a text, or None."""
    return None if text is None else whole_number(field, text, least, most)


def maybe_number(field: str, text: str | None, least: float, most: float) -> float | None:
    """Return a number between two bounds, or None; refuse any other text."""
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise Invalid(field, text, f"give a number from {least:g} to {most:g}")
    return number


def run_number(text: str, field: str = "run") -> int:
    """Return the number of a run, a question or a key."""
    if field == "run" and optional_run(text) is None:
        advice = "give its number; `rota runs --task TASK` lists those of a task"
        raise NotFound("run", text, advice)
    return whole_number(field, text.removeprefix("#"), 1, LARGEST)


def json_value(field: str, text: str | None) -> object:
    """Return the value of a JSON text, which may be on standard input or in a file; or None."""
    if text is None:
        return None
    text = _file_text(field, text) if text.startswith(FILE) else text_or_input(text)
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise Invalid(field, text, f"must be JSON ({fault})") from None
    return value


def _file_text(field: str, text: str) -> str:
    try:
        return Path(text.removeprefix(FILE)).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or "it is no text"
        raise Invalid(field, text, f"the file cannot be read: {reason}") from None


def text_or_input(text: str) -> str:
    """Return a text, or all of standard input for `-`."""
    return sys.stdin.read().strip() if text == "-" else text


@cache
def _clock() -> SystemClock:
    return SystemClock()


def now() -> datetime:
    """Return the current instant."""
    return _clock().now()


def check_callables_here(spaces: Path | None = None) -> None:
    """Let modules in the current folder be found, behind all that is installed.

    So no file there takes the place of a module that Rota has yet to load. One of the spaces, where
    programs behind walls may leave what they like, is left out.
    """
    here = Path.cwd()
    if spaces is not None and here.is_relative_to(spaces.resolve()):
        return
    if str(here) not in sys.path:
        sys.path.append(str(here))


def check_call(call: str, *, unchecked: bool) -> None:
    """Refuse a callable that cannot be imported from here, unless that was asked for."""
    module, colon, name = call.partition(":")
    if not (module and colon and name):
        raise Invalid("call", call, "write it as module:function")
    if unchecked:
        return
    check_callables_here()
    advice = "; give --unchecked if only the daemon can import it"
    try:
        resolve(call)
    except Invalid as fault:
        raise Invalid("call", call, fault.advice + advice) from fault
    except Exception as fault:
        reason = f"importing it failed ({type(fault).__name__}: {fault})"
        raise Invalid("call", call, reason + advice) from fault


def resolve_task_name(desk: CliContext, task: str, space: str | None) -> str:
    """Return the name of the task that a word stands for."""
    if optional_run(task) is None:
        return task
    return str(desk.task("GET", task, said={"space": space})["name"])


UNFINISHED = ("running", "queued", "waiting")
MOST_TOLD = 10

RunOrTask = Annotated[
    str,
    typer.Argument(metavar="RUN|TASK", help="A run's number, or a task that has one such run."),
]


def resolve_run(desk: CliContext, which: str, states: Sequence[str], space: str | None) -> int:
    """Return the run of a number, or the one run of a task that is in one of some states."""
    if optional_run(which) is not None:
        return run_number(which)
    found: list[Record] = []
    try:
        wanted: Record = {"task": desk.reference(which, space), "space": space, "limit": MOST_TOLD}
        for state in states:
            found += desk.call("GET", "/v1/runs", {**wanted, "state": state})["runs"]
    except RotaError as fault:
        raise desk.better(fault, which, space) from None
    if not found:
        none = f"none of it is {' or '.join(states)}: see `rota runs --task {which}`"
        raise NotFound("run", which, none)
    if len(found) > 1:
        told = ", ".join(f"{run['id']} ({run['state']})" for run in found[:MOST_TOLD])
        raise Invalid("run", which, f"it has several: say which of {told}")
    return int(found[0]["id"])
