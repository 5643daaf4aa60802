"""Serving: one connection of a program, request after request, each to an upstream it may ask."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from rota.gateway.bodies import part_from, pour
from rota.gateway.deadlines import Deadline
from rota.gateway.exchanging import END, Exchange, Request
from rota.gateway.heads import Asking, BadHead, read_asking
from rota.gateway.named import named
from rota.gateway.once import Once
from rota.gateway.permits import Permit, Spent
from rota.gateway.reaching import Unreached
from rota.gateway.refusing import Turned, refusal
from rota.gateway.upstreams import PLAIN, Upstream, clean_query


@dataclass
class Gate:
    """What every connection is served from."""

    upstreams: Mapping[str, Upstream]
    exchange: Exchange
    once: Once

    async def serve(
        self, reader: StreamReader, writer: StreamWriter, find: Callable[[str], Permit | None]
    ) -> None:
        """Serve a connection until either side has enough."""
        waits = self.exchange.waits
        try:
            with suppress(OSError, EOFError, asyncio.LimitOverrunError):
                patience = waits.head
                while await self._one(reader, writer, find, patience):
                    patience = waits.idle
            await part_from(reader, writer, waits.parting, waits.stall)
        finally:
            writer.transport.abort()

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
            request = Request(asking, permit, upstream, target)
            request.check_size()
            name = named(asking)
            if name is None:
                return await self.exchange.plain(reader, writer, request, begun)
            return await self.once.serve(reader, writer, request, name, begun)
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
            await pour(writer, refusal(told), self.exchange.waits.stall)
        return False

    async def _head(self, reader: StreamReader, patience: float) -> Asking:
        try:
            async with Deadline(patience):
                first = await reader.readexactly(1)
        except TimeoutError:
            raise EOFError from None
        try:
            async with Deadline(self.exchange.waits.head):
                return read_asking(first + await reader.readuntil(END))
        except TimeoutError:
            raise Turned(408, "too_slow", "the head of the request did not come in time") from None


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
