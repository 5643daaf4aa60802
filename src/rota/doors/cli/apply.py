"""`rota apply`: tasks as a file says them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.task_words import warnings_of
from rota.doors.cli.values import DryRun, SpaceName
from rota.errors import Invalid, NotFound, RotaError
from rota.flow.define.names import check_new_name
from rota.flow.observe.telling import counted

LONGEST_FILE = 4 * 1024 * 1024
SHAPE = "write every task as a table [tasks.NAME]"


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("apply")(apply)


def apply(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Tasks in TOML, or in JSON.")],
    space: SpaceName = None,
    dry_run: DryRun = False,
) -> None:
    """Let tasks be what a file says: create, change, or leave alone.

    A table [tasks.NAME] holds what POST /v1/tasks takes; a schedule may be words. What a table
    leaves out is as in a new task. Tasks that are not in the file are left alone.

    Example: rota apply tasks.toml --dry-run
    """
    desk = Desk(context, makes=True)
    done = put_all(desk, read_tasks(Path(file)), space, dry_run=dry_run)
    desk.out.record({"tasks": done, "dry_run": dry_run})
    if dry_run:
        desk.out.line(f"{counted(len(done), 'task')} would do; nothing was changed.")


def import_first(desk: Desk, file: Path) -> None:
    """Apply a file if there is one and no task yet, on the database itself."""
    if not file.exists() or desk.call("GET", "/v1/tasks", {"limit": 1}, here=True)["tasks"]:
        return
    put_all(desk, read_tasks(file), None, dry_run=False)


def put_all(
    desk: Desk, tasks: dict[str, Record], space: str | None, *, dry_run: bool
) -> list[Record]:
    """Put every task, and tell and return what had to be done for each."""
    done: list[Record] = []
    for name in in_order(tasks):
        path = f"/v1/tasks/{quote(name, safe='')}"
        said = {"space": space, **tasks[name]}
        try:
            put = desk.rehearsed("PUT", path, said, dry_run=dry_run, here="call" in said)
        except RotaError:
            desk.out.line(f"{name}: refused; nothing after it was done")
            raise
        done.append({"task": name, "change": put.get("change", "rehearsed")})
        desk.out.line(f"{name}: {done[-1]['change']}")
        for line in warnings_of(put) if put else ():
            desk.out.line(f"  ! {line}")
    return done


def read_tasks(file: Path) -> dict[str, Record]:
    """Return what a file says of each task, by its name."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LONGEST_FILE + 1)
    except OSError as fault:
        raise NotFound("file", str(file), str(fault.strerror)) from None
    if len(data) > LONGEST_FILE:
        raise Invalid("file", str(file), f"keep it within {LONGEST_FILE >> 20} MiB")
    try:
        text = data.decode()
        read = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as fault:
        raise Invalid("file", str(file), str(fault)) from None
    found = read.get("tasks") if isinstance(read, dict) else None
    if not isinstance(found, dict) or set(read) != {"tasks"}:
        raise Invalid("file", str(file), SHAPE)
    return {name: _body(file, name, body) for name, body in found.items()}


def _body(file: Path, name: str, body: Any) -> Record:  # noqa: ANN401 - whatever a file holds
    if not isinstance(body, dict):
        raise Invalid("file", f"{file}: tasks.{name}", SHAPE)
    if "/" in name:
        raise Invalid("name", name, "give a task of a file a name without a slash")
    check_new_name(name)
    words = body.get("schedule")
    return {**body, "schedule": {"words": words}} if isinstance(words, str) else body


def in_order(tasks: dict[str, Record]) -> Iterator[str]:
    """Yield the names of tasks, those that follow another one after it."""
    left = dict(tasks)
    while left:
        ready = [name for name, body in left.items() if _upstream(body) not in left]
        for name in ready or list(left):  # a circle is refused by name
            del left[name]
            yield name


def _upstream(body: Record) -> object:
    after = body.get("after")
    return after.get("task") if isinstance(after, dict) else None
