"""Writes that happen once, on disk: noted before they are passed on, answered alike ever after.

One file an effect, in a folder a space. Its first line tells the digest of the request and, once
there is one, the head of the answer; the body follows. A file without an answer is an effect that
was begun, and nobody knows whether it happened. Only one gateway writes here: it has the lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

from rota.gateway.folder import FORGET_SECONDS, forget_old, put, settle
from rota.gateway.heads import Headers

FOLDER = "effects"
LONGEST = 1 << 20
"""Bytes of a request or an answer that are held and kept."""
MOST = 10_000
MOST_BYTES = 256 << 20
"""What is kept for one space."""
COUNTED_SECONDS = 3600.0
"""After how long a space is counted again, and what is old in it forgotten."""
BEGUN = 0
UNREADABLE = ""
UNFINISHED = "~"

Found = TypeVar("Found")


class Full(Exception):
    """A space has as many effects as it may."""


class Key(NamedTuple):
    """An effect: of which space, and what it is called on disk."""

    space: int
    digest: str


@dataclass(frozen=True, slots=True)
class Note:
    """What is known of an effect; a `body` of None was too long to be kept."""

    request: str
    status: int = BEGUN
    headers: Headers = ()
    body: bytes | None = b""


@dataclass(slots=True)
class _Held:
    """How much there is of a space."""

    names: int
    size: int
    at: float


def key_of(space: int, scope: str, name: str) -> Key:
    """Return what an effect is known by: a name counts for one run of one space alone."""
    return Key(space, hashlib.sha256(f"{scope}\n{name}".encode()).hexdigest())


class Effects:
    """The effects of a gateway's folder; disk work is done one piece at a time, off the loop."""

    def __init__(self, folder: str, clock: Callable[[], float]) -> None:
        self._folder = os.path.join(folder, FOLDER)  # noqa: PTH118
        self._clock = clock
        self._disk = asyncio.Lock()
        self._alone: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        self._held: dict[int, _Held] = {}
        self._begun: Counter[int] = Counter()

    def open(self) -> None:
        """Make the folder, and forget what is old, also of spaces that write no more."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        for entry in tuple(os.scandir(self._folder)):
            if entry.is_dir(follow_symlinks=False):
                forget_old(entry.path)

    def alone(self, key: Key) -> asyncio.Lock:
        """Return what one request for an effect holds while others wait."""
        return self._alone.setdefault(key, asyncio.Lock())

    def is_forgotten(self, since: float | None) -> bool:
        """Whether what an earlier attempt of a run has noted may be gone by now."""
        return since is not None and self._clock() - since > FORGET_SECONDS

    async def find(self, key: Key) -> Note | None:
        """Return what is known of an effect; raises OSError if nobody can look."""
        return await self._wholly(lambda: self._read(key))

    async def begin(self, key: Key, request: str) -> None:
        """Note that an effect begins; raises Full, or OSError, and then it may not."""
        self._begun[key.space] += 1
        try:
            await self._wholly(lambda: self._begin(key, request))
        except BaseException:
            self._begun[key.space] -= 1
            raise

    async def end(self, key: Key, note: Note | None) -> None:
        """Keep what came of an effect that was begun; None if it has not happened."""
        await self._wholly(lambda: self._drop(key) if note is None else self._write(key, note))

    def close(self, key: Key) -> None:
        """Hold no room any more for the answer of an effect that was begun."""
        self._begun[key.space] -= 1

    async def _wholly(self, work: Callable[[], Found]) -> Found:
        """Do something on disk to its end, also when who waits for it is cancelled."""
        async with self._disk:
            doing = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(doing)
            except asyncio.CancelledError:
                await asyncio.wait({doing})
                raise

    def _read(self, key: Key) -> Note | None:
        try:
            with open(self._path(key), "rb") as file:  # noqa: PTH123
                first, body = file.readline(), file.read()
        except FileNotFoundError:
            return None
        try:
            said = json.loads(first)
            status, kept = int(said["status"]), bool(said["kept"])
            if status != BEGUN and kept and len(body) != int(said["length"]):
                return Note(UNREADABLE)
            headers = tuple((str(name), str(value)) for name, value in said["headers"])
            return Note(str(said["request"]), status, headers, body if kept else None)
        except (ValueError, KeyError, TypeError):
            return Note(UNREADABLE)

    def _begin(self, key: Key, request: str) -> None:
        held = self._count(key.space)
        reserved = self._begun[key.space] * LONGEST
        if held.names >= MOST or held.size + reserved > MOST_BYTES:
            raise Full
        try:
            self._write(key, Note(request))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(self._path(key))  # noqa: PTH108
            self._held.pop(key.space, None)
            raise
        held.names += 1

    def _write(self, key: Key, note: Note) -> None:
        said = {
            "request": note.request,
            "status": note.status,
            "headers": note.headers,
            "kept": note.body is not None,
            "length": len(note.body or b""),
        }
        data = json.dumps(said).encode() + b"\n" + (note.body or b"")
        put(self._path(key), data)
        if key.space in self._held:
            self._held[key.space].size += len(data)

    def _drop(self, key: Key) -> None:
        path = self._path(key)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108
        settle(os.path.dirname(path))  # noqa: PTH120
        if key.space in self._held:
            self._held[key.space].names -= 1

    def _count(self, space: int) -> _Held:
        """Return how much there is of a space, from time to time by looking."""
        now = self._clock()
        held = self._held.get(space)
        if held is not None and 0 <= now - held.at < COUNTED_SECONDS:
            return held
        folder = os.path.join(self._folder, str(space))  # noqa: PTH118
        if not os.path.isdir(folder):  # noqa: PTH112
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
            settle(os.path.dirname(self._folder))  # noqa: PTH120
            settle(self._folder)
        sizes = []
        for entry in tuple(os.scandir(folder)):
            found = entry.stat(follow_symlinks=False)
            if entry.name.endswith(UNFINISHED) or found.st_mtime < now - FORGET_SECONDS:
                os.unlink(entry.path)  # noqa: PTH108
            else:
                sizes.append(found.st_size)
        self._held[space] = held = _Held(len(sizes), sum(sizes), now)
        return held

    def _path(self, key: Key) -> str:
        return os.path.join(self._folder, str(key.space), key.digest)  # noqa: PTH118
