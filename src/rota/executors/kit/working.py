"""Where a program works, and which file of that folder it is."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

from rota.errors import Invalid, NotPermitted
from rota.executors.kit.beneath import open_beneath
from rota.model.programs import Command
from rota.ports.agent import Room
from rota.rules.programs import check_folder, check_program


def inside(work: str, folder: object) -> str:
    """Return a folder below the working folder, which must be there and reached without links."""
    if folder is None:
        return work
    check_folder(str(folder))
    path = f"{work}/{folder}"
    try:
        held = open_beneath(work, path)
    except NotPermitted as fault:
        raise Invalid("folder", folder, f"make it in the space's folder first: {fault}") from fault
    is_folder = stat.S_ISDIR(os.fstat(held).st_mode)
    os.close(held)
    if not is_folder:
        raise Invalid("folder", folder, "it is a file: name a folder")
    return path


def found(command: Command, room: Room) -> Command:
    """Return a command whose program, where it lies in the working folder, is named by its path.

    A file of Python's that cannot be executed by itself is run by Rota's interpreter.
    """
    program, *words = command.argv
    if program == room.python:
        return command
    check_program(command.argv)
    own = Path(command.cwd) / program
    if not own.is_file():
        return command
    by_python = own.suffix == ".py" and not os.access(own, os.X_OK)
    return replace(command, argv=(*([room.python] if by_python else []), str(own), *words))
