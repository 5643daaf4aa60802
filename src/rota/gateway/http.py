"""HTTP/1.1 for the gateway: heads, bodies and connections.

Ambiguous requests are rejected, so that no request can be smuggled past the allowed paths.
"""

from __future__ import annotations

import asyncio
import re
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from ssl import SSLContext
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

MAX_HEAD = 64 * 1024
MAX_HEADERS = 128
MAX_NUMBER = 15

_REQUEST = re.compile(rb"([A-Z]{3,10}) ([!-~]{1,8192}) HTTP/1\.([01])")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t -~\x80-\xff]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_HOST = re.compile(r"(?:127\.0\.0\.1|localhost)(?::[0-9]{1,5})?", re.ASCII)

Headers = tuple[tuple[str, str], ...]

EFFECT = "rota-effect"
"""Header that names a write to be done once; it is not forwarded."""
HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length"),
        EFFECT,
    }
)
FORWARDED_HEADERS = frozenset(
    {
        *("accept", "accept-encoding", "accept-language", "content-type", "content-encoding"),
        *("idempotency-key", "if-match", "if-none-match", "if-modified-since", "range"),
        *("user-agent", "x-app", "x-client-request-id", "x-request-id", "x-goog-api-client"),
        *("openai-beta", "originator", "session_id", "conversation_id"),
    }
)
FORWARDED_PREFIXES = ("anthropic-", "x-stainless-", "x-claude-", "x-codex-")
"""Headers with these prefixes are forwarded too; they carry no keys."""
_IDENTITY_HEADER = re.compile("key|token|auth|secret|credential|organization|workspace")
"""Headers that may select an account are not forwarded; the gateway decides that."""
DROPPED_HEADERS = frozenset({"set-cookie", "alt-svc", "strict-transport-security", "server-timing"})


class InvalidHead(Exception):
    """A malformed or ambiguous head."""


@dataclass(frozen=True, slots=True)
class BodyLength:
    """Length of a body: a number of bytes, in chunks, or until the connection ends."""

    length: int | None = 0
    chunked: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is no body."""
        return self.length == 0 and not self.chunked


NO_BODY = BodyLength()


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request."""

    method: str
    target: str
    headers: Headers
    body: BodyLength
    keep_alive: bool
    """Whether the connection may be reused."""

    def all(self, name: str) -> Iterator[str]:
        """Yield every value of a header."""
        return (value for known, value in self.headers if known == name)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of a response."""

    status: int
    headers: Headers
    body: BodyLength
    keep_alive: bool


def read_request_head(head: bytes) -> RequestHead:
    """Parse the head of a request."""
    first, headers = _split(head)
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise InvalidHead("the first line is not an HTTP/1.1 request")
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:
        raise InvalidHead("the Host header must be 127.0.0.1 or localhost")
    body = _body_length(headers)
    if body is None:
        body = NO_BODY
    keep_alive = found[3] == b"1" and "close" not in _list_header(headers, "connection")
    return RequestHead(found[1].decode(), found[2].decode(), headers, body, keep_alive)


def read_response_head(head: bytes, method: str) -> ResponseHead:
    """Parse the head of a response to a method."""
    first, headers = _split(head)
    found = _STATUS.fullmatch(first)
    if found is None:
        raise InvalidHead("the first line is not an HTTP/1.1 response")
    status = int(found[2])
    body = _body_length(headers) or BodyLength(length=None)
    if method == "HEAD" or status in {204, 304} or status < 200:  # noqa: PLR2004
        body = NO_BODY
    ends = body.length is None and not body.chunked
    keep_alive = (
        found[1] == b"1" and not ends and "close" not in _list_header(headers, "connection")
    )
    return ResponseHead(status, headers, body, keep_alive)


def upstream_headers(request: RequestHead, extra: Iterable[str], own: Headers) -> Headers:
    """Return the headers for an upstream: allowed ones of the request, and the gateway's own."""
    extra_names = frozenset(extra)
    overridden = {name.lower() for name, _ in own}
    forwarded = [
        (name, value)
        for name, value in request.headers
        if (name in FORWARDED_HEADERS or name in extra_names or _has_forwarded_prefix(name))
        and name not in overridden
        and name not in HOP_BY_HOP
    ]
    return (*forwarded, *own)


