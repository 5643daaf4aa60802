"""What tells how machines are doing, and what that needs of a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from rota.model.machines import Heard, Load, Reading
from rota.ports.timed import Timed

Gauge: TypeAlias = Callable[[], Load]
"""Reads how busy this machine has been since the last look."""


class Machines(Timed, Protocol):
    """Records of how machines were doing."""

    async def read_machine(self, worker: str, home: str, host: str, load: Load) -> None:
        """Record what a worker runs and how its machine is doing; old readings go."""

    async def list_readings(
        self, since: int, before: int, host: str | None, most: int
    ) -> list[Reading]:
        """Return readings of a span, newest first."""

    async def newest_readings(self, since: int) -> list[Reading]:
        """Return the newest reading of each home that has one since then."""

    async def list_heard(self, space_id: int | None, most: int) -> Sequence[Heard]:
        """Return running attempts with their last heartbeat, longest unheard first."""
