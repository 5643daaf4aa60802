"""Forwards requests to upstreams, and returns their responses."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeVar

from rota.gateway.grants import Grant, IdleConnection
from rota.gateway.http import (
    Deadline,
    InvalidHead,
    RequestHead,
    ResponseHead,
    client_headers,
    copy_body,
    encode_head,
    length_headers,
    open_connection,
    read_body,
    read_response_head,
    upstream_headers,
    write_body,
)
from rota.gateway.upstreams import Upstream, addresses_error

END = b"\r\n\r\n"
SWITCHING = 101
FIRST_FINAL = 200
MAX_INTERIM = 20

Found = TypeVar("Found")


class ProxyTimeouts(NamedTuple):
    """Time limits of the gateway in seconds."""

    idle: float = 300.0
    head: float = 15.0
    body: float = 60.0
    answer: float = 900.0
    stall: float = 120.0
    close: float = 2.0


class ProxyRequest(NamedTuple):
    """A request with its grant, upstream and target path."""

    head: RequestHead
    grant: Grant
    upstream: Upstream
    target: str

    def check_size(self) -> None:
        """Raise RequestRefused if the body exceeds the rest of the attempt's budget."""
        length = self.head.body.length
        if length is not None and length > self.grant.bytes_left:
            raise RequestRefused(
                413, "budget_spent", "this attempt may not send that many bytes any more"
            )


@dataclass
class Proxy:
    """Forwards requests."""

    dialer: UpstreamDialer
    on_secret_used: Callable[[str], None]
    """Called with the name of a secret that is sent."""
    on_write: Callable[[str], Awaitable[None]]
    """Called with the name of an attempt before its write is forwarded."""
    timeouts: ProxyTimeouts = field(default_factory=ProxyTimeouts)

    async def forward(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        request: ProxyRequest,
        responding: asyncio.Event,
    ) -> bool:
        """Forward a request and stream the response; false if the connection is to be closed."""
        request_head, grant, upstream, _ = request
        grant.count_request()
        connection = grant.take_idle(upstream.name, time.monotonic())
        if connection is None:
            connection = await self.connect(upstream)
        if upstream.secret is not None:
            self.on_secret_used(upstream.secret)
        reusable = False
        sending = asyncio.ensure_future(self._send_noted(reader, writer, request, connection))
        try:
            response_head = await self.receive_head(connection.reader, request_head.method, sending)
            responding.set()
            keep_alive = request_head.keep_alive and _was_sent(sending)
            parts = read_body(connection.reader, response_head.body, self.timeouts.answer)
            await self.respond(writer, request, response_head, parts, keep_alive=keep_alive)
            reusable = response_head.keep_alive and _was_sent(sending)
            return keep_alive
        finally:
            await cancel_and_wait(sending)
            if reusable:
                grant.keep_idle(
                    upstream.name,
                    IdleConnection(connection.reader, connection.writer, time.monotonic()),
                )
            else:
                connection.abort()

    async def connect(self, upstream: Upstream) -> IdleConnection:
        """Open a new connection."""
        return IdleConnection(*await self.dialer.connect(upstream), since=0.0)

    async def note_write(self, request: ProxyRequest) -> None:
        """Record that a write is about to be forwarded."""
        if request.upstream.is_write(request.head.method):
            await require_note(self.on_write(request.grant.name))

    async def _send_noted(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        request: ProxyRequest,
        connection: IdleConnection,
    ) -> bool:
        await self.note_write(request)
        return await self.send(reader, writer, request, connection)

    async def send(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        request: ProxyRequest,
        connection: IdleConnection,
    ) -> bool:
        """Send a request, streaming its body; false if the upstream disconnected before its end."""
        request_head, grant, upstream, target = request
        own = (
            ("host", upstream.authority),
            *upstream_headers(request_head, upstream.passed, upstream.headers),
        )
        length = (
            ()
            if request_head.body.empty and request_head.method == "GET"
            else length_headers(request_head.body)
        )
        head = encode_head(f"{request_head.method} {target} HTTP/1.1", (*own, *length))
        try:
            await write_body(connection.writer, head, self.timeouts.stall)
            if not request_head.body.empty:
                await self.send_continue(writer, request_head)
                parts = read_body(reader, request_head.body, self.timeouts.body)
                await copy_body(
                    parts,
                    connection.writer,
                    request_head.body,
                    grant.count_bytes,
                    self.timeouts.stall,
                )
        except ConnectionError:
            if not connection.writer.is_closing():
                raise  # the program has disconnected; an upstream may still have sent a response
            return False
        return True

    async def respond(
        self,
        writer: StreamWriter,
        request: ProxyRequest,
        response_head: ResponseHead,
        parts: AsyncIterator[bytes],
        *more: tuple[str, str],
        keep_alive: bool,
    ) -> None:
        """Return a response to the program, with extra headers."""
        response_headers = (
            *client_headers(response_head),
            *more,
            *_response_length(request.head, response_head),
        )
        ends = () if keep_alive else (("connection", "close"),)
        head = encode_head(f"HTTP/1.1 {response_head.status} ", (*response_headers, *ends))
        await write_body(writer, head, self.timeouts.stall)
        if not response_head.body.empty:
            await copy_body(
                parts, writer, response_head.body, request.grant.count_bytes, self.timeouts.stall
            )

    async def send_continue(self, writer: StreamWriter, request_head: RequestHead) -> None:
        """Send 100 Continue if the program waits for it."""
        if "100-continue" in [value.lower() for value in request_head.all("expect")]:
            await write_body(writer, b"HTTP/1.1 100 Continue\r\n\r\n", self.timeouts.stall)

    async def receive_head(
        self, reader: StreamReader, method: str, sending: asyncio.Future[bool]
    ) -> ResponseHead:
        """Return the head of the response, which may arrive before the request is sent."""
        receiving = asyncio.ensure_future(self._read_final_head(reader, method))
        try:
            both: set[asyncio.Future[Any]] = {receiving, sending}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                await sending
            return await receiving
        finally:
            await cancel_and_wait(receiving)

    async def _read_final_head(self, reader: StreamReader, method: str) -> ResponseHead:
        try:
            for _ in range(MAX_INTERIM):
                async with Deadline(self.timeouts.answer):
                    response_head = read_response_head(await reader.readuntil(END), method)
                if response_head.status >= FIRST_FINAL:
                    return response_head
                if response_head.status == SWITCHING:
                    break
        except TimeoutError:
            raise RequestRefused(
                504, "upstream_silent", "the upstream did not answer in time"
            ) from None
        except (InvalidHead, OSError, EOFError, asyncio.LimitOverrunError):
            pass
        raise RequestRefused(
            502, "upstream_broken", "the upstream disconnected, or sent no valid HTTP response"
        )


