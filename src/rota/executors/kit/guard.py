"""Keep what a tool of the host would run later out of a program's hands.

What exists becomes read-only. What does not exist is made as an empty folder and becomes read-only
too: a name that is free can be taken, and `git`, an editor or an agent would run what it finds
there. A folder that is read-only already is held with all that is in it. One on the way is bound
to itself, because a name below it only holds while it cannot be moved aside.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from rota.errors import NotPermitted, shown
from rota.executors.kit.beneath import LAST, STEP, open_beneath

EMPTY, WRITABLE = 0o555, 0o222


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
        return Held(path, found, write=bool(facts.st_mode & WRITABLE))
    if not stat.S_ISREG(facts.st_mode):
        raise NotPermitted(f"{shown(name)} in {above.path} is no file and no folder: remove it")
    if facts.st_nlink > 1:
        raise NotPermitted(f"{shown(name)} in {above.path} has a second, open name: copy it")
    return Held(path, found, write=False)


def missing_names(root: str, folder: str, names: list[str]) -> list[str]:
    """Return which names, and which on the way to them, are not there yet."""
    found: dict[str, None] = {}
    with suppress(NotPermitted, OSError):
        held = open_beneath(root, folder)
        try:
            for name in names:
                steps = name.split("/")
                found.update(dict.fromkeys(_missing(held, steps)))
        finally:
            os.close(held)
    return list(found)


def _missing(above: int, steps: list[str], way: str = "") -> list[str]:
    path = f"{way}{steps[0]}"
    try:
        held = os.open(steps[0], LAST, dir_fd=above)
    except FileNotFoundError:
        return [f"{way}{'/'.join(steps[:last])}" for last in range(1, len(steps) + 1)]
    try:
        inner = stat.S_ISDIR(os.fstat(held).st_mode) and len(steps) > 1
        return _missing(held, steps[1:], f"{path}/") if inner else []
    finally:
        os.close(held)


def unguard(root: str, folder: str, names: list[str], missing: frozenset[str]) -> None:
    """Take away the folders that were made only to hold a name, where nobody works any more.

    Known by their names having been missing, and by being empty and read-only; whatever else lies
    there stays as it is.
    """
    with suppress(NotPermitted, OSError):
        held = open_beneath(root, folder)
        try:
            for name in names:
                _let_go(held, name.split("/"), missing)
        finally:
            os.close(held)


def _let_go(above: int, steps: list[str], missing: frozenset[str], way: str = "") -> None:
    first, *rest = steps
    with suppress(OSError):
        held = os.open(first, STEP, dir_fd=above)
        try:
            if rest:
                _let_go(held, rest, missing, f"{way}{first}/")
            made = f"{way}{first}" in missing and not os.fstat(held).st_mode & WRITABLE
        finally:
            os.close(held)
        if made:
            os.rmdir(first, dir_fd=above)
