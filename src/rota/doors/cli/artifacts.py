"""`rota artifacts`: the files that a run has left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.logs import run_of
from rota.doors.cli.show import wall
from rota.doors.cli.values import SpaceName
from rota.errors import Conflict, Invalid, Unavailable

STANDARD = "-"


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("artifacts")(artifacts)


def artifacts(
    context: typer.Context,
    run: Annotated[
        str, typer.Argument(metavar="RUN|TASK", help="A run's number, or a task's newest run.")
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Fetch this one [list them all].")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to [its name]; - is stdout."),
    ] = None,
    space: SpaceName = None,
) -> None:
    """List the files that a run has left behind, or fetch one of them.

    A file that is there already is not overwritten.

    Example: rota artifacts 17 report.pdf -o report.pdf
    """
    desk = Desk(context)
    number = run_of(desk, run, space)
    if name is None:
        if output is not None:
            raise Invalid("output", output, "goes with the name of an artifact")
        _list(desk, number)
        return
    parts = desk.fetch(number, name)
    if output == STANDARD:
        _copy(parts, sys.stdout.buffer)
        return
    target = Path(output or name.rpartition("/")[2])
    size = _save(parts, target)
    desk.out.record({"run": number, "name": name, "file": str(target), "size": size})
    desk.out.line(f"Fetched {target} ({size} bytes).")


def _list(desk: Desk, number: int) -> None:
    found = desk.call("GET", f"/v1/runs/{number}/artifacts")
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone()
    rows = [
        [one["name"], str(one["size"]), wall(one["modified_at"], zone)]
        for one in found["artifacts"]
    ]
    desk.out.table(["artifact", "bytes", f"written ({zone})"], rows, "It has left nothing.")
    if found["left_out"]:
        desk.out.talk(f"Left out: {found['left_out']} links, pipes or names that cannot be shown.")
    if found["more"]:
        desk.out.talk("There is more than is told.")


def _save(parts: Iterator[bytes], target: Path) -> int:
    """Write what is fetched to a new file, which goes away again if not all of it comes."""
    first = next(parts, b"")  # what cannot be fetched makes no file
    try:
        held = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        raise Conflict(f"{target} is there already: choose another file with -o") from None
    except OSError as fault:
        raise Invalid("output", str(target), f"cannot be written: {fault.strerror}") from fault
    try:
        with os.fdopen(held, "wb") as file:
            file.write(first)
            return len(first) + _copy(parts, file)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _copy(parts: Iterable[bytes], file: BinaryIO) -> int:
    size = 0
    try:
        for part in parts:
            size += file.write(part)
        file.flush()
    except OSError as fault:
        raise Unavailable(f"it cannot be written: {fault.strerror}") from fault
    return size
