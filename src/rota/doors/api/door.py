"""The door of a daemon: opened with it, announced in its home, closed before it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from rota.doors.api.asgi import App, Receive, Reply, Scope, Send
from rota.doors.api.backoff import Backoff
from rota.doors.api.desk_opening import last_port, open_desk
from rota.doors.api.entrance import Entrance
from rota.doors.api.guard import Guard, Trust
from rota.doors.api.refusals import RefusalLimit
from rota.doors.api.server import (
    Place,
    address_of,
    names_of,
    opened_socket,
    serving,
)
from rota.doors.kit.announcing import announced
from rota.doors.kit.office import Daemon, House, bounds_of
from rota.errors import Unavailable
from rota.ports.store import Store
from rota.rules.permission import Caller
from rota.wiring.admin import ensure_admin_key
from rota.wiring.agents import agents_of
from rota.wiring.channels import every_channel
from rota.wiring.compose import make_home
from rota.wiring.discretion import discreet
from rota.wiring.inquiring import inquirer_of
from rota.wiring.keeping import artifacts_of, probes_of
from rota.wiring.loop import settle_memory
from rota.wiring.passes import PATH, HomePasses
from rota.wiring.secrets import secrets_of
from rota.wiring.settings import Settings
from rota.wiring.sites import LocalSites

log = logging.getLogger(__name__)

NOTE_SECONDS = 30.0
NOTHING_ELSE = {"code": "not_found", "message": f"there is nothing here but {PATH}"}


def place_of(settings: Settings) -> Place:
    """Return where the settings want the door."""
    return Place(
        host=settings.host,
        port=settings.port,
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        proxies=frozenset(settings.trusted_proxies),
    )


@asynccontextmanager
async def open_door(
    settings: Settings,
    store: Store,
    daemon: Daemon | None = None,
    passes: HomePasses | None = None,
) -> AsyncIterator[str]:
    """Serve the API until the block is left, and the desk with it; gives its address."""
    make_home(settings)
    passes = passes or HomePasses(settings.home, store)
    place = replace(place_of(settings), before=last_port(settings.home))
    sock = opened_socket(place)
    inquirer = inquirer_of(settings)
    limit = RefusalLimit()
    try:
        await ensure_admin_key(store, settings.home)
        house = House(
            store=discreet(store, secrets_of(settings).redactor),
            chance=random.SystemRandom(),
            bounds=bounds_of(settings),
            agents=agents_of(settings.agent, settings.prices, settings.tiers),
            channels=tuple(every_channel()),
            inquirer=inquirer,
            sites=LocalSites(settings),
            artifacts=artifacts_of(settings),
            probes=probes_of(settings),
            secrets=secrets_of(settings),
            daemon=daemon,
        )
        entrance = Entrance(store)
        trust = Trust(
            hosts=names_of(place, frozenset(settings.hosts)),
            proxies=place.proxies,
            metrics_open=settings.metrics_open,
        )
        url = address_of(sock, place)
        built = _Built(house, passes, entrance)
        at_desk = {PATH: built.at_desk}
        guard = Guard(built, entrance, trust, Backoff(), house.answers, inside=at_desk)
        inner = Guard(
            built.desk_alone, entrance, Trust(), Backoff(), house.answers,
            inside={PATH: built.attempt_at_desk},
        )  # fmt: skip
        with limit.applied():
            async with (
                serving(guard, sock, place),
                open_desk(settings.home, inner, place, url, passes),
            ):
                with announced(settings.home, url):
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
    """The application, built when it is first asked for: most daemons start and are left alone.

    It is built beside the loop, on which the work of the daemon goes on.
    """

    def __init__(self, house: House, passes: HomePasses, entrance: Entrance) -> None:
        self._house = house
        self._passes = passes
        self._entrance = entrance
        self._app: App | None = None
        self._close: Callable[[], Awaitable[None]] | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await self._ready()
        await app(scope, receive, send)

    async def desk_alone(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer where there is nothing but the desk."""
        app = await self._ready()
        if scope["path"] == PATH:
            await app(scope, receive, send)
        else:
            await Reply.record(404, {"error": NOTHING_ELSE}).send(send)

    async def at_desk(self, authorization: str | None) -> Caller:
        """Return who comes to the desk, by a pass or a key."""
        await self._ready()
        return await self._either(authorization)

    async def attempt_at_desk(self, authorization: str | None) -> Caller:
        """Return who comes to the desk, by a pass alone."""
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
        from rota.doors.api.desk_entrance import DeskEntrance  # noqa: PLC0415
        from rota.doors.api.mcp import McpPage  # noqa: PLC0415
        from rota.doors.api.routes import Api  # noqa: PLC0415 - slow to load
        from rota.doors.inside.desk import Desk  # noqa: PLC0415
        from rota.doors.inside.mcp import Tools  # noqa: PLC0415

        desk = Desk(self._house)
        self._either = DeskEntrance(desk, self._passes, self._entrance.caller_of).caller_of
        self._by_pass = DeskEntrance(desk, self._passes).caller_of
        api = Api(self._house, {PATH: McpPage(Tools(desk))})
        self._close = api.close
        settle_memory()
        return api

    async def close(self) -> None:
        """Let clients go whose answer has no end."""
        if self._close is not None:
            await self._close()


async def _note_uses(entrance: Entrance, limit: RefusalLimit) -> None:
    while True:
        try:
            await asyncio.sleep(NOTE_SECONDS)
        finally:
            limit.tell()
            with suppress(Unavailable):
                await entrance.note_use()
