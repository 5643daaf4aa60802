"""Keep what a tool of the host would run later out of a program's hands.

What exists becomes read-only. What does not exist is made as an empty folder and becomes read-only
too: a name that is free can be taken, and `git`, an editor or an agent would run what it finds
there. A folder on the way is bound to itself, because a name below it only holds while it cannot
be moved aside.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from rota.errors import NotPermitted, shown
from rota.executors.kit.beneath import LAST

EMPTY = 0o555


class Held:
    """One path to be bound onto itself."""

    def __init__(self, path: str, descriptor: int, *, write: bool) -> None:
        self.path = path
        self.descriptor = descriptor
        self.write = write


def guard(folder: str, held: int, names: list[str]) -> list[Held]:
    """Return what to bind onto itself, outer paths first; `held` is the working folder."""
    made: dict[str, Held] = {}
    for name in names:
        above = Held(folder, held, write=True)
        steps = name.split("/")
        while steps and above.write:
            path = f"{above.path}/{steps.pop(0)}"
            above = made.setdefault(path, _hold(above, path))
            if not steps:
                above.write = False
    return list(made.values())


def _hold(above: Held, path: str) -> Held:
    name = os.path.basename(path)  # noqa: PTH119 - names, not files
    try:
        found = os.open(name, LAST, dir_fd=above.descriptor)
    except FileNotFoundError:
        with suppress(FileExistsError):  # another attempt may have made it a moment ago
            os.mkdir(name, EMPTY, dir_fd=above.descriptor)
        return Held(path, os.open(name, LAST, dir_fd=above.descriptor), write=False)
    facts = os.fstat(found)
    if stat.S_ISDIR(facts.st_mode):
        return Held(path, found, write=True)
    if not stat.S_ISREG(facts.st_mode):
        raise NotPermitted(f"{shown(name)} in {above.path} is no file and no folder: remove it")
    if facts.st_nlink > 1:
        raise NotPermitted(f"{shown(name)} in {above.path} has a second, open name: copy it")
    return Held(path, found, write=False)
