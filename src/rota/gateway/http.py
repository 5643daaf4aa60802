"""HTTP/1.1 at the gateway: heads, bodies and connections.

What two programs could read in two ways is refused, so that nothing is smuggled past the list of
what may be asked for.
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
"""By what a program names a write that is to happen once; between it and the gateway alone."""
HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length"),
        EFFECT,
    }
)
PASSED = frozenset(
    {
        *("accept", "accept-encoding", "accept-language", "content-type", "content-encoding"),
        *("idempotency-key", "if-match", "if-none-match", "if-modified-since", "range"),
        *("user-agent", "x-app", "x-client-request-id", "x-request-id", "x-goog-api-client"),
        *("openai-beta", "originator", "session_id", "conversation_id"),
    }
)
PASSED_KINDS = ("anthropic-", "x-stainless-", "x-claude-", "x-codex-")
"""All that an upstream hears of what a program says about itself; no key can stand there."""
_WHOSE = re.compile("key|token|auth|secret|credential|organization|workspace")
"""What a header of those kinds is called that may say in whose name is asked; that is said here."""
KEPT_BACK = frozenset({"set-cookie", "alt-svc", "strict-transport-security", "server-timing"})


class InvalidHead(Exception):
    """What was sent is no request, or could be two."""


@dataclass(frozen=True, slots=True)
class BodyLength:
    """How long a body is: so many bytes, in chunks, or until the end of the connection."""

    length: int | None = 0
    chunked: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is none."""
        return self.length == 0 and not self.chunked


NO_BODY = BodyLength()


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request."""

    method: str
    target: str
    headers: Headers
    body: BodyLength
    stays: bool
    """Whether the connection may be used again."""

    def all(self, name: str) -> Iterator[str]:
        """Yield every value of a header."""
        return (value for known, value in self.headers if known == name)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The head of an answer."""

    status: int
    headers: Headers
    body: BodyLength
    stays: bool


def read_request_head(head: bytes) -> RequestHead:
    """Return the head of a request."""
    first, headers = _split(head)
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise InvalidHead("the first line is no request of HTTP/1.1")
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:
        raise InvalidHead("the host is 127.0.0.1, and nothing else is to be reached by its name")
    body = _body_of(headers)
    if body is None:
        body = NO_BODY
    stays = found[3] == b"1" and "close" not in _listed(headers, "connection")
    return RequestHead(found[1].decode(), found[2].decode(), headers, body, stays)


def read_response_head(head: bytes, method: str) -> ResponseHead:
    """Return the head of an answer to a method."""
    first, headers = _split(head)
    found = _STATUS.fullmatch(first)
    if found is None:
        raise InvalidHead("the first line is no answer of HTTP/1.1")
    status = int(found[2])
    body = _body_of(headers) or BodyLength(length=None)
    if method == "HEAD" or status in {204, 304} or status < 200:  # noqa: PLR2004
        body = NO_BODY
    ends = body.length is None and not body.chunked
    stays = found[1] == b"1" and not ends and "close" not in _listed(headers, "connection")
    return ResponseHead(status, headers, body, stays)


def upstream_headers(asking: RequestHead, also: Iterable[str], own: Headers) -> Headers:
    """Return what an upstream is told: what may be said to it, and what is said for a program."""
    more = frozenset(also)
    taken = {name.lower() for name, _ in own}
    told = [
        (name, value)
        for name, value in asking.headers
        if (name in PASSED or name in more or _is_of_a_kind(name))
        and name not in taken
        and name not in HOP_BY_HOP
    ]
    return (*told, *own)


def _is_of_a_kind(name: str) -> bool:
    return name.startswith(PASSED_KINDS) and _WHOSE.search(name) is None


def client_headers(answering: ResponseHead) -> Headers:
    """Return what a program is told of an answer."""
    named = _listed(answering.headers, "connection")
    left_out = HOP_BY_HOP | KEPT_BACK | frozenset(named)
    return tuple(pair for pair in answering.headers if pair[0] not in left_out)


def framed(body: BodyLength) -> Headers:
    """Return the header that says how long a body is."""
    if body.chunked or body.length is None:
        return (("transfer-encoding", "chunked"),)
    return (("content-length", str(body.length)),)


def written(first: str, headers: Headers) -> bytes:
    """Return a head as it is sent."""
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
            raise InvalidHead("a header is not as it must be")
        headers.append((found[1].decode().lower(), found[2].strip(b" \t").decode("latin-1")))
    return lines[0], tuple(headers)


