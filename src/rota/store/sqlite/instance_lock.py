"""One working process for a file, and the file that wakes it.

The process that plans and works listens on a Unix datagram socket `<database>.wake`. Every other
process sends the topics of what it has committed there. A ring may be lost: nobody is home, the
path is too long for a socket, the queue is full. So the listener also looks once a second whether
somebody else has written (SQLite's `data_version`), and then takes every topic as rung.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
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


log = logging.getLogger(__name__)

TOPICS = ("runs", "delayed", "schedules", "deliveries", "cancels", "keys", "events")
LONGEST_RING = 1_024
POLL_SECONDS = 1.0
"""How long a write of another process can stay unnoticed when its ring was lost."""


class WakeupFile:
    """Rings at whoever listens beside a database, or listens."""

    def __init__(self, database: str, hear: Callable[[Sequence[str]], None]) -> None:
        self.path = Path(f"{database}.wake")
        self._address = str(self.path)
        self._hear = hear
        self._listening: socket.socket | None = None
        self._sending: socket.socket | None = None
        self._watch: asyncio.Task[None] | None = None
        self.watching = asyncio.Event()

    def ring(self, topics: Sequence[str]) -> None:
        """Tell the listener about topics, from the thread that wrote; never waits, never fails."""
        if self._listening is not None or not topics:
            return
        if self._sending is None:
            self._sending = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sending.setblocking(False)
        with contextlib.suppress(OSError):
            self._sending.sendto(",".join(topics).encode(), self._address)

    def listen(self, version: Callable[[], Awaitable[int]]) -> None:
        """Hear rings from now on; `version` tells how often others have written to the database.

        Only the holder of the instance lock calls this: a socket that stands there is a leftover.
        """
        if self._watch is not None:
            return
        loop = asyncio.get_running_loop()
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bell.setblocking(False)
        try:
            self.path.unlink(missing_ok=True)
            bell.bind(str(self.path))
            self.path.chmod(0o600)
        except OSError as fault:
            log.info(
                "store.wakeup_file_missing", extra={"path": str(self.path), "error": str(fault)}
            )
            bell.close()
        else:
            self._listening = bell
            loop.add_reader(bell.fileno(), self._answer)
        self._watch = loop.create_task(self._watch_version(version))

    async def stop_listening(self) -> None:
        """Stop hearing, and take the bell away."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Ring no more."""
        if self._sending is not None:
            self._sending.close()
            self._sending = None

    def _answer(self) -> None:
        heard: dict[str, None] = {}
        with contextlib.suppress(OSError):
            while self._listening is not None:
                rung = self._listening.recv(LONGEST_RING).decode("ascii", "replace")
                heard.update((topic, None) for topic in rung.split(",") if topic in TOPICS)
        if heard:
            self._hear(list(heard))

    async def _watch_version(self, version: Callable[[], Awaitable[int]]) -> None:
        known = -1
        while True:
            try:
                current = await version()
            except Unavailable:  # whoever needs the database now will say so
                current = known
            if current != known >= 0:
                self._hear(TOPICS)
            known = current
            self.watching.set()
            await asyncio.sleep(POLL_SECONDS)