async def require_note(writing: Awaitable[Found]) -> Found:
    """Wait for a record on disk; raise RequestRefused if it cannot be written."""
    try:
        return await writing
    except OSError as error:
        message = f"writes are only forwarded if they can be recorded: {error.strerror}"
        raise RequestRefused(503, "not_noted", message) from None


async def cancel_and_wait(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and ignore its result."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


def _was_sent(sending: asyncio.Future[bool]) -> bool:
    """Whether a request was sent completely, so that the connection can be reused."""
    return sending.done() and sending.exception() is None and sending.result()


def _response_length(
    request_head: RequestHead, response_head: ResponseHead
) -> tuple[tuple[str, str], ...]:
    """Return the length headers of a response; without a body, those of the upstream."""
    if request_head.method == "HEAD":
        return tuple(pair for pair in response_head.headers if pair[0] == "content-length")
    if response_head.status in {204, 304}:
        return ()
    return length_headers(response_head.body)


CACHE_SECONDS = 30.0
CONNECT_SECONDS = 10.0

Lookup = Callable[[str, int], Awaitable[list[str]]]


class UpstreamUnreachable(Exception):
    """An upstream cannot be reached, or must not be."""


async def resolve(host: str, port: int) -> list[str]:
    """Resolve the addresses of a host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class UpstreamDialer:
    """Opens connections to upstreams."""

    def __init__(self, lookup: Lookup = resolve) -> None:
        self._lookup = lookup
        self._known: dict[str, tuple[float, list[str]]] = {}

    async def connect(self, upstream: Upstream) -> tuple[StreamReader, StreamWriter]:
        """Connect to an address that was checked, whatever the name resolves to later."""
        why = "nothing answers there"
        trust = _tls_context() if upstream.scheme == "https" else None
        for address in await self._addresses(upstream):
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await open_connection(
                        address, upstream.port, tls=trust, host=upstream.host
                    )
            except TimeoutError:
                why = "it does not answer in time"
            except ssl.SSLError:
                why = "its certificate is not trusted, or it does not support TLS"
            except OSError:
                why = "nothing answers there"
        self._known.pop(upstream.host, None)
        raise UpstreamUnreachable(f"the upstream {upstream.name!r} cannot be reached: {why}")

    async def _addresses(self, upstream: Upstream) -> list[str]:
        now = time.monotonic()
        until, addresses = self._known.get(upstream.host, (0.0, []))
        if now > until:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    addresses = await self._lookup(upstream.host, upstream.port)
            except (OSError, UnicodeError, TimeoutError):
                addresses = []
            self._known[upstream.host] = (now + CACHE_SECONDS, addresses)
        problem = None if upstream.local and addresses else addresses_error(addresses)
        if problem is not None:
            self._known.pop(upstream.host, None)
            raise UpstreamUnreachable(f"the upstream {upstream.name!r} is not allowed: {problem}")
        return addresses


@cache
def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class RequestRefused(Exception):
    """A request is rejected, with the error for its sender."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def error_response(refused: RequestRefused) -> bytes:
    """Return an error response in a form that clients of all providers understand."""
    error = {"type": refused.code, "code": refused.code, "message": f"Rota: {refused}"}
    body = json.dumps({"type": "error", "error": error}).encode()
    headers = (
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        ("x-should-retry", "true" if refused.status >= 500 else "false"),  # noqa: PLR2004
        ("connection", "close"),
    )
    return encode_head(f"HTTP/1.1 {refused.status} ", headers) + body
