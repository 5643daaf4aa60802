"""The endpoints of a daemon: HTTP API, agent API and mailboxes.

Programs get the address when they start and may outlive the daemon, so it should not change: the
previous port is tried first. The socket is in a folder of its own, which isolated programs see.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rota.agent_api.dispatcher import RateLimiter
from rota.agent_api.mailbox.contents import CommandDispatcher
from rota.agent_api.mailbox.manager import MailboxManager
from rota.agent_api.mailbox.processor import BURST
from rota.agent_api.mcp import MCP_PATH
from rota.api.asgi import App, HttpResponse, Receive, Scope, Send
from rota.api.authentication import KeyAuthenticator
from rota.api.http_server import (
    ListenAddress,
    address_of,
    is_loopback,
    names_of,
    opened_socket,
    serving,
)
from rota.api.middleware import LoginBackoff, Middleware, TrustedHosts
from rota.api.refusals import RefusalLimit
from rota.app.composition import (
    make_app_context,
    make_home,
    make_sql_console,
)
from rota.app.discovery import announce
from rota.app.redaction import with_redaction
from rota.app.secrets import load_secrets
from rota.app.settings import Settings
from rota.app.tokens import FOLDER, LocalAttemptTokens, agent_api_socket, ensure_admin_key
from rota.commands.context import AppContext, DaemonControl
from rota.errors import Unavailable
from rota.model.audit import AttemptIdentity
from rota.rules.permissions import Caller
from rota.runtime.event_loop import tune_memory
from rota.store.store import Store

log = logging.getLogger(__name__)

NOTE_SECONDS = 30.0
NOTHING_ELSE = {"code": "not_found", "message": f"this endpoint serves only {MCP_PATH}"}


def place_of(settings: Settings) -> ListenAddress:
    """Return the listen address of the settings."""
    return ListenAddress(
        host=settings.host,
        port=settings.port,
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        proxies=frozenset(settings.trusted_proxies),
    )


@asynccontextmanager
async def open_http_api(
    settings: Settings,
    store: Store,
    daemon: DaemonControl | None = None,
    passes: LocalAttemptTokens | None = None,
) -> AsyncIterator[str]:
    """Serve the API and the agent API within the block; yields the URL."""
    make_home(settings)
    passes = passes or LocalAttemptTokens(settings.home, store)
    place = replace(place_of(settings), before=last_port(settings.home))
    sock = opened_socket(place)
    inquirer = make_sql_console(settings)
    limit = RefusalLimit()
    try:
        await ensure_admin_key(store, settings.home)
        redacted = with_redaction(store, load_secrets(settings).redactor)
        app = make_app_context(settings, redacted, sql_console=inquirer, daemon=daemon)
        entrance = KeyAuthenticator(store)
        trust = TrustedHosts(
            hosts=names_of(place, frozenset(settings.hosts)),
            proxies=place.proxies,
            metrics_open=settings.metrics_open,
        )
        url = address_of(sock, place)
        built = _Built(app, passes, entrance)
        at_desk = {MCP_PATH: built.at_desk}
        guard = Middleware(built, entrance, trust, LoginBackoff(), app.answers, inside=at_desk)
        inner = Middleware(
            built.desk_alone, entrance, TrustedHosts(), LoginBackoff(), app.answers,
            inside={MCP_PATH: built.attempt_at_desk},
        )  # fmt: skip
        with limit.applied():
            async with (
                serving(guard, sock, place),
                open_agent_api(settings.home, inner, place, url, passes),
            ):
                with announce(settings.home, url):
                    noting = asyncio.get_running_loop().create_task(_note_uses(entrance, limit))
                    try:
                        yield url
                    finally:
                        await built.close()
                        noting.cancel()
                        with suppress(asyncio.CancelledError):
                            await noting
        entrance.close()
    finally:
        await inquirer.close()
        sock.close()


class _Built:
    """The application, built at the first request, because most daemons are never asked.

    It is built in a thread, so that the event loop continues.
    """

    def __init__(
        self, context: AppContext, passes: LocalAttemptTokens, entrance: KeyAuthenticator
    ) -> None:
        self._context = context
        self._passes = passes
        self._entrance = entrance
        self._app: App | None = None
        self._close: Callable[[], Awaitable[None]] | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await self._ready()
        await app(scope, receive, send)

    async def desk_alone(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle requests where only the agent API is available."""
        app = await self._ready()
        if scope["path"] == MCP_PATH:
            await app(scope, receive, send)
        else:
            await HttpResponse.record(404, {"error": NOTHING_ELSE}).send(send)

    async def at_desk(self, authorization: str | None) -> Caller:
        """Return the caller of an attempt token or a key."""
        await self._ready()
        return await self._either(authorization)

    async def attempt_at_desk(self, authorization: str | None) -> Caller:
        """Return the caller of an attempt token."""
        await self._ready()
        return await self._by_pass(authorization)

    async def _ready(self) -> App:
        if self._app is None:
            async with self._lock:
                if self._app is None:
                    loop = asyncio.get_running_loop()
                    self._app = await loop.run_in_executor(None, self._build)
        return self._app

    def _build(self) -> App:
        from rota.agent_api.dispatcher import AgentApi  # noqa: PLC0415
        from rota.agent_api.mcp import McpSession  # noqa: PLC0415
        from rota.api.authentication import AgentAuthenticator  # noqa: PLC0415
        from rota.api.routes import (  # noqa: PLC0415 - slow to load
            HttpApi,
            McpEndpoint,
        )

        desk = AgentApi(self._context)
        self._either = AgentAuthenticator(desk, self._passes, self._entrance.caller_of).caller_of
        self._by_pass = AgentAuthenticator(desk, self._passes).caller_of
        api = HttpApi(self._context, {MCP_PATH: McpEndpoint(McpSession(desk))})
        self._close = api.close
        tune_memory()
        return api

    async def close(self) -> None:
        """Close all event streams."""
        if self._close is not None:
            await self._close()


