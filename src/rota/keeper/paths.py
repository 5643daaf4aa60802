"""Opens files below a trusted folder without following links, and guards names.

Resolving a path first and opening it afterwards would leave time to replace a folder by a link, so
each step is opened relative to the previous one.

Guarded names are those that tools of the host would execute later, such as `.git/hooks`. Existing
ones become read-only. Missing ones are created as empty read-only folders, because otherwise a
program could create them. A read-only folder protects its content. Folders on the way to a guarded
name are bound to themselves, so that they cannot be moved.
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
    """Return the steps from a folder to a path below it; None if it is not below."""
    rest = os.path.relpath(path, root)
    steps = [] if rest == "." else rest.split("/")
    return None if steps[:1] == [".."] else steps


def open_below(root: str, path: str) -> int:
    """Open a path below a folder with O_PATH; raise NotPermitted if a step is a link.

    `root` is trusted and may itself be reached through links.
    """
    steps = steps_below(root, path)
    if steps is None:
        raise NotPermitted(f"{shown(path)} is not below {shown(root)}")
    current = _open(path, root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for number, step in enumerate(steps, 1):
        parent = current
        try:
            current = _open(path, step, LAST if number == len(steps) else STEP, parent)
        finally:
            os.close(parent)
    if stat.S_ISLNK(os.fstat(current).st_mode):
        os.close(current)
        raise NotPermitted(f"{shown(path)} is a symbolic link; name its target")
    return current


def exists_in_root(root: str, path: str) -> bool:
    """Whether a path exists for a process whose root is a given folder.

    Links are resolved inside that root. What cannot be examined counts as existing.
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
            if error.errno != errno.EINVAL:  # EINVAL: it is not a link
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
        why = f"{error.strerror} at {shown(step)}; give a folder without links in its path"
        raise NotPermitted(f"{shown(path)} cannot be opened: {why}") from error


EMPTY, WRITABLE = 0o555, 0o222


class GuardedPath:
    """A path to be bound onto itself."""

    def __init__(self, path: str, descriptor: int, *, write: bool) -> None:
        self.path = path
        self.descriptor = descriptor
        self.write = write


def guard_names(folder: str, held: int, names: list[str]) -> list[GuardedPath]:
    """Return the paths to bind onto themselves, outer ones first."""
    made: dict[str, GuardedPath] = {}
    for name in names:
        parent = GuardedPath(folder, held, write=True)
        steps = name.split("/")
        while steps and parent.write:
            path = f"{parent.path}/{steps.pop(0)}"
            parent = made.setdefault(path, _guard_step(parent, path))
            if not steps:
                parent.write = False
    return list(made.values())


def _guard_step(parent: GuardedPath, path: str) -> GuardedPath:
    name = os.path.basename(path)
    try:
        found = os.open(name, LAST, dir_fd=parent.descriptor)
    except FileNotFoundError:
        with suppress(FileExistsError):  # created by another attempt at the same time
            os.mkdir(name, EMPTY, dir_fd=parent.descriptor)
        return GuardedPath(path, os.open(name, LAST, dir_fd=parent.descriptor), write=False)
    info = os.fstat(found)
    if stat.S_ISDIR(info.st_mode):
        return GuardedPath(path, found, write=bool(info.st_mode & WRITABLE))
    if not stat.S_ISREG(info.st_mode):
        raise NotPermitted(f"{shown(name)} in {parent.path} is no file or folder: remove it")
    if info.st_nlink > 1:
        raise NotPermitted(f"{shown(name)} in {parent.path} has a second hard link: copy it")
    return GuardedPath(path, found, write=False)


def missing_names(root: str, folder: str, names: list[str]) -> list[str]:
    """Return which of these names, and of the folders on the way to them, do not exist."""
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


def remove_guards(root: str, folder: str, names: list[str], missing: frozenset[str]) -> None:
    """Remove folders that were created only to guard a name, after the last attempt has ended.

    They are recognized by being in `missing`, empty and read-only; everything else stays.
    """
    with suppress(NotPermitted, OSError):
        held = open_below(root, folder)
        try:
            for name in names:
                _remove_guard(held, name.split("/"), missing)
        finally:
            os.close(held)


def _remove_guard(above: int, steps: list[str], missing: frozenset[str], way: str = "") -> None:
    first, *rest = steps
    with suppress(OSError):
        held = os.open(first, STEP, dir_fd=above)
        try:
            if rest:
                _remove_guard(held, rest, missing, f"{way}{first}/")
            made = f"{way}{first}" in missing and not os.fstat(held).st_mode & WRITABLE
        finally:
            os.close(held)
        if made:
            os.rmdir(first, dir_fd=above)
