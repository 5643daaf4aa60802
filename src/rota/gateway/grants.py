"""What one attempt may use at the gateway: token, budget, and what it has used.

A small file an attempt says `0` from before it begins, and `1` from before its first write is
passed on. No file, or any other content, is not known.
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
"""Connections of one attempt; more of them wait."""
SPARE = 4
"""Connections to upstreams that are kept for an attempt's next request."""
SPARE_SECONDS = 15.0
MAX_HELD = 8
"""Writes of one attempt under a name, whose requests and answers are held; more of them wait."""


def token_of(key: bytes, run_id: int, epoch: int) -> str:
    """Return the token of an attempt: the same in every process that has the home's key."""
    return PREFIX + hmac.digest(key, f"{run_id}.{epoch}".encode(), "sha256").hex()


def digest_of(token: str) -> str:
    """Return what the gateway knows of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class BudgetExhausted(Exception):
    """An attempt has used all it may."""


@dataclass(slots=True)
class IdleConnection:
    """A connection to an upstream that waits for the next request."""

    reader: StreamReader
    writer: StreamWriter
    since: float

    def drop(self) -> None:
        """Let go of it, and of what nobody has taken there."""
        self.writer.transport.abort()


@dataclass(slots=True, kw_only=True)
class Grant:
    """What one attempt may do.

    `ended` is the file that its keeper writes when it has ended; `until` is how long keepers may
    go on, in boot time, as they were promised. One that has walls comes by a door of its own, any
    other by a port of loopback. Writes under a name count for `scope`, in `space`; `since` is when
    its run was made, if an attempt before this one may have named some.
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
    asked: int = 0
    carried: int = 0
    spares: dict[str, list[IdleConnection]] = field(default_factory=dict)
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_HELD))

    def opens_for(self, token: str) -> bool:
        """Whether a token is the one of this attempt."""
        return hmac.compare_digest(self.digest, digest_of(token))

    @property
    def living(self) -> bool:
        """Whether the attempt goes on, as far as the files of its keeper tell."""
        if time.clock_gettime(time.CLOCK_BOOTTIME) > self.until:
            return False
        return not os.path.exists(self.ended)  # noqa: PTH110 - once for every request

    def ask(self) -> None:
        """Count a request."""
        if self.requests_left <= 0:
            raise BudgetExhausted("this attempt has made all the requests it may")
        self.requests_left -= 1
        self.asked += 1

    def carry(self, count: int) -> None:
        """Count bytes, of either direction."""
        self.bytes_left -= count
        self.carried += count
        if self.bytes_left < 0:
            raise BudgetExhausted("this attempt has sent and received all the bytes it may")

    def take(self, upstream: str, now: float) -> IdleConnection | None:
        """Return a connection that is still good."""
        waiting = self.spares.get(upstream, [])
        while waiting:
            spare = waiting.pop()
            fresh = now - spare.since < SPARE_SECONDS
            if fresh and not spare.reader.at_eof() and not spare.writer.is_closing():
                return spare
            spare.drop()
        return None

    def keep(self, upstream: str, spare: IdleConnection) -> None:
        """Keep a connection for the next request."""
        waiting = self.spares.setdefault(upstream, [])
        if len(waiting) < SPARE:
            waiting.append(spare)
        else:
            spare.drop()

    def close(self) -> None:
        """Let go of every connection that waits."""
        for waiting in self.spares.values():
            for spare in waiting:
                spare.drop()
        self.spares.clear()


SPENT_FOLDER = "spent"


class UsageFiles:
    """One small file an attempt; what cannot be written counts until this process ends."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, SPENT_FOLDER)  # noqa: PTH118
        self._noted: dict[str, tuple[int, int]] = {}

    def open(self) -> None:
        """Make the folder, and forget what is old."""
        forget_old(self._folder)

    def known(self, name: str) -> tuple[int, int]:
        """Return the requests and bytes that an attempt has used before."""
        with contextlib.suppress(OSError, ValueError):
            with open(self._path(name), encoding="ascii") as file:  # noqa: PTH123
                asked, carried = map(int, file.read(100).split())
            return asked, carried
        return 0, 0

    def note(self, name: str, asked: int, carried: int) -> None:
        """Note what an attempt has used by now."""
        used = asked, carried
        if self._noted.get(name, (0, 0)) == used:
            return
        path = self._path(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            with os.fdopen(os.open(f"{path}~", flags, 0o600), "w") as file:
                file.write(f"{asked} {carried}\n")
            os.replace(f"{path}~", path)  # noqa: PTH105
            self._noted[name] = used

    def drop(self, name: str) -> None:
        """Forget an attempt that has ended."""
        self._noted.pop(name, None)
        with contextlib.suppress(OSError):
            os.unlink(self._path(name))  # noqa: PTH108

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)  # noqa: PTH118


WROTE_FOLDER = "wrote"
NOT_YET, WRITTEN = b"0", b"1"


def begin(folder: str, name: str) -> None:
    """Note that an attempt has written nothing yet, if nothing is noted."""
    path = _path(folder, name)
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(NOT_YET)


def seen(folder: str, name: str) -> bool | None:
    """Return whether an attempt has written to somewhere outside; None if that is not known."""
    try:
        with open(_path(folder, name), "rb") as file:  # noqa: PTH123
            return {NOT_YET: False, WRITTEN: True}.get(file.read(10))
    except OSError:
        return None


def drop(folder: str, name: str) -> None:
    """Forget an attempt that has ended and is on record."""
    with contextlib.suppress(OSError):
        os.unlink(_path(folder, name))  # noqa: PTH108


class WriteMarks:
    """The gateway's side: notes the first write of each attempt before it is passed on."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._noted: set[str] = set()
        self._noting = asyncio.Lock()

    def open(self) -> None:
        """Make the folder, and forget what is old."""
        forget_old(os.path.join(self._folder, WROTE_FOLDER))  # noqa: PTH118

    async def note(self, name: str) -> None:
        """Note that an attempt writes; raises OSError, and then it may not."""
        async with self._noting:
            if name not in self._noted:
                await asyncio.to_thread(put, _path(self._folder, name), WRITTEN)
                self._noted.add(name)

    def close(self, name: str) -> None:
        """Remember an attempt no more; what is on disk stays until it is settled."""
        self._noted.discard(name)


def _path(folder: str, name: str) -> str:
    return os.path.join(folder, WROTE_FOLDER, name)  # noqa: PTH118


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
