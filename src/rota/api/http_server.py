"""The HTTP server: listen addresses, connections and their limits.

uvicorn has no time limit for request heads and, with httptools, no size limit. A wrapper around its
protocol enforces both; the middleware limits what follows the head.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from rota.api.asgi import App
from rota.api.middleware import LONGEST_OF_ALL, LOOPBACK
from rota.errors import Invalid, Refused, Unavailable

HEAD_SECONDS = 10.0
MAX_HEAD = 64 << 10
LONGEST_REQUEST = LONGEST_OF_ALL + (2 << 20)
"""Includes framing: a short body in chunks of one byte is six times as long."""
TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\n"
    b"connection: close\r\n\r\n"
)
NO_ROOM = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"content-length: 0\r\n"
    b"retry-after: 1\r\n"
    b"connection: close\r\n\r\n"
)


class Connections:
    """The open connections of a server, up to a maximum.

    A further connection closes the one that was idle for longest without a key, or else one of the
    space with the most connections. Only connections with a request in progress are never closed,
    so nobody can lock others out by holding connections open.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[HttpConnection, None] = {}

    def admit(self, connection: HttpConnection) -> bool:
        """Register a connection; return False if all connections are busy."""
        while len(self._open) >= self._most:
            given_up = self._least_needed()
            if given_up is None:
                return False
            self.discard(given_up)
            given_up.close()
        self._open[connection] = None
        return True

    def renew(self, connection: HttpConnection) -> None:
        """Move a connection to the end of the idle order, because it sent a request."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def discard(self, connection: HttpConnection) -> None:
        """Remove a connection."""
        self._open.pop(connection, None)

    def _least_needed(self) -> HttpConnection | None:
        idle: dict[str, HttpConnection] = {}
        held: Counter[str] = Counter()
        for connection in self._open:
            space = connection.space
            if space is not None:
                held[space] += 1
            if connection.is_idle:
                if space is None:
                    return connection
                idle.setdefault(space, connection)
        return idle[max(idle, key=held.__getitem__)] if idle else None


class HttpConnection(asyncio.Protocol):
    """Passes data to uvicorn's protocol and closes slow or oversized connections."""

    def __init__(
        self,
        connections: Connections,
        head_seconds: float,
        **given: Any,  # noqa: ANN401 - uvicorn's own
    ) -> None:
        self._inner: Any = AutoHTTPProtocol(**given)
        self._connections = connections
        self._head_seconds = head_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._taken = 0

    @property
    def is_idle(self) -> bool:
        """Return whether no request is in progress."""
        cycle = self._inner.cycle
        return cycle is None or cycle.response_complete

    @property
    def space(self) -> str | None:
        """The space of the last request; None if it had no key."""
        cycle = self._inner.cycle
        caller = None if cycle is None else cycle.scope.get("caller")
        return None if caller is None else caller.space

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit of the first request head."""
        self._transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(transport)
        if self._connections.admit(self):
            self._wait()
        else:
            self._transport.write(NO_ROOM)
            self.close()

    def data_received(self, data: bytes) -> None:
        """Pass on received data and check whether a request head is complete."""
        before = self._inner.cycle
        self._inner.data_received(data)
        cycle = self._inner.cycle
        if cycle is not before:
            self._connections.renew(self)
        self._taken = self._taken + len(data) if cycle is before else 0
        if cycle is not None and not cycle.response_complete:
            self._wait_no_longer()
        elif self._timer is None and cycle is before:
            self._wait()
        in_head = cycle is None or (cycle.response_complete and not cycle.more_body)
        if self._taken > (MAX_HEAD if in_head else LONGEST_REQUEST):
            if in_head:
                self._transport.write(TOO_LONG)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection and its timers."""
        self._connections.discard(self)
        self._wait_no_longer()
        self._inner.connection_lost(exc)

    def close(self) -> None:
        """Stop reading."""
        self._wait_no_longer()
        self._transport.close()

    def eof_received(self) -> None:
        """Pass on the end of input."""
        self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pause responses for a slow reader."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Resume responses."""
        self._inner.resume_writing()

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._head_seconds, self.close)

    def _wait_no_longer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


