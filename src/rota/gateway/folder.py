"""The names in the gateway's folder, the version of what is said there, and how long it is kept."""

from __future__ import annotations

import contextlib
import os

VERSION = 2
LOCK, CONTROL, DOORS, DOOR, USED = "lock", "control", "doors", "door", "used"
FORGET_SECONDS = 30 * 24 * 3600.0
"""How old is what a gateway has left that was killed, and that nobody came back for."""


def forget_old(folder: str) -> None:
    """Make a folder of notes on attempts, and forget what is old in it."""
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    os.utime(folder)
    past = os.stat(folder).st_mtime - FORGET_SECONDS  # noqa: PTH116
    for entry in tuple(os.scandir(folder)):
        with contextlib.suppress(OSError):
            if entry.stat().st_mtime < past:
                os.unlink(entry.path)  # noqa: PTH108
