"""Leading out: which one socket a program is handed, and what it is told of where that leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.errors import Unavailable
from rota.executors.kit.executor import NO_OUTLET, Outlet
from rota.executors.kit.gateways import Gateway
from rota.model.ids import Epoch, RunId
from rota.model.keeping import Kept
from rota.model.sites import Network, Site
from rota.model.tasks import TaskKind
from rota.ports.agent import Room
from rota.ports.runner import Assignment
from rota.rules.effects import write_scope
from rota.rules.sites import has_own_loopback

ADDRESS, TOKEN = "ROTA_GATEWAY_URL", "ROTA_GATEWAY_TOKEN"


def attempt_name(kept: Kept) -> str:
    """Return what the folder of an attempt's keeper is called."""
    return f"run-{kept.run_id}-{kept.epoch}-{kept.nonce}"


def attempt_called(name: str, home: str, executor: str) -> Kept:
    """Return the attempt whose keeper's folder is called so, as far as its name tells."""
    _, run_id, epoch, nonce = name.split("-")
    return Kept(
        run_id=RunId(int(run_id)),
        epoch=Epoch(int(epoch)),
        home=home,
        nonce=nonce,
        boot="",
        executor=executor,
    )


def room_name(run_id: int, epoch: int) -> str:
    """Return what an attempt is called among the rooms and at the gateway."""
    return f"{run_id}-{epoch}"


class WayOut:
    """Where programs are led: to an outlet of the operator's, or to the gateway."""

    def __init__(self, outlet: Outlet | None, gateway: Gateway | None, attempts: Path) -> None:
        self._outlet = outlet
        self._gateway = gateway
        self._attempts = attempts

    def told(
        self, assignment: Assignment, site: Site, offered: Mapping[str, str]
    ) -> tuple[Mapping[str, str], dict[str, str]]:
        """Return what an attempt may choose from of the environment, and what it is told beside.

        One that is carried on stays let in.
        """
        asked = site.network is Network.OUTLET
        if self._gateway is None:
            return offered, self._told(site)
        offered = self._gateway.offered(offered, isolated=site.isolated)
        if assignment.task.kind is not TaskKind.AGENT and not asked:
            return offered, {}
        ids = (assignment.lease.run_id, assignment.lease.epoch)
        name, walled, space = room_name(*ids), has_own_loopback(site), assignment.task.space
        scope = write_scope(assignment.lease)
        told = self._gateway.told(name, ids, space, offered, scope, walled=walled)
        if told and assignment.kept is not None:
            self._gateway.carry_on(name, ids, self._ended(assignment.kept), walled=walled)
        return offered, {**self._told(site), **told}

    def _told(self, site: Site) -> dict[str, str]:
        if site.network is not Network.OUTLET or self._outlet is None:
            return {}
        return {"ROTA_OUTLET_ADDRESS": f"127.0.0.1:{self._outlet.port}"}

    async def handed(self, kept: Kept, room: Room, site: Site) -> Outlet | None:
        """Return the socket that a program is handed: if its task asks for it, or as usual."""
        asked, walled = site.network is Network.OUTLET, has_own_loopback(site)
        if self._gateway is not None and TOKEN in room.ids:
            ids = (kept.run_id, kept.epoch)
            ended = self._ended(kept)
            door = await self._gateway.admit(room_name(*ids), ids, ended, walled=walled)
            port = int(room.ids[ADDRESS].rpartition(":")[2])
            return Outlet(socket=door, port=port, alone=True) if walled else None
        if asked and self._outlet is None:
            raise Unavailable(NO_OUTLET)
        return self._outlet if site.isolated and (asked or room.outlet) else None

    def writes(self, assignment: Assignment) -> bool:
        """Whether an attempt could write to somewhere outside."""
        lease = assignment.lease
        name = room_name(lease.run_id, lease.epoch)
        return self._gateway is not None and self._gateway.writes(name)

    def wrote(self, kept: Kept) -> bool | None:
        """Return whether an attempt has written to somewhere outside; None if nobody knows."""
        name = room_name(kept.run_id, kept.epoch)
        return None if self._gateway is None else self._gateway.wrote(name)

    def promise(self, until: float) -> None:
        """Let attempts ask until a moment of boot time."""
        if self._gateway is not None:
            self._gateway.promise(until)

    def keep(self, known: Sequence[Kept]) -> None:
        """Let nobody ask but the attempts that go on."""
        if self._gateway is not None:
            living = [kept for kept in known if kept.current]
            self._gateway.keep([room_name(kept.run_id, kept.epoch) for kept in living])

    async def dismiss(self, kept: Kept) -> None:
        """Let an attempt in no more."""
        if self._gateway is not None:
            await self._gateway.dismiss(room_name(kept.run_id, kept.epoch))

    def close(self) -> None:
        """Let go of the gateway."""
        if self._gateway is not None:
            self._gateway.close()

    def _ended(self, kept: Kept) -> str:
        """Return the file that says that an attempt has ended."""
        return str((self._attempts / attempt_name(kept) / "exit").absolute())
