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
from rota.rules.programs import ADVICE, check_folder, check_program


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


def _is_of_space(own: Path, room: Room) -> bool:
    """Whether a file lies in the space's folder, whatever links it is reached by.

    The interpreter of a virtual environment is always a link; there the environment must lie there.
    """
    root = os.path.realpath(room.work or room.cwd)
    environment = own.parent.name == "bin" and (own.parent.parent / "pyvenv.cfg").is_file()
    by_nature = environment and own.name.startswith("python")
    return _lies_in(root, own) or (by_nature and _lies_in(root, own.parent))


def _lies_in(root: str, path: Path) -> bool:
    try:
        os.close(open_beneath(root, os.path.realpath(path)))
    except NotPermitted:
        return False
    return True


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
    if not _is_of_space(own, room):
        raise Invalid("command", program, f"it is a link that leads elsewhere: {ADVICE}")
    by_python = own.suffix == ".py" and not os.access(own, os.X_OK)
    return replace(command, argv=(*([room.python] if by_python else []), str(own), *words))
