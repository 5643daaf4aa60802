"""Writes that are done once under a name: recorded, forwarded, and answered again from the record.

There is a folder per space with one file per named write. Its first line holds the hash of the
request and, once there is one, the head of the response; the body follows. A file without a
response is a write that was started and whose outcome is unknown. Only one gateway uses the folder,
as it holds the lock.
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
    RETENTION_SECONDS,
    BudgetExhausted,
    IdleConnection,
    delete_old_files,
    sync_folder,
    write_durably,
)
from rota.gateway.http import (
    EFFECT,
    BodyLength,
    Headers,
    InvalidHead,
    RequestHead,
    ResponseHead,
    client_headers,
    read_body,
)
from rota.gateway.proxy import Proxy, ProxyRequest, RequestRefused, cancel_and_wait, require_note
from rota.gateway.upstreams import READS, Upstream

RESPONSE_ERRORS = (
    InvalidHead,
    RequestRefused,
    BudgetExhausted,
    OSError,
    EOFError,
    asyncio.LimitOverrunError,
)
"""Errors while waiting for a response."""


@dataclass
class IdempotentWrites:
    """Serves named writes."""

    proxy: Proxy
    journal: WriteJournal

    async def serve(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        request: ProxyRequest,
        name: str,
        responding: asyncio.Event,
    ) -> bool:
        """Serve a named write: forward it, answer it from the record, or reject it."""
        request_head, grant, timeouts = request.head, request.grant, self.proxy.timeouts
        grant.count_request()
        check_length(request_head)
        async with grant.journal_slots:
            if not request_head.body.empty:
                await self.proxy.send_continue(writer, request_head)
            body = await read_request_body(read_body(reader, request_head.body, timeouts.body))
            digest = request_digest(request_head, request.upstream, request.target, body)
            key = journal_key(grant.space, grant.scope, name)
            async with self.journal.lock(key):
                entry = await require_note(self.journal.find(key))
                if entry is None:
                    if self.journal.is_expired(grant.since):
                        raise forgotten_effect_error(name)
                    await self._forward(writer, request, body, name, key, digest, responding)
                else:
                    known = check_entry(name, entry, digest)
                    responding.set()
                    await self.proxy.respond(
                        writer,
                        request,
                        stored_head(entry, known),
                        chain_body(known),
                        (EFFECT, ALREADY),
                        keep_alive=request_head.keep_alive,
                    )
        return request_head.keep_alive

    async def _forward(
        self,
        writer: StreamWriter,
        request: ProxyRequest,
        body: bytes,
        name: str,
        key: JournalKey,
        digest: str,
        responding: asyncio.Event,
    ) -> None:
        """Forward a write for the first time; it is only recorded once the upstream is connected.

        It uses a new connection, because the upstream may be closing an idle one.
        """
        request_head, source = buffered_request(request.head, body)
        request = request._replace(head=request_head)
        request.check_size()
        connection = await self.proxy.connect(request.upstream)
        try:
            await self._begin(request, key, digest)
            try:
                response_head, first, rest = await self._receive(
                    writer, request, source, connection, name
                )
                long = len(first) > MAX_STORED_BYTES
                entry = JournalEntry(
                    digest,
                    response_head.status,
                    client_headers(response_head),
                    None if long else first,
                )
                outcome = await self._record_result(key, entry)
            finally:
                self.journal.close(key)
            responding.set()
            framed = (
                response_head
                if long
                else replace(response_head, body=BodyLength(length=len(first)))
            )
            await self.proxy.respond(
                writer,
                request,
                framed,
                chain_body(first, rest),
                (EFFECT, outcome),
                keep_alive=request_head.keep_alive,
            )
        finally:
            connection.abort()

    async def _begin(self, request: ProxyRequest, key: JournalKey, digest: str) -> None:
        """Record that a write is about to be forwarded."""
        await self.proxy.note_write(request)
        try:
            await require_note(self.journal.begin(key, digest))
        except JournalFull:
            raise journal_full_error() from None
        if request.upstream.secret is not None:
            self.proxy.on_secret_used(request.upstream.secret)

    async def _receive(
        self,
        writer: StreamWriter,
        request: ProxyRequest,
        source: StreamReader,
        connection: IdleConnection,
        name: str,
    ) -> tuple[ResponseHead, bytes, AsyncIterator[bytes]]:
        """Return the head of the response, the part of its body to store, and the rest."""
        sending = asyncio.ensure_future(self.proxy.send(source, writer, request, connection))
        try:
            response_head = await self.proxy.receive_head(
                connection.reader, request.head.method, sending
            )
            parts = read_body(connection.reader, response_head.body, self.proxy.timeouts.answer)
            return response_head, await read_up_to_limit(parts), parts
        except RESPONSE_ERRORS:
            raise unknown_effect_error(name) from None
        finally:
            await cancel_and_wait(sending)

    async def _record_result(self, key: JournalKey, entry: JournalEntry) -> str:
        """Record the response before it is returned; return what it says about the effect."""
        outcome = classify_status(entry.status)
        if outcome != UNKNOWN:
            try:
                await self.journal.end(key, entry if outcome == DONE else None)
            except OSError:
                return UNKNOWN
        return outcome


NAME = re.compile(r"[!-.0-~]{1,200}", re.ASCII)
DONE, ALREADY, REFUSED, UNKNOWN = "done", "already-done", "refused", "unknown"
FIRST_ELSEWHERE, FIRST_REFUSAL, FIRST_FAILURE, TIMED_OUT = 300, 400, 500, 408
SEE_OTHER = 303
"""Refers to the result of what was done."""
REPEAT_ELSEWHERE = frozenset({307, 308})
"""Ask to repeat the request at another place, so nothing was done."""


def effect_name_of(head: RequestHead) -> str | None:
    """Return the name of a write that is to be done once; None if it has none."""
    names = list(head.all(EFFECT))
    if not names:
        return None
    if len(names) > 1 or NAME.fullmatch(names[0]) is None:
        raise InvalidHead(
            "Rota-Effect takes one name: 1 to 200 printable characters without spaces and slashes"
        )
    if head.method in READS or head.method == "OPTIONS":
        raise InvalidHead("Rota-Effect is for writes: reads can be repeated anyway")
    return names[0]


async def read_request_body(parts: AsyncIterator[bytes]) -> bytes:
    """Read the whole body of a request; raise RequestRefused if it is too long."""
    body = await read_up_to_limit(parts)
    if len(body) > MAX_STORED_BYTES:
        raise _too_long_error()
    return body


async def read_up_to_limit(parts: AsyncIterator[bytes]) -> bytes:
    """Read a body, but stop above the limit of what is stored."""
    data = bytearray()
    async for part in parts:
        data += part
        if len(data) > MAX_STORED_BYTES:
            break
    return bytes(data)


async def chain_body(data: bytes, rest: AsyncIterator[bytes] | None = None) -> AsyncIterator[bytes]:
    """Yield data that was read already, and then the rest."""
    if data:
        yield data
    if rest is not None:
        async for part in rest:
            yield part


def check_length(head: RequestHead) -> None:
    """Raise RequestRefused if the declared length is too long to be buffered."""
    if head.body.length is not None and head.body.length > MAX_STORED_BYTES:
        raise _too_long_error()


def stored_head(entry: JournalEntry, body: bytes) -> ResponseHead:
    """Return the head of a recorded response."""
    return ResponseHead(entry.status, entry.headers, BodyLength(length=len(body)), keep_alive=True)


def buffered_request(head: RequestHead, body: bytes) -> tuple[RequestHead, StreamReader]:
    """Return a request whose body is buffered, with a reader of it."""
    reader = StreamReader()
    reader.feed_data(body)
    reader.feed_eof()
    headers = tuple(pair for pair in head.headers if pair[0] != "expect")
    return replace(head, headers=headers, body=BodyLength(length=len(body))), reader


def request_digest(request: RequestHead, upstream: Upstream, target: str, body: bytes) -> str:
    """Return a hash of a request: method, address and body."""
    address = f"{upstream.scheme}://{upstream.authority}{target}"
    line = json.dumps([request.method, address]).encode()
    return hashlib.sha256(line + b"\n" + body).hexdigest()


def check_entry(name: str, entry: JournalEntry, digest: str) -> bytes:
    """Return the recorded body; raise RequestRefused if it cannot be returned."""
    if entry.request not in {UNREADABLE, digest}:
        message = f"{name!r} was another request (method, address or body): use another name"
        raise RequestRefused(409, "effect_differs", message)
    if entry.status == STARTED:
        raise unknown_effect_error(name)
    if entry.body is None:
        message = f"{name!r} is done; its response, status {entry.status}, was too long to be kept"
        raise RequestRefused(409, "effect_done", message)
    return entry.body


def unknown_effect_error(name: str) -> RequestRefused:
    """Return the error for a write whose outcome is unknown."""
    message = (
        f"{name!r} was started and has no recorded response, so it may have happened; check there, "
        "and if it has not, repeat it under another name"
    )
    return RequestRefused(409, "effect_unknown", message)


def forgotten_effect_error(name: str) -> RequestRefused:
    """Return the error for a write whose record may have been deleted."""
    message = (
        f"this run is older than records are kept, so {name!r} may have happened before; check "
        "there, and if it has not, repeat it without Rota-Effect"
    )
    return RequestRefused(409, "effect_unknown", message)


def journal_full_error() -> RequestRefused:
    """Return the error for a space whose journal is full."""
    message = f"this space has {MAX_ENTRIES} effects, or {MAX_BYTES >> 20} MiB of their responses"
    return RequestRefused(403, "effects_full", f"{message}; they are deleted after 30 days")


def classify_status(status: int) -> str:
    """Return what a status says about an effect: done, refused (so not done), or unknown.

    Server errors and timeouts leave it open whether the request was carried out, and so do
    redirects except 303 (done) and 307 and 308 (not done).
    """
    if status < FIRST_ELSEWHERE or status == SEE_OTHER:
        return DONE
    if status < FIRST_REFUSAL:
        return REFUSED if status in REPEAT_ELSEWHERE else UNKNOWN
    return REFUSED if status < FIRST_FAILURE and status != TIMED_OUT else UNKNOWN


def _too_long_error() -> RequestRefused:
    message = f"a write with Rota-Effect may have {MAX_STORED_BYTES >> 20} MiB at most"
    return RequestRefused(413, "effect_too_long", message)


FOLDER = "effects"
MAX_STORED_BYTES = 1 << 20
"""Bytes of a request or response that are buffered and stored."""
MAX_ENTRIES = 10_000
MAX_BYTES = 256 << 20
"""Limits per space."""
RECOUNT_SECONDS = 3600.0
"""How often a space is recounted, and its old records deleted."""
STARTED = 0
UNREADABLE = ""
UNFINISHED = "~"

Found = TypeVar("Found")


class JournalFull(Exception):
    """The journal of a space is full."""


class JournalKey(NamedTuple):
    """Key of a named write: its space, and its file name."""

    space: int
    digest: str


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """The record of a named write; `body` is None if it was too long to be stored."""

    request: str
    status: int = STARTED
    headers: Headers = ()
    body: bytes | None = b""


@dataclass(slots=True)
class _SpaceUsage:
    """Number and size of a space's records."""

    names: int
    size: int
    at: float


