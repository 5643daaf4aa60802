"""Serving: one connection of a program, request after request, each to an upstream it may ask."""

from __future__ import annotations

import asyncio
import json
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rota.gateway.bodies import carry, parts_of, pour
from rota.gateway.heads import (
    Answering,
    Asking,
    BadHead,
    framed,
    handed_back,
    passed_on,
    read_answering,
    read_asking,
    written,
)
from rota.gateway.permits import Permit, Spare, Spent
from rota.gateway.reaching import Reach, Unreached
from rota.gateway.upstreams import PLAIN, Upstream, clean_query

END = b"\r\n\r\n"
SWITCHING = 101
FIRST_FINAL = 200
MOST_INTERIM = 20


class Waits(NamedTuple):
    """How long, in seconds, the gateway waits for whom."""

    idle: float = 300.0
    head: float = 15.0
    body: float = 60.0
    answer: float = 900.0
    stall: float = 120.0


class Turned(Exception):
    """A request is not carried out, and this is what its sender is told."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass
class Gate:
    """What every connection is served from."""

    upstreams: Mapping[str, Upstream]
    reach: Reach
    used: Callable[[str], None]
    """Told which secret has been shown."""
    writing: Callable[[str], Awaitable[None]]
    """Told which attempt is about to write, before that is passed on."""
    waits: Waits = field(default_factory=Waits)

    async def serve(
        self, reader: StreamReader, writer: StreamWriter, find: Callable[[str], Permit | None]
    ) -> None:
        """Serve a connection until either side has enough."""
        try:
            patience = self.waits.head
            while await self._one(reader, writer, find, patience):
                patience = self.waits.idle
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()

    async def _one(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        find: Callable[[str], Permit | None],
        patience: float,
    ) -> bool:
        """Serve one request; false if the connection is to end."""
        begun = asyncio.Event()
        try:
            asking = await self._head(reader, patience)
            permit = _permit(asking, find)
            _check_protocol(asking)
            upstream, target = _target(asking, permit, self.upstreams)
            _within(asking, permit)
            return await self._exchange(reader, writer, asking, permit, upstream, target, begun)
        except Turned as turned:
            told = turned
        except BadHead as fault:
            told = Turned(400, "bad_request", str(fault))
        except asyncio.LimitOverrunError:
            told = Turned(431, "bad_request", "the head of the request is too long")
        except TimeoutError:
            told = Turned(408, "too_slow", "nothing came, or was taken, for too long")
        except Spent as fault:
            told = Turned(403, "budget_spent", str(fault))
        except Unreached as fault:
            told = Turned(502, "upstream_unreached", str(fault))
        if not begun.is_set():
            await pour(writer, refusal(told), self.waits.stall)
        return False

    async def _head(self, reader: StreamReader, patience: float) -> Asking:
        try:
            async with asyncio.timeout(patience):
                first = await reader.readexactly(1)
        except TimeoutError:
            raise EOFError from None
        try:
            async with asyncio.timeout(self.waits.head):
                return read_asking(first + await reader.readuntil(END))
        except TimeoutError:
            raise Turned(408, "too_slow", "the head of the request did not come in time") from None

    async def _exchange(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        asking: Asking,
        permit: Permit,
        upstream: Upstream,
        target: str,
        begun: asyncio.Event,
    ) -> bool:
        permit.ask()
        out = permit.take(upstream.name, time.monotonic())
        if out is None:
            out = Spare(*await self.reach.connect(upstream), since=0.0)
        if upstream.secret is not None:
            self.used(upstream.secret)
        good = False
        sending = asyncio.ensure_future(
            self._send(reader, writer, asking, permit, out, upstream, target)
        )
        try:
            answering = await self._answer(out.reader, asking.method, sending)
            begun.set()
            stays = asking.stays and sending.done()
            told = (*handed_back(answering), *_framed(asking, answering))
            more = () if stays else (("connection", "close"),)
            head = written(f"HTTP/1.1 {answering.status} ", (*told, *more))
            await pour(writer, head, self.waits.stall)
            parts = parts_of(out.reader, answering.body, self.waits.answer)
            if not answering.body.empty:
                await carry(parts, writer, answering.body, permit.carry, self.waits.stall)
            good = answering.stays and sending.done()
            return stays and sending.done()
        finally:
            await _given_up(sending)
            if good:
                permit.keep(upstream.name, Spare(out.reader, out.writer, time.monotonic()))
            else:
                out.writer.close()

    async def _send(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        asking: Asking,
        permit: Permit,
        out: Spare,
        upstream: Upstream,
        target: str,
    ) -> None:
        if upstream.is_write(asking.method):
            await self._note_write(permit)
        own = (("host", upstream.authority), *passed_on(asking, upstream.passed, upstream.headers))
        length = () if asking.body.empty and asking.method == "GET" else framed(asking.body)
        head = written(f"{asking.method} {target} HTTP/1.1", (*own, *length))
        await pour(out.writer, head, self.waits.stall)
        if asking.body.empty:
            return
        if "100-continue" in [value.lower() for value in asking.all("expect")]:
            await pour(writer, b"HTTP/1.1 100 Continue\r\n\r\n", self.waits.stall)
        parts = parts_of(reader, asking.body, self.waits.body)
        try:
            await carry(parts, out.writer, asking.body, permit.carry, self.waits.stall)
        except ConnectionError:
            if not out.writer.is_closing():
                raise  # the program is gone; an upstream that hangs up may still have said why

    async def _note_write(self, permit: Permit) -> None:
        try:
            await self.writing(permit.name)
        except OSError as fault:
            message = f"a write that cannot be noted is not passed on: {fault.strerror}"
            raise Turned(503, "not_noted", message) from None

    async def _answer(
        self, reader: StreamReader, method: str, sending: asyncio.Future[None]
    ) -> Answering:
        """Return the head of the answer, which may come before all was sent."""
        hearing = asyncio.ensure_future(self._answer_head(reader, method))
        try:
            both: set[asyncio.Future[Any]] = {hearing, sending}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                await sending
            return await hearing
        finally:
            await _given_up(hearing)

    async def _answer_head(self, reader: StreamReader, method: str) -> Answering:
        try:
            for _ in range(MOST_INTERIM):
                async with asyncio.timeout(self.waits.answer):
                    answering = read_answering(await reader.readuntil(END), method)
                if answering.status >= FIRST_FINAL:
                    return answering
                if answering.status == SWITCHING:
                    break
        except TimeoutError:
            raise Turned(504, "upstream_silent", "the upstream did not answer in time") from None
        except (BadHead, OSError, EOFError, asyncio.LimitOverrunError):
            pass
        raise Turned(502, "upstream_broken", "the upstream hung up, or gave no answer of HTTP")


async def _given_up(task: asyncio.Future[Any]) -> None:
    """End a part of an exchange that is over, whatever became of it."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