log = logging.getLogger(__name__)

USUAL_PORT = 7682
KEEP_ALIVE_SECONDS = 30
SHUTDOWN_SECONDS = 5
MOST_CONNECTIONS = 2_000
BACKLOG = 1_024
STARTING_SECONDS = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """Where the server listens; without a port 7682 if it is free, otherwise any."""

    host: str = "127.0.0.1"
    port: int | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    proxies: frozenset[str] = field(default_factory=frozenset)
    head_seconds: float = HEAD_SECONDS
    """Time limit for the head of a request."""
    connections: int = MOST_CONNECTIONS
    """Maximum number of open connections."""
    before: int | None = None
    """The previous port, which running programs know."""

    @property
    def scheme(self) -> str:
        """The URL scheme."""
        return "http" if self.tls_cert is None else "https"


def check_place(place: ListenAddress) -> None:
    """Refuse a public address without TLS or a trusted proxy."""
    if (place.tls_cert is None) != (place.tls_key is None):
        raise Invalid("tls_cert", place.tls_cert or "", "give tls_cert and tls_key together")
    if is_loopback(place.host) or place.tls_cert is not None or place.proxies:
        return
    message = (
        f"host {place.host!r}: connections would not be encrypted; set tls_cert and tls_key, add "
        "the proxy that terminates TLS to trusted_proxies, or keep the default 127.0.0.1"
    )
    raise Refused(message)


def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback address, or the name localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def opened_socket(place: ListenAddress) -> socket.socket:
    """Return a listening socket for the address."""
    check_place(place)
    before = [] if place.before is None or place.port else [place.before]
    wanted = [*before, *([USUAL_PORT, 0] if place.port is None else [place.port])]
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    for port in wanted:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((place.host, port))
        except OSError as fault:
            sock.close()
            if fault.errno == errno.EADDRINUSE and port != wanted[-1]:
                continue
            message = f"cannot listen on {place.host}:{port}: {(fault.strerror or '').lower()}"
            raise Unavailable(message) from fault
        sock.setblocking(False)
        return sock
    raise AssertionError


def address_of(sock: socket.socket, place: ListenAddress) -> str:
    """Return the URL for people and programs."""
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{place.scheme}://{shown}:{port}"


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the daemon and waits without polling."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._over = asyncio.Event()

    def leave(self) -> None:
        """Finish requests in progress, then stop."""
        self.should_exit = True
        self._over.set()

    async def main_loop(self) -> None:
        """Run until shutdown."""
        await self._over.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield


@asynccontextmanager
async def serving(
    app: App, sock: socket.socket, place: ListenAddress, *more: socket.socket
) -> AsyncIterator[None]:
    """Serve requests until the block ends, then finish those in progress."""
    protocol = partial(HttpConnection, Connections(place.connections), place.head_seconds)
    config = uvicorn.Config(
        app,
        loop="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        http=cast("type[asyncio.Protocol]", protocol),
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=64 << 10,
        ssl_certfile=None if place.tls_cert is None else str(place.tls_cert),
        ssl_keyfile=None if place.tls_key is None else str(place.tls_key),
        ssl_version=ssl.PROTOCOL_TLS_SERVER,
    )
    server = _Server(config)
    task = asyncio.get_running_loop().create_task(server.serve(sockets=[sock, *more]))
    try:
        await _started(server, task)
        yield
    finally:
        server.leave()
        with suppress(asyncio.CancelledError):
            await task


async def _started(server: uvicorn.Server, task: asyncio.Task[None]) -> None:
    while not server.started:
        if task.done():
            task.result()
            message = "the server stopped before it had started"
            raise Unavailable(message)
        await asyncio.sleep(STARTING_SECONDS)


def names_of(place: ListenAddress, more: frozenset[str]) -> frozenset[str]:
    """Return the host names that requests may use."""
    bound = frozenset() if place.host in {"0.0.0.0", "::"} else frozenset({place.host.lower()})  # noqa: S104
    return LOOPBACK | bound | frozenset(name.lower() for name in more)
