"""Writes that happen once under a name: noted, passed on, answered as before.

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
import re
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

from rota.gateway.grants import (
    FORGET_SECONDS,
    BudgetExhausted,
    IdleConnection,
    forget_old,
    put,
    settle,
)
from rota.gateway.http import (
    EFFECT,
    BodyLength,
    Headers,
    InvalidHead,
    RequestHead,
    ResponseHead,
    client_headers,
    parts_of,
)
from rota.gateway.proxy import Proxy, ProxyRequest, RequestRefused, given_up, noted
from rota.gateway.upstreams import READS, Upstream

FAULTS = (
    InvalidHead,
    RequestRefused,
    BudgetExhausted,
    OSError,
    EOFError,
    asyncio.LimitOverrunError,
)
"""What can go wrong while an answer is awaited."""


@dataclass
class IdempotentWrites:
    """What writes under a name are carried out with."""

    exchange: Proxy
    effects: WriteJournal

    async def serve(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        request: ProxyRequest,
        name: str,
        begun: asyncio.Event,
    ) -> bool:
        """Serve a write: pass it on, or tell what was answered, or why neither is done."""
        asking, permit, waits = request.asking, request.permit, self.exchange.waits
        permit.ask()
        check_length(asking)
        async with permit.turns:
            if not asking.body.empty:
                await self.exchange.go_on(writer, asking)
            body = await whole(parts_of(reader, asking.body, waits.body))
            digest = request_of(asking, request.upstream, request.target, body)
            key = key_of(permit.space, permit.scope, name)
            async with self.effects.alone(key):
                note = await noted(self.effects.find(key))
                if note is None:
                    if self.effects.is_forgotten(permit.since):
                        raise forgotten(name)
                    await self._first(writer, request, body, name, key, digest, begun)
                else:
                    known = check_known(name, note, digest)
                    begun.set()
                    await self.exchange.hand_back(
                        writer, request, kept(note, known), after(known), (EFFECT, ALREADY),
                        stays=asking.stays,
                    )  # fmt: skip
        return asking.stays

    async def _first(
        self,
        writer: StreamWriter,
        request: ProxyRequest,
        body: bytes,
        name: str,
        key: JournalKey,
        digest: str,
        begun: asyncio.Event,
    ) -> None:
        """Pass a write on that was never begun; what is not reached, or not noted, never was.

        The connection is a new one: an upstream may just be ending one that it knows already.
        """
        asking, source = held(request.asking, body)
        request = request._replace(asking=asking)
        request.check_size()
        out = await self.exchange.connect(request.upstream)
        try:
            await self._begin(request, key, digest)
            try:
                answering, first, rest = await self._heard(writer, request, source, out, name)
                long = len(first) > LONGEST
                said = JournalEntry(
                    digest, answering.status, client_headers(answering), None if long else first
                )
                mark = await self._kept(key, said)
            finally:
                self.effects.close(key)
            begun.set()
            framed = answering if long else replace(answering, body=BodyLength(length=len(first)))
            await self.exchange.hand_back(
                writer, request, framed, after(first, rest), (EFFECT, mark), stays=asking.stays
            )
        finally:
            out.drop()

    async def _begin(self, request: ProxyRequest, key: JournalKey, digest: str) -> None:
        """Note that a write is about to be passed on."""
        await self.exchange.note_write(request)
        try:
            await noted(self.effects.begin(key, digest))
        except JournalFull:
            raise full() from None
        if request.upstream.secret is not None:
            self.exchange.used(request.upstream.secret)

    async def _heard(
        self,
        writer: StreamWriter,
        request: ProxyRequest,
        source: StreamReader,
        out: IdleConnection,
        name: str,
    ) -> tuple[ResponseHead, bytes, AsyncIterator[bytes]]:
        """Return the head of the answer, as much of its body as can be kept, and the rest."""
        sending = asyncio.ensure_future(self.exchange.send(source, writer, request, out))
        try:
            answering = await self.exchange.answer(out.reader, request.asking.method, sending)
            parts = parts_of(out.reader, answering.body, self.exchange.waits.answer)
            return answering, await beginning(parts), parts
        except FAULTS:
            raise unknown(name) from None
        finally:
            await given_up(sending)

    async def _kept(self, key: JournalKey, note: JournalEntry) -> str:
        """Keep an answer before it is told, and return what it says of the effect."""
        mark = judged(note.status)
        if mark != UNKNOWN:
            try:
                await self.effects.end(key, note if mark == DONE else None)
            except OSError:
                return UNKNOWN
        return mark


NAME = re.compile(r"[!-.0-~]{1,200}", re.ASCII)
DONE, ALREADY, REFUSED, UNKNOWN = "done", "already-done", "refused", "unknown"
FIRST_ELSEWHERE, FIRST_REFUSAL, FIRST_FAILURE, TIMED_OUT = 300, 400, 500, 408
SEE_OTHER = 303
"""Tells where what was done is to be seen."""
NOT_HERE = frozenset({307, 308})
"""Tell to do the same elsewhere, so it was not done here."""


def effect_name_of(asking: RequestHead) -> str | None:
    """Return the name of a write that is to happen once; None if it has none."""
    names = list(asking.all(EFFECT))
    if not names:
        return None
    if len(names) > 1 or NAME.fullmatch(names[0]) is None:
        raise InvalidHead(
            "Rota-Effect is one name: 1 to 200 plain characters, no space and no slash"
        )
    if asking.method in READS or asking.method == "OPTIONS":
        raise InvalidHead("Rota-Effect is for writes: a read may be done as often as you like")
    return names[0]


async def whole(parts: AsyncIterator[bytes]) -> bytes:
    """Return the body of a request, which must be known before any of it is passed on."""
    body = await beginning(parts)
    if len(body) > LONGEST:
        raise _too_long()
    return body


async def beginning(parts: AsyncIterator[bytes]) -> bytes:
    """Return what comes, but stop when it is longer than what is kept."""
    held = bytearray()
    async for part in parts:
        held += part
        if len(held) > LONGEST:
            break
    return bytes(held)


async def after(held: bytes, rest: AsyncIterator[bytes] | None = None) -> AsyncIterator[bytes]:
    """Yield what is held already, and then what is still to come."""
    if held:
        yield held
    if rest is not None:
        async for part in rest:
            yield part


def check_length(asking: RequestHead) -> None:
    """Refuse a request that says that it is too long to be held."""
    if asking.body.length is not None and asking.body.length > LONGEST:
        raise _too_long()


def kept(note: JournalEntry, body: bytes) -> ResponseHead:
    """Return the head of an answer as it was kept."""
    return ResponseHead(note.status, note.headers, BodyLength(length=len(body)), stays=True)


def held(asking: RequestHead, body: bytes) -> tuple[RequestHead, StreamReader]:
    """Return a request whose body is here, to be sent from where it is held."""
    reader = StreamReader()
    reader.feed_data(body)
    reader.feed_eof()
    told = tuple(pair for pair in asking.headers if pair[0] != "expect")
    return replace(asking, headers=told, body=BodyLength(length=len(body))), reader


def request_of(asking: RequestHead, upstream: Upstream, target: str, body: bytes) -> str:
    """Return what two requests share only if they are the same: method, address and body."""
    address = f"{upstream.scheme}://{upstream.authority}{target}"
    head = json.dumps([asking.method, address]).encode()
    return hashlib.sha256(head + b"\n" + body).hexdigest()


def check_known(name: str, note: JournalEntry, request: str) -> bytes:
    """Return the body that is kept of an effect, or say why it is neither done nor told."""
    if note.request not in {UNREADABLE, request}:
        message = f"{name!r} was another request (method, address or body): take another name"
        raise RequestRefused(409, "effect_differs", message)
    if note.status == BEGUN:
        raise unknown(name)
    if note.body is None:
        message = f"{name!r} is done and was answered {note.status}, too long to keep: look there"
        raise RequestRefused(409, "effect_done", message)
    return note.body


def unknown(name: str) -> RequestRefused:
    """Return what is said of an effect of which nobody knows whether it happened."""
    message = (
        f"{name!r} was begun and no answer is kept: it may have happened, and Rota cannot know; "
        "look there, and if it has not, do it under another name"
    )
    return RequestRefused(409, "effect_unknown", message)


def forgotten(name: str) -> RequestRefused:
    """Return what is said of an effect that may have been forgotten."""
    message = (
        f"this run is older than effects are kept, so {name!r} may have happened before; look "
        "there, and if it has not, do it without Rota-Effect"
    )
    return RequestRefused(409, "effect_unknown", message)


def full() -> RequestRefused:
    """Return what is said where a space may have no more effects."""
    message = f"this space has {MOST} effects, or {MAX_BYTES >> 20} MiB of their answers"
    return RequestRefused(403, "effects_full", f"{message}; they are forgotten after 30 days")


def judged(status: int) -> str:
    """Return what an answer says: done, refused and so not done, or not known.

    Who refuses says that it has not done it. Who fails may have, and so may whoever stands behind a
    server that fails in its place; a server that has the whole request and still waits for it, too.
    Any other redirect is said of what has moved as of what was done.
    """
    if status < FIRST_ELSEWHERE or status == SEE_OTHER:
        return DONE
    if status < FIRST_REFUSAL:
        return REFUSED if status in NOT_HERE else UNKNOWN
    return REFUSED if status < FIRST_FAILURE and status != TIMED_OUT else UNKNOWN


def _too_long() -> RequestRefused:
    message = f"a write with Rota-Effect has {LONGEST >> 20} MiB at most"
    return RequestRefused(413, "effect_too_long", message)


FOLDER = "effects"
LONGEST = 1 << 20
"""Bytes of a request or an answer that are held and kept."""
MOST = 10_000
MAX_BYTES = 256 << 20
"""What is kept for one space."""
COUNTED_SECONDS = 3600.0
"""After how long a space is counted again, and what is old in it forgotten."""
BEGUN = 0
UNREADABLE = ""
UNFINISHED = "~"

Found = TypeVar("Found")


class JournalFull(Exception):
    """A space has as many effects as it may."""


class JournalKey(NamedTuple):
    """An effect: of which space, and what it is called on disk."""

    space: int
    digest: str


@dataclass(frozen=True, slots=True)
class JournalEntry:
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


def key_of(space: int, scope: str, name: str) -> JournalKey:
    """Return what an effect is known by: a name counts for one run of one space alone."""
    return JournalKey(space, hashlib.sha256(f"{scope}\n{name}".encode()).hexdigest())


class WriteJournal:
    """The effects of a gateway's folder; disk work is done one piece at a time, off the loop."""

    def __init__(self, folder: str, clock: Callable[[], float]) -> None:
        self._folder = os.path.join(folder, FOLDER)  # noqa: PTH118
        self._clock = clock
        self._disk = asyncio.Lock()
        self._alone: WeakValueDictionary[JournalKey, asyncio.Lock] = WeakValueDictionary()
        self._held: dict[int, _Held] = {}
        self._begun: Counter[int] = Counter()

    def open(self) -> None:
        """Make the folder, and forget what is old, also of spaces that write no more."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        for entry in tuple(os.scandir(self._folder)):
            if entry.is_dir(follow_symlinks=False):
                forget_old(entry.path)

    def alone(self, key: JournalKey) -> asyncio.Lock:
        """Return what one request for an effect holds while others wait."""
        return self._alone.setdefault(key, asyncio.Lock())

    def is_forgotten(self, since: float | None) -> bool:
        """Whether what an earlier attempt of a run has noted may be gone by now."""
        return since is not None and self._clock() - since > FORGET_SECONDS

    async def find(self, key: JournalKey) -> JournalEntry | None:
        """Return what is known of an effect; raises OSError if nobody can look."""
        return await self._wholly(lambda: self._read(key))

    async def begin(self, key: JournalKey, request: str) -> None:
        """Note that an effect begins; raises Full, or OSError, and then it may not."""
        self._begun[key.space] += 1
        try:
            await self._wholly(lambda: self._begin(key, request))
        except BaseException:
            self._begun[key.space] -= 1
            raise

    async def end(self, key: JournalKey, note: JournalEntry | None) -> None:
        """Keep what came of an effect that was begun; None if it has not happened."""
        await self._wholly(lambda: self._drop(key) if note is None else self._write(key, note))

    def close(self, key: JournalKey) -> None:
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

    def _read(self, key: JournalKey) -> JournalEntry | None:
        try:
            with open(self._path(key), "rb") as file:  # noqa: PTH123
                first, body = file.readline(), file.read()
        except FileNotFoundError:
            return None
        try:
            said = json.loads(first)
            status, kept = int(said["status"]), bool(said["kept"])
            if status != BEGUN and kept and len(body) != int(said["length"]):
                return JournalEntry(UNREADABLE)
            headers = tuple((str(name), str(value)) for name, value in said["headers"])
            return JournalEntry(str(said["request"]), status, headers, body if kept else None)
        except (ValueError, KeyError, TypeError):
            return JournalEntry(UNREADABLE)

    def _begin(self, key: JournalKey, request: str) -> None:
        held = self._count(key.space)
        reserved = self._begun[key.space] * LONGEST
        if held.names >= MOST or held.size + reserved > MAX_BYTES:
            raise JournalFull
        try:
            self._write(key, JournalEntry(request))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(self._path(key))  # noqa: PTH108
            self._held.pop(key.space, None)
            raise
        held.names += 1

    def _write(self, key: JournalKey, note: JournalEntry) -> None:
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

    def _drop(self, key: JournalKey) -> None:
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

    def _path(self, key: JournalKey) -> str:
        return os.path.join(self._folder, str(key.space), key.digest)  # noqa: PTH118
