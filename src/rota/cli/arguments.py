"""Arguments and options that commands share, and how their values are read."""

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

MAX_ID = 2**62
MAX_LISTED = 1_000
FILE = "@"
"""Begins the name of a file in place of JSON; other texts may begin like that themselves."""

SpaceName = Annotated[
    str | None, typer.Option("--space", metavar="NAME", help="Space to act for [default: your own]")
]
SpaceFilter = Annotated[
    str | None, typer.Option("--space", metavar="NAME", help="List only those of a space")
]
TaskName = Annotated[str, typer.Argument(metavar="TASK", help="Name or id of the task")]
TaskFilter = Annotated[
    str | None, typer.Option("--task", metavar="TASK", help="List only those of a task")
]
ThreadFilter = Annotated[
    str | None, typer.Option("--thread", metavar="KEY", help="List only those of a thread")
]
RunOrTask = Annotated[
    str,
    typer.Argument(metavar="RUN|TASK", help="Number of the run, or a task with one such run"),
]
RunOrNewest = Annotated[
    str, typer.Argument(metavar="RUN|TASK", help="Number of the run, or a task for its newest run")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check the request without changing anything")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation")]
Limit = Annotated[str, typer.Option("--limit", metavar="N", help="Maximum number of rows")]
Before = Annotated[
    str | None, typer.Option("--before", metavar="ID", help="List only those before this id")
]
Count = Annotated[str, typer.Option("-n", metavar="N", help="Number of times")]
Timezone = Annotated[
    str | None,
    typer.Option("--timezone", metavar="ZONE", help="Time zone [default: that of the space]"),
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, for other people")]
Payload = Annotated[
    str | None,
    typer.Option(
        "--payload", metavar="JSON", help="Input of the run; - reads standard input, @FILE a file"
    ),
]


def page(limit: str, before: str | None = None) -> Record:
    """Return the query for one page of a list."""
    return {
        "limit": whole_number("limit", limit, 1, MAX_LISTED),
        "before": optional_whole_number("before", before, 1, MAX_ID),
    }


def optional_run(text: str) -> int | None:
    """Return the number of a run, or None if a text is not a number."""
    digits = text.removeprefix("#")
    return int(digits) if digits.isascii() and digits.isdigit() else None


def whole_number(field: str, text: str, least: int, most: int) -> int:
    """Return a whole number within limits, or refuse the text."""
    advice = f"give a whole number from {least} to {most}"
    try:
        number = int(text)
    except ValueError:
        raise Invalid(field, text, advice) from None
    if not least <= number <= most:
        raise Invalid(field, text, advice)
    return number


def optional_whole_number(field: str, text: str | None, least: int, most: int) -> int | None:
    """Return whole_number of a text, or None."""
    return None if text is None else whole_number(field, text, least, most)


def number_between(field: str, text: str, least: float, most: float) -> float:
    """Return a number within limits, or refuse the text."""
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
        raise NotFound(
            "run", text, "give a number: `rota runs --task TASK` lists the runs of a task"
        )
    return whole_number(field, text.removeprefix("#"), 1, MAX_ID)


def json_value(field: str, text: str | None) -> object:
    """Return the value of a JSON text, which may be on standard input or in a file; or None."""
    if text is None:
        return None
    text = _file_text(field, text) if text.startswith(FILE) else text_or_input(text)
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(field, text, f"must be JSON ({error})") from None
    return value


def _file_text(field: str, text: str) -> str:
    try:
        return Path(text.removeprefix(FILE)).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise Invalid(field, text, f"cannot read the file: {reason}") from None


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
    """Add the current folder to the module path, after everything that is installed.

    So a file there cannot replace a module that Rota imports later. A folder of a space is left
    out: isolated programs can write there.
    """
    here = Path.cwd()
    if spaces is not None and here.is_relative_to(spaces.resolve()):
        return
    if str(here) not in sys.path:
        sys.path.append(str(here))


def check_call(call: str, *, unchecked: bool) -> None:
    """Refuse a function that cannot be imported here, unless --unchecked is given."""
    module, colon, name = call.partition(":")
    if not (module and colon and name):
        raise Invalid("call", call, "use the form module:function")
    if unchecked:
        return
    check_callables_here()
    advice = "; use --unchecked if only the daemon can import it"
    try:
        resolve(call)
    except Invalid as error:
        raise Invalid("call", call, error.advice + advice) from error
    except Exception as error:
        reason = f"cannot be imported ({type(error).__name__}: {error})"
        raise Invalid("call", call, reason + advice) from error


def resolve_task_name(cli: CliContext, task: str, space: str | None) -> str:
    """Return the name of a task that is given by name or id."""
    if optional_run(task) is None:
        return task
    return str(cli.task("GET", task, body={"space": space})["name"])


UNFINISHED = ("running", "queued", "waiting")
MAX_CANDIDATES = 10


def resolve_run(cli: CliContext, which: str, states: Sequence[str], space: str | None) -> int:
    """Return the run of a number, or the only run of a task in some states."""
    if optional_run(which) is not None:
        return run_number(which)
    found: list[Record] = []
    try:
        query: Record = {"task": cli.reference(which, space), "space": space}
        for state in states:
            page_of = {**query, "limit": MAX_CANDIDATES, "state": state}
            found += cli.call("GET", "/v1/runs", page_of)["runs"]
    except RotaError as error:
        raise cli.with_suggestion(error, which, space) from None
    if not found:
        advice = f"the task has no {' or '.join(states)} run: see `rota runs --task {which}`"
        raise NotFound("run", which, advice)
    if len(found) > 1:
        candidates = ", ".join(f"{run['id']} ({run['state']})" for run in found[:MAX_CANDIDATES])
        raise Invalid("run", which, f"the task has several: choose one of {candidates}")
    return int(found[0]["id"])
