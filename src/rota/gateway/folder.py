"""The names in the gateway's folder, the version of what is said there, and how long it is kept."""

from __future__ import annotations

import contextlib
import os

VERSION = 3
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


def put(path: str, data: bytes) -> None:
    """Write a file whole, so that it is there after a power cut once this returns."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(f"{path}~", flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}~", path)  # noqa: PTH105
    settle(os.path.dirname(path))  # noqa: PTH120


def settle(folder: str) -> None:
    """Let what was written, renamed or removed in a folder outlive a power cut."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(held)
    finally:
        os.close(held)