def journal_key(space: int, scope: str, name: str) -> JournalKey:
    """Return the key of a name, which counts for one run of one space."""
    return JournalKey(space, hashlib.sha256(f"{scope}\n{name}".encode()).hexdigest())


class WriteJournal:
    """The records in a gateway's folder; disk operations run one at a time in a thread."""

    def __init__(self, folder: str, clock: Callable[[], float]) -> None:
        self._folder = os.path.join(folder, FOLDER)  # noqa: PTH118
        self._clock = clock
        self._disk_lock = asyncio.Lock()
        self._locks: WeakValueDictionary[JournalKey, asyncio.Lock] = WeakValueDictionary()
        self._usage: dict[int, _SpaceUsage] = {}
        self._reserved: Counter[int] = Counter()

    def open(self) -> None:
        """Create the folder, and delete old records of all spaces."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        for entry in tuple(os.scandir(self._folder)):
            if entry.is_dir(follow_symlinks=False):
                delete_old_files(entry.path)

    def lock(self, key: JournalKey) -> asyncio.Lock:
        """Return the lock under which requests with the same key run one after the other."""
        return self._locks.setdefault(key, asyncio.Lock())

    def is_expired(self, since: float | None) -> bool:
        """Whether records of a run's earlier attempts may have been deleted."""
        return since is not None and self._clock() - since > RETENTION_SECONDS

    async def find(self, key: JournalKey) -> JournalEntry | None:
        """Return the record of a key; raises OSError if it cannot be read."""
        return await self._run_to_end(lambda: self._read(key))

    async def begin(self, key: JournalKey, request: str) -> None:
        """Record the start of a write; after JournalFull or OSError it must not be sent."""
        self._reserved[key.space] += 1
        try:
            await self._run_to_end(lambda: self._begin(key, request))
        except BaseException:
            self._reserved[key.space] -= 1
            raise

    async def end(self, key: JournalKey, entry: JournalEntry | None) -> None:
        """Record the result of a write; None if it has not happened."""
        await self._run_to_end(
            lambda: self._delete(key) if entry is None else self._write(key, entry)
        )

    def close(self, key: JournalKey) -> None:
        """Release the space reserved for the response of a write."""
        self._reserved[key.space] -= 1

    async def _run_to_end(self, work: Callable[[], Found]) -> Found:
        """Run a disk operation to its end, even if the caller is cancelled."""
        async with self._disk_lock:
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
            record = json.loads(first)
            status, stored = int(record["status"]), bool(record["kept"])
            if status != STARTED and stored and len(body) != int(record["length"]):
                return JournalEntry(UNREADABLE)
            headers = tuple((str(name), str(value)) for name, value in record["headers"])
            return JournalEntry(str(record["request"]), status, headers, body if stored else None)
        except (ValueError, KeyError, TypeError):
            return JournalEntry(UNREADABLE)

    def _begin(self, key: JournalKey, request: str) -> None:
        usage = self._count(key.space)
        reserved = self._reserved[key.space] * MAX_STORED_BYTES
        if usage.names >= MAX_ENTRIES or usage.size + reserved > MAX_BYTES:
            raise JournalFull
        try:
            self._write(key, JournalEntry(request))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(self._path(key))  # noqa: PTH108
            self._usage.pop(key.space, None)
            raise
        usage.names += 1

    def _write(self, key: JournalKey, entry: JournalEntry) -> None:
        record = {
            "request": entry.request,
            "status": entry.status,
            "headers": entry.headers,
            "kept": entry.body is not None,
            "length": len(entry.body or b""),
        }
        data = json.dumps(record).encode() + b"\n" + (entry.body or b"")
        write_durably(self._path(key), data)
        if key.space in self._usage:
            self._usage[key.space].size += len(data)

    def _delete(self, key: JournalKey) -> None:
        path = self._path(key)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108
        sync_folder(os.path.dirname(path))  # noqa: PTH120
        if key.space in self._usage:
            self._usage[key.space].names -= 1

    def _count(self, space: int) -> _SpaceUsage:
        """Return number and size of a space's records, recounted periodically."""
        now = self._clock()
        usage = self._usage.get(space)
        if usage is not None and 0 <= now - usage.at < RECOUNT_SECONDS:
            return usage
        folder = os.path.join(self._folder, str(space))  # noqa: PTH118
        if not os.path.isdir(folder):  # noqa: PTH112
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
            sync_folder(os.path.dirname(self._folder))  # noqa: PTH120
            sync_folder(self._folder)
        sizes = []
        for entry in tuple(os.scandir(folder)):
            found = entry.stat(follow_symlinks=False)
            if entry.name.endswith(UNFINISHED) or found.st_mtime < now - RETENTION_SECONDS:
                os.unlink(entry.path)  # noqa: PTH108
            else:
                sizes.append(found.st_size)
        self._usage[space] = usage = _SpaceUsage(len(sizes), sum(sizes), now)
        return usage

    def _path(self, key: JournalKey) -> str:
        return os.path.join(self._folder, str(key.space), key.digest)  # noqa: PTH118