def _body_of(headers: Headers) -> BodyLength | None:
    """Return how long a body is; None if nothing says so."""
    lengths = [value for name, value in headers if name == "content-length"]
    codings = [value.lower() for name, value in headers if name == "transfer-encoding"]
    if codings:
        if codings != ["chunked"] or lengths:
            raise InvalidHead("how long the body is can be read in two ways")
        return BodyLength(length=None, chunked=True)
    if not lengths:
        return None
    text = lengths[0]
    if len(lengths) > 1 or not (text.isascii() and text.isdigit()) or len(text) > MAX_NUMBER:
        raise InvalidHead("how long the body is can be read in two ways")
    return BodyLength(length=int(text))


def _listed(headers: Headers, name: str) -> list[str]:
    said = ",".join(value for known, value in headers if known == name)
    return [word.strip().lower() for word in said.split(",")]


CHUNK = 64 * 1024
_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})\r\n")


async def parts_of(reader: StreamReader, body: BodyLength, seconds: float) -> AsyncIterator[bytes]:
    """Yield a body as it comes; raise TimeoutError when nothing comes for so long."""
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
            raise InvalidHead("a chunk does not say how long it is")
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
                raise InvalidHead("a chunk is longer than it says")
    async with Deadline(seconds):
        if await reader.readexactly(2) != b"\r\n":
            raise InvalidHead("nothing may follow the last chunk")


async def copy_body(
    parts: AsyncIterator[bytes],
    writer: StreamWriter,
    body: BodyLength,
    count: Callable[[int], None],
    seconds: float,
) -> None:
    """Send a body on, each part counted first; raise TimeoutError when nobody takes it."""
    chunked = body.chunked or body.length is None
    async for part in parts:
        count(len(part))
        await write_body(writer, b"%x\r\n%b\r\n" % (len(part), part) if chunked else part, seconds)
    if chunked:
        await write_body(writer, b"0\r\n\r\n", seconds)


async def write_body(writer: StreamWriter, data: bytes, seconds: float) -> None:
    """Send bytes, and wait while too many of them are on the way."""
    writer.write(data)
    async with Deadline(seconds):
        await writer.drain()


async def part_from(
    reader: StreamReader, writer: StreamWriter, parting: float, stall: float
) -> None:
    """End what is said, let the other side run out, and let it take what was said, for so long.

    Closing on bytes that nobody read resets the connection, and whoever was sending them learns
    that instead of the answer. What nobody takes would be held, when it is closed, for ever.
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


async def line_to(
    address: str, port: int, *, trust: SSLContext | None, host: str
) -> tuple[StreamReader, StreamWriter]:
    """Return a connection to an address; with `trust`, it must prove that it is the host."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    line = UpstreamConnection(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    line.setblocking(False)
    try:
        await loop.sock_connect(line, (address, port))
    except BaseException:
        line.close()
        raise
    reader = UpstreamProtocol(limit=CHUNK, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(
        lambda: protocol, sock=line, ssl=trust, server_hostname=host if trust else None
    )
    return reader, StreamWriter(transport, protocol, reader, loop)


class UpstreamConnection(socket.socket):
    """A socket that tells of a hang-up to who reads, after all that was said, not to who sends.

    asyncio closes a connection at the first fault of either, with what nobody has read yet.
    """

    _fault: ConnectionError | None = None

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """Send; what nobody takes any more counts as sent."""
        try:
            return super().send(data, flags)
        except ConnectionError as error:
            self._fault = error
            return memoryview(data).nbytes

    def sendmsg(self, buffers: Iterable[ReadableBuffer], /, *_: object) -> int:
        """Send; what nobody takes any more counts as sent."""
        held = list(buffers)
        try:
            return super().sendmsg(held)
        except ConnectionError as error:
            self._fault = error
            return sum(memoryview(data).nbytes for data in held)

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Return what was said."""
        data = super().recv(size, flags)
        self._check(len(data))
        return data

    def recv_into(self, buffer: WriteableBuffer, size: int = 0, flags: int = 0, /) -> int:
        """Take what was said."""
        count = super().recv_into(buffer, size, flags)
        self._check(count)
        return count

    def _check(self, count: int) -> None:
        if not count and self._fault is not None:
            raise self._fault


class UpstreamProtocol(StreamReader):
    """Gives all that was said before a fault, and then the fault."""

    _ended = False
    _fault: Exception | None = None

    def feed_eof(self) -> None:
        """Take note that all was said."""
        self._ended = True
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        """Take note of a fault, which is none after all was said."""
        self._fault = None if self._ended else exc
        super().feed_eof()

    async def read(self, n: int = -1) -> bytes:
        """Return what was said; nothing, when all was."""
        part = await super().read(n)
        if not part and self._fault is not None:
            raise self._fault
        return part


class Deadline:
    """Raises TimeoutError where a block takes longer than so many seconds.

    A loop that was held up finds the deadline past in the same turn in which it reads what came
    before it. `asyncio.timeout` would cancel the reader, which has not been resumed yet; this waits
    for one more turn, in which the reader goes first.
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
