"""The daemon's FIFO: keepers ring it when there is something new to read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

READ_BYTES = 64 * 1024


class Wake:
    """One FIFO for all keepers of a daemon.

    Hand `fileno` to an event loop; when it is readable, `names` tells which attempts have news.
    Rings are hints: after a start, and now and then, everything is looked at anyway.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_fifo():
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
        self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""

    def fileno(self) -> int:
        """Return what an event loop can wait for."""
        return self._file

    def names(self) -> set[str]:
        """Return the names of the attempts that have rung since the last look."""
        try:
            data = os.read(self._file, READ_BYTES)
        except BlockingIOError:
            return set()
        *lines, self._rest = (self._rest + data).split(b"\n")
        return {line.decode(errors="surrogateescape") for line in lines}

    def close(self) -> None:
        """Hear no more; keepers notice and do not mind."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
