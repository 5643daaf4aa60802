"""Exchanging: a request is sent on to an upstream, and its answer handed back as it comes."""

from __future__ import annotations

import asyncio
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from rota.gateway.bodies import carry, parts_of, pour
from rota.gateway.deadlines import Deadline
from rota.gateway.heads import (
    Answering,
    Asking,
    BadHead,
    framed,
    handed_back,
    passed_on,
    read_answering,
    written,
)
from rota.gateway.permits import Permit, Spare
from rota.gateway.reaching import Reach
from rota.gateway.refusing import Turned
from rota.gateway.upstreams import Upstream

END = b"\r\n\r\n"
SWITCHING = 101
FIRST_FINAL = 200
MOST_INTERIM = 20

Found = TypeVar("Found")


class Waits(NamedTuple):
    """How long, in seconds, the gateway waits for whom."""

    idle: float = 300.0
    head: float = 15.0
    body: float = 60.0
    answer: float = 900.0
    stall: float = 120.0
    parting: float = 2.0


class Request(NamedTuple):
    """Who asks where for what."""

    asking: Asking
    permit: Permit
    upstream: Upstream
    target: str

    def check_size(self) -> None:
        """Refuse what is known to be more than the attempt may still send."""
        length = self.asking.body.length
        if length is not None and length > self.permit.bytes_left:
            raise Turned(413, "budget_spent", "this attempt may not send so many bytes any more")


@dataclass
class Exchange:
    """What requests are carried out with."""

    reach: Reach
    used: Callable[[str], None]
    """Told which secret has been shown."""
    writing: Callable[[str], Awaitable[None]]
    """Told which attempt is about to write, before that is passed on."""
    waits: Waits = field(default_factory=Waits)

    async def plain(
        self, reader: StreamReader, writer: StreamWriter, request: Request, begun: asyncio.Event
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
                permit.keep(upstream.name, Spare(out.reader, out.writer, time.monotonic()))
            else:
                out.drop()

    async def connect(self, upstream: Upstream) -> Spare:
        """Return a new connection."""
        return Spare(*await self.reach.connect(upstream), since=0.0)

    async def note_write(self, request: Request) -> None:
        """Note that a request that may have effects is about to be passed on."""
        if request.upstream.is_write(request.asking.method):
            await noted(self.writing(request.permit.name))

    async def _pass_on(
        self, reader: StreamReader, writer: StreamWriter, request: Request, out: Spare
    ) -> bool:
        await self.note_write(request)
        return await self.send(reader, writer, request, out)

    async def send(
        self, reader: StreamReader, writer: StreamWriter, request: Request, out: Spare
    ) -> bool:
        """Send a request on, its body as it comes; false if the upstream hung up before its end."""
        asking, permit, upstream, target = request
        own = (("host", upstream.authority), *passed_on(asking, upstream.passed, upstream.headers))
        length = () if asking.body.empty and asking.method == "GET" else framed(asking.body)
        head = written(f"{asking.method} {target} HTTP/1.1", (*own, *length))
        try:
            await pour(out.writer, head, self.waits.stall)
            if not asking.body.empty:
                await self.go_on(writer, asking)
                parts = parts_of(reader, asking.body, self.waits.body)
                await carry(parts, out.writer, asking.body, permit.carry, self.waits.stall)
        except ConnectionError:
            if not out.writer.is_closing():
                raise  # the program is gone; an upstream that hangs up may still have said why
            return False
        return True

    async def hand_back(
        self,
        writer: StreamWriter,
        request: Request,
        answering: Answering,
        parts: AsyncIterator[bytes],
        *more: tuple[str, str],
        stays: bool,
    ) -> None:
        """Tell a program an answer, and what is said beside it."""
        told = (*handed_back(answering), *more, *_framed(request.asking, answering))
        ends = () if stays else (("connection", "close"),)
        head = written(f"HTTP/1.1 {answering.status} ", (*told, *ends))
        await pour(writer, head, self.waits.stall)
        if not answering.body.empty:
            await carry(parts, writer, answering.body, request.permit.carry, self.waits.stall)

    async def go_on(self, writer: StreamWriter, asking: Asking) -> None:
        """Tell who waits for that to send the body."""
        if "100-continue" in [value.lower() for value in asking.all("expect")]:
            await pour(writer, b"HTTP/1.1 100 Continue\r\n\r\n", self.waits.stall)

    async def answer(
        self, reader: StreamReader, method: str, sending: asyncio.Future[bool]
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
            await given_up(hearing)

    async def _answer_head(self, reader: StreamReader, method: str) -> Answering:
        try:
            for _ in range(MOST_INTERIM):
                async with Deadline(self.waits.answer):
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


async def noted(noting: Awaitable[Found]) -> Found:
    """Wait for a note on disk, without which nothing is passed on."""
    try:
        return await noting
    except OSError as fault:
        message = f"a write that cannot be noted is not passed on: {fault.strerror}"
        raise Turned(503, "not_noted", message) from None


async def given_up(task: asyncio.Future[Any]) -> None:
    """End a part of an exchange that is over, whatever became of it."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


def _was_whole(sending: asyncio.Future[bool]) -> bool:
    """Whether a request was sent to its end, so that what comes next is another one."""
    return sending.done() and sending.exception() is None and sending.result()


def _framed(asking: Asking, answering: Answering) -> tuple[tuple[str, str], ...]:
    """Return how long the answer is said to be; what never has a body says what it was told."""
    if asking.method == "HEAD":
        return tuple(pair for pair in answering.headers if pair[0] == "content-length")
    if answering.status in {204, 304}:
        return ()
    return framed(answering.body)
