"""The keeper's ends of files: what the program wrote, what it is to read, and the daemon's FIFO."""

from __future__ import annotations

import os

from rota.executors.kit.keeper.words import TAIL_BYTES

CHUNK_BYTES = 64 * 1024
SMALL_BYTES = 4096
LEFT_BYTES = 16 * 1024 * 1024
"""How much of a disk a spool leaves to others, a tenth of a small one: room is made by writing."""
LOOK_BYTES = 1024 * 1024
ENOSPC = 28


def read_now(end: int, most: int) -> bytes | None:
    """Return what a pipe holds, nothing at its end; None if it holds nothing now."""
    try:
        return os.read(end, most)
    except BlockingIOError:
        return None


class Spool:
    """One stream of the program: its head in a file, its newest bytes in memory, all counted.

    The file is a clean prefix of the stream. What goes past the cap, or finds the disk full, is
    only counted and remembered by its tail; the program never notices.
    """

    def __init__(self, name: str, cap: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.file = os.open(name, flags, 0o600)
        self.cap = cap
        self.size = 0
        self.total = 0
        self.errno = 0
        self._looked = 0
        self._tail: list[bytes] = []
        self._tail_size = 0

    def take(self, data: bytes) -> None:
        """Keep what was read."""
        self.total += len(data)
        if self.size - self._looked >= LOOK_BYTES:
            self._look()
        room = 0 if self.errno else self.cap - self.size
        kept = self._write(data if len(data) <= room else data[:room]) if room > 0 else 0
        if kept < len(data):
            self._remember(data[kept:] if kept else data)

    def tail(self) -> bytes:
        """Return the newest bytes that are not in the file."""
        return b"".join(self._tail)[-TAIL_BYTES:]

    def settle(self) -> None:
        """Have the file on the disk, as far as the disk takes it."""
        try:
            if self.size:
                os.fsync(self.file)
        except OSError as fault:
            self.errno = self.errno or fault.errno or 5

    def _look(self) -> None:
        """Take a disk for full while others still find room on it."""
        self._looked = self.size
        disk = os.fstatvfs(self.file)
        if disk.f_bavail * disk.f_frsize < min(LEFT_BYTES, disk.f_blocks * disk.f_frsize // 10):
            self.errno = self.errno or ENOSPC

    def _write(self, data: bytes) -> int:
        written = 0
        while written < len(data):
            try:
                written += os.write(self.file, data[written:] if written else data)
            except OSError as fault:
                self.errno = fault.errno or 5
                break
        self.size += written
        return written

    def _remember(self, data: bytes) -> None:
        if self._tail and len(self._tail[-1]) + len(data) <= SMALL_BYTES:
            self._tail[-1] += data
        else:
            self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_size -= len(self._tail.pop(0))


class Feed:
    """What the program is to read: the file `in`, which the daemon writes, into a pipe."""

    def __init__(self, pipe: int, offset: int = 0) -> None:
        self.pipe = pipe
        self.offset = offset
        self.open = True
        self._file = os.open("in", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._pending = b""
        os.set_blocking(pipe, False)

    def push(self) -> bool:
        """Write what there is; true if the pipe is full and more is waiting."""
        while self.open:
            ended = os.path.exists("in.end")  # looked at first: then what is read is all
            self._pending = self._pending or os.pread(self._file, CHUNK_BYTES, self.offset)
            if not self._pending:
                if ended:
                    self.close()
                return False
            try:
                written = os.write(self.pipe, self._pending)
            except BlockingIOError:
                return True
            except OSError:  # the program does not read any more
                self.close()
                return False
            self.offset += written
            self._pending = self._pending[written:]
        return False

    def close(self) -> None:
        """Tell the program that there is no more."""
        if self.open:
            self.open = False
            os.close(self.pipe)


class Ringer:
    """Tells the daemon that there is something new, if one is there to hear it."""

    def __init__(self, path: bytes, name: bytes) -> None:
        self._path = path
        self._line = name + b"\n"
        self._file = -1

    def ring(self) -> bool:
        """Ring; false if the daemon has not yet taken in what rang before."""
        for _ in range(2 if self._path else 0):  # the FIFO may be another one than it was
            try:
                if self._file < 0:
                    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
                    self._file = os.open(self._path, flags)
                os.write(self._file, self._line)
            except BlockingIOError:
                return False
            except OSError:
                self._forget()
            else:
                break
        return True

    def _forget(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
