"""From settings to the post office of a daemon."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rota.doors.inside.mailbox.post import Post
from rota.doors.inside.mailbox.serving import BURST
from rota.doors.inside.mailbox.snapshots import Desk
from rota.doors.inside.pace import Pace
from rota.doors.kit.office import House, bounds_of
from rota.model.inside import Held
from rota.ports.store import Store
from rota.wiring.agents import agents_of
from rota.wiring.channels import every_channel
from rota.wiring.discretion import discreet
from rota.wiring.keeping import artifacts_of, probes_of
from rota.wiring.secrets import secrets_of
from rota.wiring.settings import Settings
from rota.wiring.sites import LocalSites


@contextmanager
def post_of(settings: Settings, store: Store) -> Iterator[Post]:
    """Give the post office of a home, and close it."""
    redactor = secrets_of(settings).redactor
    store = discreet(store, redactor)
    house = House(
        store=store,
        chance=random.SystemRandom(),
        bounds=bounds_of(settings),
        agents=agents_of(settings.agent, settings.prices, settings.tiers),
        channels=tuple(every_channel()),
        sites=LocalSites(settings),
        artifacts=artifacts_of(settings),
        probes=probes_of(settings),
    )
    pace = Pace(burst=BURST)
    home = settings.home.absolute()
    post = Post(LateDesk(house, pace), store, home, pace=pace, redactor=redactor)
    try:
        yield post
    finally:
        post.shut()


class LateDesk:
    """The desk, made when it is first asked: daemons that run no programs do without it."""

    def __init__(self, house: House, pace: Pace) -> None:
        self._house = house
        self._pace = pace
        self._desk: Desk | None = None
        self._lock = asyncio.Lock()

    async def serve(
        self, held: Held, verb: str, fields: Mapping[str, Any], request_id: str
    ) -> dict[str, Any]:
        """Return the desk's answer."""
        if self._desk is None:
            async with self._lock:
                if self._desk is None:
                    self._desk = await asyncio.to_thread(self._make)
        return await self._desk.serve(held, verb, fields, request_id)

    def _make(self) -> Desk:
        from rota.doors.inside.desk import Desk as Real  # noqa: PLC0415 - slow to load

        return Real(self._house, self._pace)
