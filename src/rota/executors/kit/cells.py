"""Cells: what an executor is told of an attempt's room."""

from __future__ import annotations

from rota.executors.kit.boxes import outbox_of, shown_of
from rota.executors.kit.executor import Outlet
from rota.executors.kit.executor import Room as Cell
from rota.model.programs import Bounds
from rota.model.sites import Site
from rota.model.spaces import Role
from rota.ports.agent import Room


def cell_of(
    name: str,
    state: str,
    room: Room,
    site: Site,
    role: Role,
    bounds: Bounds,
    *,
    outlet: Outlet | None,
    desk: Outlet | None,
) -> Cell:
    """Return where a program is to run, and within which bounds."""
    return Cell(
        name=name,
        state=state,
        folder=room.cwd,
        home=room.home,
        artifacts=room.artifacts,
        outbox=outbox_of(room.mailbox),
        readable=[room.folder, *filter(None, [room.resources]), *shown_of(room.mailbox)],
        shared=site.mounts,
        network=site.network,
        outlet=outlet,
        desk=desk if room.desk else None,
        bounds=bounds,
        isolated=site.isolated,
        role=role,
        image=site.image,
    )
