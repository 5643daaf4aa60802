"""Ways out: what a program is told of the gateway, and what it is not told of the environment."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

from rota.errors import Unavailable
from rota.gateway.keeping import HomeGateway
from rota.gateway.plan import Plan, Planned
from rota.rules.effects import WriteScope
from rota.rules.redaction import Redactor

log = logging.getLogger(__name__)

LOOKS_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH|COOKIE|_HEADERS$|(?:^|_)PAT$", re.IGNORECASE
)
WITH_PASSWORD = re.compile(r"^[a-z0-9+.-]+://[^/]*@", re.IGNORECASE)
ADDRESS, TOKEN = "ROTA_GATEWAY_URL", "ROTA_GATEWAY_TOKEN"


class Ways:
    """Leads attempts to the gateway.

    `inside` is the port at which programs behind walls find their door, None where the operator
    leads them elsewhere.
    """

    def __init__(
        self,
        gateway: HomeGateway,
        plan: Plan,
        secrets: Callable[[], Mapping[str, str]],
        redactor: Redactor,
        inside: int | None,
    ) -> None:
        self._gateway = gateway
        self._plan = plan
        self._secrets = secrets
        self._redactor = redactor
        self._inside = inside
        self._open: dict[str, tuple[list[str], WriteScope]] = {}
        self._writers: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: list[Callable[[], None]] = []

    def offered(self, offered: Mapping[str, str], *, isolated: bool) -> Mapping[str, str]:
        """Return what programs may choose from: behind walls, nothing that is or seems a secret."""
        if not isolated or self._inside is None:
            return offered
        return {
            name: value
            for name, value in offered.items()
            if not LOOKS_SECRET.search(name)
            and not WITH_PASSWORD.match(value)
            and not self._redactor.holds(value)
        }

    def told(
        self,
        name: str,
        ids: tuple[int, int],
        space: str,
        offered: Mapping[str, str],
        scope: WriteScope,
        *,
        walled: bool,
    ) -> dict[str, str]:
        """Return what an attempt finds in its environment; nothing if there is nothing to reach.

        Whoever works without walls and finds a key in the environment anyway is left alone.
        """
        if walled and self._inside is None:
            return {}
        open_to = self._ready(space)
        if not walled:
            open_to = [each for each in open_to if not set(each.variables) & set(offered)]
        if not open_to:
            return {}
        self._open[name] = [upstream.name for upstream in open_to], scope
        if any(upstream.writes for upstream in open_to):
            self._writers.add(name)
        address = f"http://127.0.0.1:{self._inside if walled else self._gateway.port()}"
        token = self._gateway.token(*ids)
        said = {ADDRESS: address, TOKEN: token}
        for upstream in open_to:
            for variable, template in upstream.variables.items():
                url = f"{address}/{upstream.name}"
                said[variable] = template.replace("{url}", url).replace("{token}", token)
        return said

    def writes(self, name: str) -> bool:
        """Whether an attempt that was told of the gateway could write to somewhere outside."""
        return name in self._writers

    def wrote(self, name: str) -> bool | None:
        """Return whether an attempt has written to somewhere outside; None if nobody knows."""
        return self._gateway.wrote(name)

    async def admit(self, name: str, ids: tuple[int, int], ended: str, *, walled: bool) -> str:
        """Let an attempt in that is about to begin; return the path of its door."""
        if self.writes(name):
            self._gateway.begin(name)
        return await self._admit(name, ids, ended, walled=walled)

    async def _admit(self, name: str, ids: tuple[int, int], ended: str, *, walled: bool) -> str:
        if name not in self._open:
            return self._gateway.door(name)  # it was dismissed before its turn came
        upstreams, scope = self._open[name]
        await self._gateway.permit(
            name,
            self._gateway.token(*ids),
            upstreams=upstreams,
            ended=ended,
            port=None if walled else self._gateway.port(),
            requests_left=self._plan.requests,
            bytes_left=self._plan.bytes,
            space=scope.space_id,
            scope=scope.key,
            since=scope.since,
        )
        return self._gateway.door(name)

    def carry_on(self, name: str, ids: tuple[int, int], ended: str, *, walled: bool) -> None:
        """Let an attempt in again that a process before this one has started."""
        self._begin(partial(self._admit, name, ids, ended, walled=walled))

    def promise(self, until: float) -> None:
        """Let attempts ask until a moment of boot time."""
        self._gateway.promise(until)

    def keep(self, living: Collection[str]) -> None:
        """Let nobody ask but these."""
        self._begin(partial(self._gateway.keep, frozenset(living)))

    def changed(self) -> None:
        """Tell the gateway of secrets that are others now, if it is in use."""
        if self._gateway.connected:
            self._begin(self._gateway.configure)

    async def dismiss(self, name: str) -> None:
        """Let an attempt in no more."""
        self._open.pop(name, None)
        self._writers.discard(name)
        await self._gateway.dismiss(name)

    def on_close(self, then: Callable[[], None]) -> None:
        """Do something when the gateway is let go of."""
        self._closing.append(then)

    def close(self) -> None:
        """Let go of the gateway, which goes on as long as an attempt needs it."""
        for then in self._closing:
            then()
        for task in self._tasks:
            task.cancel()
        self._gateway.close()

    def _ready(self, space: str) -> list[Planned]:
        known = self._secrets()
        ready = (each for each in self._plan.upstreams if each.takes(known.get(each.secret)))
        return [each for each in ready if each.is_for(space)]

    def _begin(self, work: Callable[[], Awaitable[object]]) -> None:
        task = asyncio.get_running_loop().create_task(_carefully(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _carefully(work: Callable[[], Awaitable[object]]) -> None:
    try:
        await work()  # not before: a task may be cancelled before it begins
    except Unavailable as fault:
        log.warning("gateway.unreached", extra={"error": str(fault)})
