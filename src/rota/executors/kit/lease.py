"""The lease record that keepers read: until when they may go on without hearing from a daemon."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Self

from rota.executors.kit.keeper.words import SEALED_BYTES, read_file, seal, unseal

NANOSECONDS = 1_000_000_000


def boot_time() -> int:
    """Return the nanoseconds since the boot, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Lease:
    """A record of a deadline in boot time and of the epoch of the daemon that gave it.

    It is renewed in place, which works on a full disk. Keepers ignore an epoch lower than one they
    have seen, and look at it only when the deadline they know has passed.
    """

    def __init__(self, path: Path, epoch: int) -> None:
        self.path = path
        self.epoch = epoch
        self.until = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def renew(self, seconds: float, since: int | None = None) -> None:
        """Let keepers go on for some seconds, counted from an instant of boot time, or from now.

        The instant is best taken before the daemon's own renewal was sent.
        """
        start = boot_time() if since is None else since
        self.until = start + int(seconds * NANOSECONDS)
        os.pwrite(self._file, seal(self.until, self.epoch), 0)

    def close(self) -> None:
        """Let go of the record; it stays as it is."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lease(path: Path) -> tuple[int, int] | None:
    """Return the deadline in boot time and the epoch that a lease record tells."""
    words = unseal(read_file(str(path), SEALED_BYTES))
    return (int(words[0]), int(words[1])) if words else None
