"""Open what lies below a trusted folder without ever following a link.

Asking for the real path and opening it afterwards leaves time to swap a folder for a link; here
every step is taken from the folder already held.
"""

from __future__ import annotations

import errno
import os
import stat

from rota.errors import NotPermitted, shown

STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
MOST_LINKS = 40
LAST = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def steps_below(root: str, path: str) -> list[str] | None:
    """Return the steps from a folder down to a path, or None if it does not lie there."""
    rest = os.path.relpath(path, root)
    steps = [] if rest == "." else rest.split("/")
    return None if steps[:1] == [".."] else steps


def open_beneath(root: str, path: str) -> int:
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
            aim = os.readlink("/".join([root, *held, step]))  # noqa: PTH115
        except OSError as fault:
            if fault.errno in {errno.ENOENT, errno.ENOTDIR}:
                return False
            if fault.errno != errno.EINVAL:  # which says that it is no link
                return True
            held.append(step)
            continue
        links += 1
        if links > MOST_LINKS:
            return False
        held = [] if aim.startswith("/") else held
        steps += aim.split("/")[::-1]
    return True


def _open(path: str, step: str, flags: int, above: int | None = None) -> int:
    try:
        return os.open(step, flags, dir_fd=above)
    except OSError as fault:
        why = f"{fault.strerror} at {shown(step)}; give a folder that is reached without links"
        raise NotPermitted(f"{shown(path)} cannot be opened: {why}") from fault
