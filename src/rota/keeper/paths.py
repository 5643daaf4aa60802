"""Opens files below a trusted folder without following links; guarded names.

Asking for the real path and opening it afterwards leaves time to swap a folder for a link; here
every step is taken from the folder already held.

What exists becomes read-only. What does not exist is made as an empty folder and becomes read-only
too: a name that is free can be taken, and `git`, an editor or an agent would run what it finds
there. A folder that is read-only already is held with all that is in it. One on the way is bound
to itself, because a name below it only holds while it cannot be moved aside.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from rota.errors import NotPermitted, shown

STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_LINKS = 40
LAST = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def steps_below(root: str, path: str) -> list[str] | None:
    """Return the steps from a folder down to a path, or None if it does not lie there."""
    rest = os.path.relpath(path, root)
    steps = [] if rest == "." else rest.split("/")
    return None if steps[:1] == [".."] else steps


def open_below(root: str, path: str) -> int:
    """Return a descriptor that only names what is there; raise NotPermitted at a link.

    `root` is trusted and may itself be reached through links.
    """
    steps = steps_below(root, path)
    if steps is None:
        raise NotPermitted(f"{shown(path)} does not lie in {shown(root)}")
    held = _open(path, root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, step in enumerate(steps, 1):
        above = held
        try:
            held = _open(path, step, LAST if number == len(steps) else STEP, above)
        finally:
            os.close(above)
    if stat.S_ISLNK(os.fstat(held).st_mode):
        os.close(held)
        raise NotPermitted(f"{shown(path)} is a symbolic link; name what it leads to")
    return held


def is_there(root: str, path: str) -> bool:
    """Return whether something lies at a path for whoever has a folder as the root.

    Links are followed as they are meant there. Whatever cannot be looked at counts as there.
    """
    held: list[str] = []
    steps, links = path.split("/")[::-1], 0
    while steps:
        step = steps.pop()
        if step in {"", ".", ".."}:
            held = held[:-1] if step == ".." else held
            continue
        try:
            aim = os.readlink("/".join([root, *held, step]))
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR}:
                return False
            if error.errno != errno.EINVAL:  # which says that it is no link
                return True
            held.append(step)
            continue
        links += 1
        if links > MAX_LINKS:
            return False
        held = [] if aim.startswith("/") else held
        steps += aim.split("/")[::-1]
    return True


def _open(path: str, step: str, flags: int, above: int | None = None) -> int:
    try:
        return os.open(step, flags, dir_fd=above)
    except OSError as error:
        why = f"{error.strerror} at {shown(step)}; give a folder that is reached without links"
        raise NotPermitted(f"{shown(path)} cannot be opened: {why}") from error


EMPTY, WRITABLE = 0o555, 0o222


class GuardedPath:
    """One path to be bound onto itself."""

    def __init__(self, path: str, descriptor: int, *, write: bool) -> None:
        self.path = path
        self.descriptor = descriptor
        self.write = write


def guard(folder: str, held: int, names: list[str]) -> list[GuardedPath]:
    """Return what to bind onto itself, outer paths first; `held` is the working folder."""
    made: dict[str, GuardedPath] = {}
    for name in names:
        above = GuardedPath(folder, held, write=True)
        steps = name.split("/")
        while steps and above.write:
            path = f"{above.path}/{steps.pop(0)}"
            above = made.setdefault(path, _hold(above, path))
            if not steps:
                above.write = False
    return list(made.values())


def _hold(above: GuardedPath, path: str) -> GuardedPath:
    name = os.path.basename(path)
    try:
        found = os.open(name, LAST, dir_fd=above.descriptor)
    except FileNotFoundError:
        with suppress(FileExistsError):  # another attempt may have made it a moment ago
            os.mkdir(name, EMPTY, dir_fd=above.descriptor)
        return GuardedPath(path, os.open(name, LAST, dir_fd=above.descriptor), write=False)
    facts = os.fstat(found)
    if stat.S_ISDIR(facts.st_mode):
        return GuardedPath(path, found, write=bool(facts.st_mode & WRITABLE))
    if not stat.S_ISREG(facts.st_mode):
        raise NotPermitted(f"{shown(name)} in {above.path} is no file and no folder: remove it")
    if facts.st_nlink > 1:
        raise NotPermitted(f"{shown(name)} in {above.path} has a second, open name: copy it")
    return GuardedPath(path, found, write=False)


def missing_names(root: str, folder: str, names: list[str]) -> list[str]:
    """Return which names, and which on the way to them, are not there yet."""
    found: dict[str, None] = {}
    with suppress(NotPermitted, OSError):
        held = open_below(root, folder)
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
        held = open_below(root, folder)
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
