"""The lock beside a database file: who holds it is the one process that plans and works."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from rota.errors import Busy, Unavailable

LOOKS = 10
LOOK_SECONDS = 0.01


class InstanceLock:
    """An exclusive lock that ends with the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> bool:
        """Take the lock, or raise Busy with the process that has it; false if it was taken here."""
        if self._file is not None:
            return False
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            why = (fault.strerror or str(fault)).lower()
            message = f"cannot lock the database: {why}; the lock is {self._path}"
            raise Unavailable(message) from fault
        try:
            _lock_alone(file)
        except OSError as fault:
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(file)
            message = (
                f"another Rota (process {holder}) has this database: end that process first, "
                f"or let it work with `rota start` if it was stopped; the lock is {self._path}"
            )
            raise Busy(message) from fault
        self._file = file
        with contextlib.suppress(OSError):  # who holds it is told only to people
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        return True

    def is_taken(self) -> bool | None:
        """Return whether somebody has the lock; None if that cannot be seen. Nothing is written."""
        if self._file is not None:
            return True
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return None
        else:
            return False
        finally:
            os.close(file)

    def release(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _lock_alone(file: int) -> None:
    """Lock a file; whoever only looks whether it is locked has let go of it in a moment."""
    for _ in range(LOOKS):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_SECONDS)
    return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
