"""Grants of attempts at the gateway: token, budget and usage.

Whether an attempt has written to the outside is recorded in a small file: `0` from before it
starts, `1` from before its first write is forwarded. Without that file, or with other content, it
is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import time
from asyncio import StreamReader, StreamWriter
from dataclasses import dataclass, field

PREFIX = "sk-rota-"
MAX_CONCURRENT = 64
"""Connections of one attempt; further ones wait."""
MAX_IDLE = 4
"""Idle upstream connections that are kept for an attempt."""
IDLE_SECONDS = 15.0
MAX_HELD = 8
"""Named writes of one attempt that are buffered at once; further ones wait."""


def grant_token(key: bytes, run_id: int, epoch: int) -> str:
    """Return the token of an attempt, derived from the key of the home."""
    return PREFIX + hmac.digest(key, f"{run_id}.{epoch}".encode(), "sha256").hex()


def token_digest(token: str) -> str:
    """Return the hash of a token; the gateway only stores that."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class BudgetExhausted(Exception):
    """An attempt has used up its budget at the gateway."""


@dataclass(slots=True)
class IdleConnection:
    """An idle connection to an upstream."""

    reader: StreamReader
    writer: StreamWriter
    since: float

    def abort(self) -> None:
        """Close the connection and drop unread data."""
        self.writer.transport.abort()


@dataclass(slots=True, kw_only=True)
class Grant:
    """The rights of one attempt.

    `ended` is a file that exists once it has ended; `until` is the end of the lease of its keeper
    in boot time. An isolated attempt has a socket of its own, others share a loopback port. Named
    writes count for `scope` in `space`; `since` is when the run was created, if an earlier attempt
    may have made some.
    """

    name: str
    digest: str
    upstreams: frozenset[str]
    ended: str
    port: int | None
    requests_left: int
    bytes_left: int
    until: float
    space: int
    scope: str
    since: float | None = None
    request_count: int = 0
    byte_count: int = 0
    idle: dict[str, list[IdleConnection]] = field(default_factory=dict)
    journal_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_HELD))

    def matches(self, token: str) -> bool:
        """Whether a token is that of this attempt."""
        return hmac.compare_digest(self.digest, token_digest(token))

    @property
    def is_active(self) -> bool:
        """Whether the attempt is running, by the files of its keeper."""
        if time.clock_gettime(time.CLOCK_BOOTTIME) > self.until:
            return False
        return not os.path.exists(self.ended)  # noqa: PTH110 - once for every request

    def count_request(self) -> None:
        """Count a request."""
        if self.requests_left <= 0:
            raise BudgetExhausted("this attempt has made all the requests it may")
        self.requests_left -= 1
        self.request_count += 1

    def count_bytes(self, count: int) -> None:
        """Count bytes of either direction."""
        self.bytes_left -= count
        self.byte_count += count
        if self.bytes_left < 0:
            raise BudgetExhausted("this attempt has sent and received all the bytes it may")

    def take_idle(self, upstream: str, now: float) -> IdleConnection | None:
        """Return a usable idle connection, if there is one."""
        waiting = self.idle.get(upstream, [])
        while waiting:
            spare = waiting.pop()
            fresh = now - spare.since < IDLE_SECONDS
            if fresh and not spare.reader.at_eof() and not spare.writer.is_closing():
                return spare
            spare.abort()
        return None

    def keep_idle(self, upstream: str, spare: IdleConnection) -> None:
        """Keep a connection for the next request."""
        waiting = self.idle.setdefault(upstream, [])
        if len(waiting) < MAX_IDLE:
            waiting.append(spare)
        else:
            spare.abort()

    def close(self) -> None:
        """Close all idle connections."""
        for waiting in self.idle.values():
            for spare in waiting:
                spare.abort()
        self.idle.clear()


SPENT_FOLDER = "spent"


