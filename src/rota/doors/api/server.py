"""The server: one socket, opened by rule, with bounds on what a client may hold."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import cast

import uvicorn

from rota.doors.api.asgi import App
from rota.doors.api.connection import HEAD_SECONDS, Connection, Connections
from rota.doors.api.guard import LOOPBACK
from rota.errors import Invalid, Refused, Unavailable

log = logging.getLogger(__name__)

USUAL_PORT = 7682
KEEP_ALIVE_SECONDS = 30
SHUTDOWN_SECONDS = 5
MOST_CONNECTIONS = 2_000
BACKLOG = 1_024
STARTING_SECONDS = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the door is; without a port the usual one if it is free, or else any."""

    host: str = "127.0.0.1"
    port: int | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    proxies: frozenset[str] = field(default_factory=frozenset)
    head_seconds: float = HEAD_SECONDS
    """How long the head of a request may take."""
    connections: int = MOST_CONNECTIONS
    """How many connections may be open at once."""
    before: int | None = None
    """The port it had before, by which programs that still run know it."""

    @property
    def scheme(self) -> str:
        """How the door is spoken to."""
        return "http" if self.tls_cert is None else "https"


def check_place(place: Place) -> None:
    """Refuse a door that strangers could reach in the clear."""
    if (place.tls_cert is None) != (place.tls_key is None):
        raise Invalid("tls_cert", place.tls_cert or "", "give tls_cert and tls_key together")
    if is_loopback(place.host) or place.tls_cert is not None or place.proxies:
        return
    message = (
        f"host {place.host!r}: others could reach it in the clear; set tls_cert and tls_key, name "
        "the proxy that speaks TLS for it in trusted_proxies, or keep the default 127.0.0.1"
    )
    raise Refused(message)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; of names, only one is known to be."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def opened_socket(place: Place) -> socket.socket:
    """Return a socket that listens where it was asked to."""
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


def address_of(sock: socket.socket, place: Place) -> str:
    """Return the address that people and programs open."""
    host, port = sock.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{place.scheme}://{shown}:{port}"


class _Server(uvicorn.Server):
    """A server that leaves signals to the daemon, and waits where uvicorn looks again and again."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._over = asyncio.Event()

    def leave(self) -> None:
        """Let requests under way end, and then the server."""
        self.should_exit = True
        self._over.set()

    async def main_loop(self) -> None:
        """Serve until it is over."""
        await self._over.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield


@asynccontextmanager
async def serving(
    app: App, sock: socket.socket, place: Place, *more: socket.socket
) -> AsyncIterator[None]:
    """Answer requests until the block is left, then let those under way end."""
    protocol = partial(Connection, Connections(place.connections), place.head_seconds)
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
            message = "the server ended before it began"
            raise Unavailable(message)
        await asyncio.sleep(STARTING_SECONDS)


def names_of(place: Place, more: frozenset[str]) -> frozenset[str]:
    """Return the names that a request may call this host by."""
    bound = frozenset() if place.host in {"0.0.0.0", "::"} else frozenset({place.host.lower()})  # noqa: S104
    return LOOPBACK | bound | frozenset(name.lower() for name in more)
