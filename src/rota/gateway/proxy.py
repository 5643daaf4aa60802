"""Forwards a request to its upstream, and the response back."""

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
    framed,
    line_to,
    parts_of,
    read_response_head,
    upstream_headers,
    write_body,
    written,
)
from rota.gateway.upstreams import Upstream, fault_in_addresses

END = b"\r\n\r\n"
SWITCHING = 101
FIRST_FINAL = 200
MAX_INTERIM = 20

Found = TypeVar("Found")


class ProxyTimeouts(NamedTuple):
    """How long, in seconds, the gateway waits for whom."""

    idle: float = 300.0
    head: float = 15.0
    body: float = 60.0
    answer: float = 900.0
    stall: float = 120.0
    parting: float = 2.0


class ProxyRequest(NamedTuple):
    """Who asks where for what."""

    asking: RequestHead
    permit: Grant
    upstream: Upstream
    target: str

    def check_size(self) -> None:
        """Refuse what is known to be more than the attempt may still send."""
        length = self.asking.body.length
        if length is not None and length > self.permit.bytes_left:
            raise RequestRefused(
                413, "budget_spent", "this attempt may not send so many bytes any more"
            )


@dataclass
class Proxy:
    """What requests are carried out with."""

    reach: UpstreamDialer
    used: Callable[[str], None]
    """Told which secret has been shown."""
    writing: Callable[[str], Awaitable[None]]
    """Told which attempt is about to write, before that is passed on."""
    waits: ProxyTimeouts = field(default_factory=ProxyTimeouts)

    async def plain(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        request: ProxyRequest,
        begun: asyncio.Event,
    ) -> bool:
        """Carry out a request, its answer streamed; false if the connection is to end."""
        asking, permit, upstream, _ = request
        permit.ask()
        out = permit.take(upstream.name, time.monotonic())
        if out is None:
            out = await self.connect(upstream)
        if upstream.secret is not None:
            self.used(upstream.secret)
        good = False
        sending = asyncio.ensure_future(self._pass_on(reader, writer, request, out))
        try:
            answering = await self.answer(out.reader, asking.method, sending)
            begun.set()
            stays = asking.stays and _was_whole(sending)
            parts = parts_of(out.reader, answering.body, self.waits.answer)
            await self.hand_back(writer, request, answering, parts, stays=stays)
            good = answering.stays and _was_whole(sending)
            return stays
        finally:
            await given_up(sending)
            if good:
                permit.keep(upstream.name, IdleConnection(out.reader, out.writer, time.monotonic()))
            else:
                out.drop()

    async def connect(self, upstream: Upstream) -> IdleConnection:
        """Return a new connection."""
        return IdleConnection(*await self.reach.connect(upstream), since=0.0)

    async def note_write(self, request: ProxyRequest) -> None:
        """Note that a request that may have effects is about to be passed on."""
        if request.upstream.is_write(request.asking.method):
            await noted(self.writing(request.permit.name))

    async def _pass_on(
        self, reader: StreamReader, writer: StreamWriter, request: ProxyRequest, out: IdleConnection
    ) -> bool:
        await self.note_write(request)
        return await self.send(reader, writer, request, out)

    async def send(
        self, reader: StreamReader, writer: StreamWriter, request: ProxyRequest, out: IdleConnection
    ) -> bool:
        """Send a request on, its body as it comes; false if the upstream hung up before its end."""
        asking, permit, upstream, target = request
        own = (
            ("host", upstream.authority),
            *upstream_headers(asking, upstream.passed, upstream.headers),
        )
        length = () if asking.body.empty and asking.method == "GET" else framed(asking.body)
        head = written(f"{asking.method} {target} HTTP/1.1", (*own, *length))
        try:
            await write_body(out.writer, head, self.waits.stall)
            if not asking.body.empty:
                await self.go_on(writer, asking)
                parts = parts_of(reader, asking.body, self.waits.body)
                await copy_body(parts, out.writer, asking.body, permit.carry, self.waits.stall)
        except ConnectionError:
            if not out.writer.is_closing():
                raise  # the program is gone; an upstream that hangs up may still have said why
            return False
        return True

    async def hand_back(
        self,
        writer: StreamWriter,
        request: ProxyRequest,
        answering: ResponseHead,
        parts: AsyncIterator[bytes],
        *more: tuple[str, str],
        stays: bool,
    ) -> None:
        """Tell a program an answer, and what is said beside it."""
        told = (*client_headers(answering), *more, *_framed(request.asking, answering))
        ends = () if stays else (("connection", "close"),)
        head = written(f"HTTP/1.1 {answering.status} ", (*told, *ends))
        await write_body(writer, head, self.waits.stall)
        if not answering.body.empty:
            await copy_body(parts, writer, answering.body, request.permit.carry, self.waits.stall)

    async def go_on(self, writer: StreamWriter, asking: RequestHead) -> None:
        """Tell who waits for that to send the body."""
        if "100-continue" in [value.lower() for value in asking.all("expect")]:
            await write_body(writer, b"HTTP/1.1 100 Continue\r\n\r\n", self.waits.stall)

    async def answer(
        self, reader: StreamReader, method: str, sending: asyncio.Future[bool]
    ) -> ResponseHead:
        """Return the head of the answer, which may come before all was sent."""
        hearing = asyncio.ensure_future(self._answer_head(reader, method))
        try:
            both: set[asyncio.Future[Any]] = {hearing, sending}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                await sending
            return await hearing
        finally:
            await given_up(hearing)

    async def _answer_head(self, reader: StreamReader, method: str) -> ResponseHead:
        try:
            for _ in range(MAX_INTERIM):
                async with Deadline(self.waits.answer):
                    answering = read_response_head(await reader.readuntil(END), method)
                if answering.status >= FIRST_FINAL:
                    return answering
                if answering.status == SWITCHING:
                    break
        except TimeoutError:
            raise RequestRefused(
                504, "upstream_silent", "the upstream did not answer in time"
            ) from None
        except (InvalidHead, OSError, EOFError, asyncio.LimitOverrunError):
            pass
        raise RequestRefused(
            502, "upstream_broken", "the upstream hung up, or gave no answer of HTTP"
        )


