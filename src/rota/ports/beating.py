"""What heartbeats need of a store: one row for each running attempt, replaced with every beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rota.model.beats import Heartbeat, Overdue, Sign
from rota.model.ids import RunId
from rota.ports.timed import Timed


class Beating(Timed, Protocol):
    """Records of what was last heard of attempts."""

    async def beat(self, worker: str, signs: Sequence[Sign], due: int) -> None:
        """Record signs of attempts that are the worker's, all at once; the next is due then."""

    async def heartbeats(self, run_ids: Sequence[int]) -> dict[RunId, Heartbeat]:
        """Return what was last heard of the newest attempts of runs."""

    async def overdue(self, patience: int, most: int) -> list[Overdue]:
        """Return running attempts whose beat is overdue, or that never had one for so long."""

    async def note_silence(self, silences: Mapping[Overdue, str]) -> int:
        """Record why nobody tells of attempts, once for each silence; return of how many."""