async def _note_uses(entrance: KeyAuthenticator, limit: RefusalLimit) -> None:
    while True:
        try:
            await asyncio.sleep(NOTE_SECONDS)
        finally:
            limit.tell()
            with suppress(Unavailable):
                await entrance.note_use()


PORT = "desk.port"
INNER_PORT = "desk.inner-port"
PRIVATE_FOLDER = 0o700
PRIVATE = 0o600


@asynccontextmanager
async def open_agent_api(
    home: Path, app: App, place: ListenAddress, url: str, passes: LocalAttemptTokens
) -> AsyncIterator[None]:
    """Serve the agent API for programs within the block; `url` is the address of the API.

    If the API is public or uses TLS, programs get an endpoint of their own on loopback.
    """
    (home / FOLDER).mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    _note_port(home / PORT, url)
    async with AsyncExitStack() as stack:
        socks: list[socket.socket] = []
        walled = _opened(home)
        if walled is not None:
            socks.append(walled)
            stack.callback(_close, walled, walled.getsockname())
        near = url
        if place.scheme != "http" or not is_loopback(place.host):
            inner = ListenAddress(before=_noted(home / INNER_PORT), port=None)
            sock = opened_socket(inner)
            stack.callback(sock.close)
            near = address_of(sock, inner)
            _note_port(home / INNER_PORT, near)
            socks.append(sock)
        if socks:
            await stack.enter_async_context(serving(app, socks[0], ListenAddress(), *socks[1:]))
        passes.url, passes.socket_open = f"{near}{MCP_PATH}", walled is not None
        try:
            yield
        finally:
            passes.url, passes.socket_open = None, False


def last_port(home: Path) -> int | None:
    """Return the previous port of a home."""
    return _noted(home / PORT)


def _opened(home: Path) -> socket.socket | None:
    """Return the socket of the agent API; None if it is in use or its path is too long."""
    place = agent_api_socket(home)
    if place is None:
        log.warning("desk.path_too_long", extra={"home": str(home)})
        return None
    if _answers(place.socket):
        log.warning("desk.taken", extra={"socket": place.socket})
        return None
    with suppress(FileNotFoundError):
        os.unlink(place.socket)  # noqa: PTH108
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(place.socket)
    os.chmod(place.socket, PRIVATE)  # noqa: PTH101
    made.setblocking(False)
    return made


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        try:
            trying.connect(path)
        except OSError:
            return False
        return True


def _close(made: socket.socket, path: str) -> None:
    with suppress(OSError):
        os.unlink(path)  # noqa: PTH108
    made.close()


def _note_port(path: Path, url: str) -> None:
    with suppress(OSError):
        held = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE)
        with os.fdopen(held, "w") as file:
            file.write(f"{urlsplit(url).port}\n")


def _noted(path: Path) -> int | None:
    try:
        port = int(path.read_text())
    except (OSError, ValueError):
        return None
    return port if PORTS[0] <= port <= PORTS[1] else None


PORTS: Sequence[int] = (1024, 65_535)


@contextmanager
def open_mailboxes(settings: Settings, store: Store) -> Iterator[MailboxManager]:
    """Yield the mailboxes of a home, and close them afterwards."""
    redactor = load_secrets(settings).redactor
    store = with_redaction(store, redactor)
    app = make_app_context(settings, store)
    pace = RateLimiter(burst=BURST)
    home = settings.home.absolute()
    post = MailboxManager(LazyAgentApi(app, pace), store, home, pace=pace, redactor=redactor)
    try:
        yield post
    finally:
        post.shut()


class LazyAgentApi:
    """The agent API, created at its first use, because many daemons run no programs."""

    def __init__(self, app: AppContext, pace: RateLimiter) -> None:
        self._app = app
        self._pace = pace
        self._desk: CommandDispatcher | None = None
        self._lock = asyncio.Lock()

    async def serve(
        self, held: AttemptIdentity, verb: str, fields: Mapping[str, Any], request_id: str
    ) -> dict[str, Any]:
        """Return the answer of the agent API."""
        if self._desk is None:
            async with self._lock:
                if self._desk is None:
                    self._desk = await asyncio.to_thread(self._make)
        return await self._desk.serve(held, verb, fields, request_id)

    def _make(self) -> CommandDispatcher:
        from rota.agent_api.dispatcher import AgentApi as Real  # noqa: PLC0415 - slow to load

        return Real(self._app, self._pace)
