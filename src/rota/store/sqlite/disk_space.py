"""Whether the disk has room for SQLite's next writes."""

from __future__ import annotations

import os

from rota.model.problems import DISK_FULL, Problem

LEAST_BYTES = 4 << 20
"""With less, a transaction of some size or the next checkpoint of the log may be refused."""
MEBIBYTE = 1 << 20


def room_problems(path: str) -> list[Problem]:
    """Return that the disk of a database is full, if it is; what cannot be seen is no problem."""
    folder = os.path.dirname(os.path.realpath(path))  # noqa: PTH120
    try:
        found = os.statvfs(folder)
    except OSError:
        return []
    free = found.f_bavail * found.f_frsize
    if free >= LEAST_BYTES:
        return []
    left = f"{free / MEBIBYTE:.1f} MiB are free, and SQLite needs {LEAST_BYTES // MEBIBYTE}"
    return [Problem(DISK_FULL, f"the disk of the database is full: {left}", folder)]