class UsageFiles:
    """Usage of attempts, one file each; if it cannot be written, usage counts until a restart."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, SPENT_FOLDER)  # noqa: PTH118
        self._written: dict[str, tuple[int, int]] = {}

    def open(self) -> None:
        """Create the folder, and delete old files."""
        delete_old_files(self._folder)

    def read(self, name: str) -> tuple[int, int]:
        """Return the recorded numbers of requests and bytes of an attempt."""
        with contextlib.suppress(OSError, ValueError):
            with open(self._path(name), encoding="ascii") as file:  # noqa: PTH123
                asked, carried = map(int, file.read(100).split())
            return asked, carried
        return 0, 0

    def write(self, name: str, asked: int, carried: int) -> None:
        """Record the usage of an attempt."""
        used = asked, carried
        if self._written.get(name, (0, 0)) == used:
            return
        path = self._path(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            with os.fdopen(os.open(f"{path}~", flags, 0o600), "w") as file:
                file.write(f"{asked} {carried}\n")
            os.replace(f"{path}~", path)  # noqa: PTH105
            self._written[name] = used

    def delete(self, name: str) -> None:
        """Delete the usage of an ended attempt."""
        self._written.pop(name, None)
        with contextlib.suppress(OSError):
            os.unlink(self._path(name))  # noqa: PTH108

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)  # noqa: PTH118


WROTE_FOLDER = "wrote"
NOT_YET, WRITTEN = b"0", b"1"


def mark_started(folder: str, name: str) -> None:
    """Record that an attempt has not written yet, unless there is a record."""
    path = _path(folder, name)
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(NOT_YET)


def has_written(folder: str, name: str) -> bool | None:
    """Return whether an attempt has written to the outside; None if that is unknown."""
    try:
        with open(_path(folder, name), "rb") as file:  # noqa: PTH123
            return {NOT_YET: False, WRITTEN: True}.get(file.read(10))
    except OSError:
        return None


def delete_mark(folder: str, name: str) -> None:
    """Delete the record of an ended attempt."""
    with contextlib.suppress(OSError):
        os.unlink(_path(folder, name))  # noqa: PTH108


class WriteMarks:
    """Records the first write of each attempt, before it is forwarded."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._written: set[str] = set()
        self._lock = asyncio.Lock()

    def open(self) -> None:
        """Create the folder, and delete old files."""
        delete_old_files(os.path.join(self._folder, WROTE_FOLDER))  # noqa: PTH118

    async def mark_written(self, name: str) -> None:
        """Record that an attempt writes; raises OSError, and then it must not."""
        async with self._lock:
            if name not in self._written:
                await asyncio.to_thread(write_durably, _path(self._folder, name), WRITTEN)
                self._written.add(name)

    def close(self, name: str) -> None:
        """Drop an attempt from the cache; its file stays until the attempt is settled."""
        self._written.discard(name)


def _path(folder: str, name: str) -> str:
    return os.path.join(folder, WROTE_FOLDER, name)  # noqa: PTH118


VERSION = 4
LOCK, CONTROL, SOCKETS, SOCKET, USED = "lock", "control", "doors", "door", "used"
RETENTION_SECONDS = 30 * 24 * 3600.0
"""Age at which files of a killed gateway are deleted."""


def delete_old_files(folder: str) -> None:
    """Create a folder, and delete old files in it."""
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    os.utime(folder)
    past = os.stat(folder).st_mtime - RETENTION_SECONDS  # noqa: PTH116
    for entry in tuple(os.scandir(folder)):
        with contextlib.suppress(OSError):
            if entry.stat().st_mtime < past:
                os.unlink(entry.path)  # noqa: PTH108


def write_durably(path: str, data: bytes) -> None:
    """Replace a file atomically and durably."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(f"{path}~", flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}~", path)  # noqa: PTH105
    sync_folder(os.path.dirname(path))  # noqa: PTH120


def sync_folder(folder: str) -> None:
    """Flush a folder, so that changes in it survive a power failure."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(held)
    finally:
        os.close(held)