def _has_forwarded_prefix(name: str) -> bool:
    return name.startswith(FORWARDED_PREFIXES) and _IDENTITY_HEADER.search(name) is None


def client_headers(response: ResponseHead) -> Headers:
    """Return the headers of a response that are passed to the program."""
    named = _list_header(response.headers, "connection")
    left_out = HOP_BY_HOP | DROPPED_HEADERS | frozenset(named)
    return tuple(pair for pair in response.headers if pair[0] not in left_out)


def length_headers(body: BodyLength) -> Headers:
    """Return the header with the length of a body."""
    if body.chunked or body.length is None:
        return (("transfer-encoding", "chunked"),)
    return (("content-length", str(body.length)),)


def encode_head(first: str, headers: Headers) -> bytes:
    """Encode a head."""
    lines = [first, *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _split(head: bytes) -> tuple[bytes, Headers]:
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if len(lines) > MAX_HEADERS:
        raise InvalidHead(f"there are more than {MAX_HEADERS} headers")
    headers = []
    for line in lines[1:]:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise InvalidHead("a header is malformed")
        headers.append((found[1].decode().lower(), found[2].strip(b" \t").decode("latin-1")))
    return lines[0], tuple(headers)


def _body_length(headers: Headers) -> BodyLength | None:
    """Return the length of a body; None if no header gives it."""
    lengths = [value for name, value in headers if name == "content-length"]
    codings = [value.lower() for name, value in headers if name == "transfer-encoding"]
    if codings:
        if codings != ["chunked"] or lengths:
            raise InvalidHead("the length of the body is ambiguous")
        return BodyLength(length=None, chunked=True)
    if not lengths:
        return None
    text = lengths[0]
    if len(lengths) > 1 or not (text.isascii() and text.isdigit()) or len(text) > MAX_NUMBER:
        raise InvalidHead("the length of the body is ambiguous")
    return BodyLength(length=int(text))


def _list_header(headers: Headers, name: str) -> list[str]:
    values = ",".join(value for known, value in headers if known == name)
    return [word.strip().lower() for word in values.split(",")]


CHUNK = 64 * 1024
_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})\r\n")


async def read_body(reader: StreamReader, body: BodyLength, seconds: float) -> AsyncIterator[bytes]:
    """Yield a body as it arrives; raise TimeoutError if nothing arrives for `seconds`."""
    if body.chunked:
        async for part in _chunks(reader, seconds):
            yield part
        return
    left = body.length
    while left is None or left > 0:
        async with Deadline(seconds):
            part = await reader.read(CHUNK if left is None else min(CHUNK, left))
        if not part:
            if left is None:
                return
            raise asyncio.IncompleteReadError(b"", left)
        left = None if left is None else left - len(part)
        yield part


async def _chunks(reader: StreamReader, seconds: float) -> AsyncIterator[bytes]:
    while True:
        async with Deadline(seconds):
            found = _SIZE.fullmatch(await reader.readuntil(b"\r\n"))
        if found is None:
            raise InvalidHead("a chunk has no valid length")
        left = int(found[1], 16)
        if not left:
            break
        while left:
            async with Deadline(seconds):
                part = await reader.read(min(CHUNK, left))
            if not part:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(part)
            yield part
        async with Deadline(seconds):
            if await reader.readexactly(2) != b"\r\n":
                raise InvalidHead("a chunk is longer than its length")
    async with Deadline(seconds):
        if await reader.readexactly(2) != b"\r\n":
            raise InvalidHead("there is data after the last chunk")