def refusal(turned: Turned) -> bytes:
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


def _permit(asking: Asking, find: Callable[[str], Permit | None]) -> Permit:
    """Return who asks: whoever has the token of an attempt that lives, at its own door."""
    for name in ("x-api-key", "api-key", "x-goog-api-key"):
        for value in asking.all(name):
            if permit := find(value):
                return permit
    for value in asking.all("authorization"):
        kind, _, token = value.partition(" ")
        if kind.lower() == "bearer" and (permit := find(token.strip())):
            return permit
    raise Turned(401, "unknown_token", "this is not the token of an attempt that runs here")


def _check_protocol(asking: Asking) -> None:
    """Refuse another protocol with the answer at which clients fall back to HTTP at once."""
    if any(asking.all("upgrade")):
        raise Turned(426, "no_upgrade", "the gateway speaks HTTP/1.1, and no WebSocket")


def _target(
    asking: Asking, permit: Permit, upstreams: Mapping[str, Upstream]
) -> tuple[Upstream, str]:
    """Return which upstream is asked, and for what."""
    if not PLAIN.fullmatch(asking.target):
        raise BadHead("ask by a path, /UPSTREAM/…: no other host is to be reached")
    path, mark, query = asking.target.partition("?")
    name, slash, rest = path[1:].partition("/")
    upstream = upstreams.get(name)
    if upstream is None or name not in permit.upstreams:
        raise Turned(404, "unknown_upstream", "there is no such upstream for this attempt")
    if not upstream.allows(asking.method, slash + rest):
        message = f"{asking.method} on this path is not among what {name!r} allows"
        raise Turned(403, "not_allowed", message)
    query = clean_query(query)
    return upstream, f"{upstream.base}{slash}{rest}{mark if query else ''}{query}"


def _within(asking: Asking, permit: Permit) -> None:
    if asking.body.length is not None and asking.body.length > permit.bytes_left:
        raise Turned(413, "budget_spent", "this attempt may not send so many bytes any more")


def _framed(asking: Asking, answering: Answering) -> tuple[tuple[str, str], ...]:
    """Return how long the answer is said to be; what never has a body says what it was told."""
    if asking.method == "HEAD":
        return tuple(pair for pair in answering.headers if pair[0] == "content-length")
    if answering.status in {204, 304}:
        return ()
    return framed(answering.body)
