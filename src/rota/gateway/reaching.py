"""Reaching upstreams: a name is looked up here, looked at, and what was looked at is spoken to."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from functools import cache

from rota.gateway.hosts import fault_in_addresses
from rota.gateway.lines import line_to
from rota.gateway.upstreams import Upstream

REMEMBERED_SECONDS = 30.0
CONNECT_SECONDS = 10.0

Lookup = Callable[[str, int], Awaitable[list[str]]]


class Unreached(Exception):
    """An upstream cannot be spoken to, or must not be."""


async def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Reach:
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
        raise Unreached(f"the upstream {upstream.name!r} cannot be reached: {why}")

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
            raise Unreached(f"the upstream {upstream.name!r} is not spoken to: {wrong}")
        return addresses


@cache
def _trust() -> ssl.SSLContext:
    made = ssl.create_default_context()
    made.set_alpn_protocols(["http/1.1"])
    return made