async def copy_body(
    parts: AsyncIterator[bytes],
    writer: StreamWriter,
    body: BodyLength,
    count: Callable[[int], None],
    seconds: float,
) -> None:
    """Forward a body, counting each part first; raise TimeoutError if it is not accepted."""
    chunked = body.chunked or body.length is None
    async for part in parts:
        count(len(part))
        await write_body(writer, b"%x\r\n%b\r\n" % (len(part), part) if chunked else part, seconds)
    if chunked:
        await write_body(writer, b"0\r\n\r\n", seconds)


async def write_body(writer: StreamWriter, data: bytes, seconds: float) -> None:
    """Send bytes, and wait while the send buffer is full."""
    writer.write(data)
    async with Deadline(seconds):
        await writer.drain()


async def close_connection(
    reader: StreamReader, writer: StreamWriter, parting: float, stall: float
) -> None:
    """Close a connection gracefully: drain what the other side sends, and let it read the response.

    Closing with unread data would reset the connection, and the sender would see that instead of
    the response. The time limits prevent waiting for a peer that never reads.
    """
    with suppress(OSError):
        writer.write_eof()
        async with Deadline(parting):
            while await reader.read(CHUNK):
                pass
    writer.close()
    with suppress(OSError):
        async with Deadline(stall):
            await writer.wait_closed()


async def open_connection(
    address: str, port: int, *, tls: SSLContext | None, host: str
) -> tuple[StreamReader, StreamWriter]:
    """Connect to an address; with TLS, its certificate must be valid for `host`."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = UpstreamConnection(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setblocking(False)
    try:
        await loop.sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    reader = UpstreamProtocol(limit=CHUNK, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(
        lambda: protocol, sock=sock, ssl=tls, server_hostname=host if tls else None
    )
    return reader, StreamWriter(transport, protocol, reader, loop)


class UpstreamConnection(socket.socket):
    """A socket that reports a broken connection to the reader, after all data, not to the sender.

    Otherwise asyncio would close the connection at the first failed send, and drop unread data.
    """

    _error: ConnectionError | None = None

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """Send; after a disconnect, data counts as sent."""
        try:
            return super().send(data, flags)
        except ConnectionError as error:
            self._error = error
            return memoryview(data).nbytes

    def sendmsg(self, buffers: Iterable[ReadableBuffer], /, *_: object) -> int:
        """Send; after a disconnect, data counts as sent."""
        held = list(buffers)
        try:
            return super().sendmsg(held)
        except ConnectionError as error:
            self._error = error
            return sum(memoryview(data).nbytes for data in held)

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Receive data; raise the stored error at its end."""
        data = super().recv(size, flags)
        self._check(len(data))
        return data

    def recv_into(self, buffer: WriteableBuffer, size: int = 0, flags: int = 0, /) -> int:
        """Receive data; raise the stored error at its end."""
        count = super().recv_into(buffer, size, flags)
        self._check(count)
        return count

    def _check(self, count: int) -> None:
        if not count and self._error is not None:
            raise self._error


class UpstreamProtocol(StreamReader):
    """A reader that delivers all data before an error."""

    _ended = False
    _error: Exception | None = None

    def feed_eof(self) -> None:
        """Note the end of the data."""
        self._ended = True
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        """Note an error; errors after the end are ignored."""
        self._error = None if self._ended else exc
        super().feed_eof()

    async def read(self, n: int = -1) -> bytes:
        """Return data; empty at its end."""
        part = await super().read(n)
        if not part and self._error is not None:
            raise self._error
        return part


class Deadline:
    """Raises TimeoutError if a block takes longer than a number of seconds.

    If the event loop was blocked, the deadline may be noticed in the same iteration as data that
    arrived before it. `asyncio.timeout` would cancel the reader before it is resumed; this class
    waits for one more iteration.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        await self._limit.__aenter__()
        self._timer = loop.call_later(self._seconds, self._limit.reschedule, loop.time())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        await self._limit.__aexit__(kind, fault, trace)
