"""Whether a program can run somewhere on this machine, asked before anybody relies on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rota.model.sites import Held, Site
from rota.model.spaces import Role
from rota.model.tasks import Task


class Sites(Protocol):
    """Where programs can run here."""

    async def admit(self, site: Site, role: Role) -> None:
        """Raise Unavailable, NotPermitted or Invalid, with what to do, unless it can be had."""

    async def holds(self, site: Site) -> Mapping[str, Held]:
        """Return for whom memory, processes and processors can be bounded there."""

    async def lacks(self, task: Task, role: Role) -> Sequence[str]:
        """Return what a task names and would not be found here, in sentences."""