async def noted(noting: Awaitable[Found]) -> Found:
    """Wait for a note on disk, without which nothing is passed on."""
    try:
        return await noting
    except OSError as error:
        message = f"a write that cannot be noted is not passed on: {error.strerror}"
        raise RequestRefused(503, "not_noted", message) from None


async def given_up(task: asyncio.Future[Any]) -> None:
    """End a part of an exchange that is over, whatever became of it."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


def _was_whole(sending: asyncio.Future[bool]) -> bool:
    """Whether a request was sent to its end, so that what comes next is another one."""
    return sending.done() and sending.exception() is None and sending.result()


def _framed(asking: RequestHead, answering: ResponseHead) -> tuple[tuple[str, str], ...]:
    """Return how long the answer is said to be; what never has a body says what it was told."""
    if asking.method == "HEAD":
        return tuple(pair for pair in answering.headers if pair[0] == "content-length")
    if answering.status in {204, 304}:
        return ()
    return framed(answering.body)


REMEMBERED_SECONDS = 30.0
CONNECT_SECONDS = 10.0

Lookup = Callable[[str, int], Awaitable[list[str]]]


class UpstreamUnreachable(Exception):
    """An upstream cannot be spoken to, or must not be."""


async def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class UpstreamDialer:
    """Opens connections to upstreams."""

    def __init__(self, lookup: Lookup = look_up) -> None:
        self._lookup = lookup
        self._known: dict[str, tuple[float, list[str]]] = {}

    async def connect(self, upstream: Upstream) -> tuple[StreamReader, StreamWriter]:
        """Return a connection to an address that was looked at, whatever the name says later."""
        why = "nothing answers there"
        trust = _trust() if upstream.scheme == "https" else None
        for address in await self._addresses(upstream):
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await line_to(address, upstream.port, trust=trust, host=upstream.host)
            except TimeoutError:
                why = "it does not answer in time"
            except ssl.SSLError:
                why = "its certificate is not to be trusted, or it speaks no TLS"
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
            self._known[upstream.host] = (now + REMEMBERED_SECONDS, addresses)
        wrong = None if upstream.local and addresses else fault_in_addresses(addresses)
        if wrong is not None:
            self._known.pop(upstream.host, None)
            raise UpstreamUnreachable(f"the upstream {upstream.name!r} is not spoken to: {wrong}")
        return addresses


@cache
def _trust() -> ssl.SSLContext:
    made = ssl.create_default_context()
    made.set_alpn_protocols(["http/1.1"])
    return made


class RequestRefused(Exception):
    """A request is not carried out, and this is what its sender is told."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def refusal(turned: RequestRefused) -> bytes:
    """Return the answer to a request that is not carried out, as clients of every provider read."""
    error = {"type": turned.code, "code": turned.code, "message": f"Rota: {turned}"}
    body = json.dumps({"type": "error", "error": error}).encode()
    headers = (
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        ("x-should-retry", "true" if turned.status >= 500 else "false"),  # noqa: PLR2004
        ("connection", "close"),
    )
    return written(f"HTTP/1.1 {turned.status} ", headers) + body
