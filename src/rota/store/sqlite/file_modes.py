"""Modes of a database file: its owner's alone, unless it was shared on purpose.

SQLite gives the files beside a database the permissions of the database itself, so those count that
it is made with. Whoever may read the index of its write-ahead log can lock it, and so stop writers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
from pathlib import Path

log = logging.getLogger(__name__)

PRIVATE = 0o600
WRITABLE_BY_OTHERS = 0o022
"""SQLite never gives these: where they stand, somebody has shared the file on purpose."""
SIDES = ("-wal", "-shm", "-journal")
SNAPSHOTS = ".before-*"

_CREATION = threading.Lock()


def create_private(path: str) -> None:
    """Create an empty file for its owner alone, if nothing is there; a failure shows at opening.

    One thread at a time: closing a database file ends the locks of the whole process on it, so
    nobody may have opened what is closed here.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with _CREATION, contextlib.suppress(OSError):
        os.close(os.open(path, flags, PRIVATE))


def make_private(path: str) -> None:
    """Take a database and what lies beside it from others, unless it was shared on purpose."""
    real = os.path.realpath(path)
    try:
        if os.stat(real).st_mode & WRITABLE_BY_OTHERS:  # noqa: PTH116
            return
    except OSError:
        return
    narrowed = [name for name in files_of(real) if narrow(name, PRIVATE)]
    if narrowed:
        log.warning("store.made_private", extra={"path": path, "files": narrowed})


def files_of(path: str) -> list[str]:
    """Return a database file, what SQLite keeps beside it, and the snapshots of it."""
    real = Path(os.path.realpath(path))
    snapshots = sorted(str(found) for found in real.parent.glob(f"{real.name}{SNAPSHOTS}"))
    return [str(real), *(f"{real}{side}" for side in SIDES), *snapshots]


def narrow(path: str, allowed: int) -> bool:
    """Take away what is not allowed at a file or folder of this user's; true if there was any.

    Nothing is opened for reading: closing a database would end the locks of this process on it.
    """
    with contextlib.suppress(OSError):
        mode = excess(path, allowed)
        if mode is not None:
            _change(path, mode & allowed)
            return True
    return False


def excess(path: str, allowed: int) -> int | None:
    """Return the mode of a file or folder of this user's that allows more; None if none does."""
    facts = os.lstat(path)
    mode = stat.S_IMODE(facts.st_mode)
    own = facts.st_uid == os.geteuid() and not stat.S_ISLNK(facts.st_mode)
    return mode if own and mode & ~allowed & 0o777 else None


def _change(path: str, mode: int) -> None:
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(path, mode, follow_symlinks=False)  # noqa: PTH101
        return
    held = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISLNK(os.fstat(held).st_mode):
            os.chmod(f"/proc/self/fd/{held}", mode)  # noqa: PTH101 - no other way leads there
    finally:
        os.close(held)
