"""What attempts that say something need of a store; each write is fenced by run and epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rota.model.ids import Epoch, RunId
from rota.model.outcomes import Asked
from rota.model.settlements import NewDelivery
from rota.model.talking import Deferred, Effect, Put, Speaker
from rota.ports.timed import Timed


class Talking(Timed, Protocol):
    """Operations for the case of success, effects that happen once, questions of running attempts.

    A write raises Fenced, and changes nothing, where the run is not running at that epoch.
    """

    async def defer(self, speaker: Speaker, operations: Sequence[Deferred]) -> list[Put]:
        """Keep operations until the attempt ends, all or none; Conflict if they are too many.

        One whose name is deferred or done already is left out.
        """

    async def do_once(
        self, speaker: Speaker, name: str, result: str, delivery: NewDelivery | None = None
    ) -> Effect:
        """Record an effect, with its message in the outbox; or return the one that was before."""

    async def find_effect(self, speaker: Speaker, name: str) -> Effect | None:
        """Return an effect of a slot by its name."""

    async def asked_of(self, run_ids: Sequence[int]) -> dict[RunId, Asked]:
        """Return what running attempts have asked and wait to be settled for."""

    async def outward_of(self, run_ids: Sequence[int]) -> set[RunId]:
        """Return the runs of which something has left: an effect, or what a person approved."""

    async def begun_of(self, run_ids: Sequence[int]) -> dict[RunId, bool]:
        """Return the runs whose program was begun, and whether it could write outside.

        What was running before a restore may have been, and may have.
        """

    async def deferred_of(self, run_ids: Sequence[int]) -> list[tuple[RunId, Epoch, Deferred]]:
        """Return what is deferred, in order."""

    async def overstaying(self, home: str, before: int) -> list[tuple[RunId, Epoch]]:
        """Return the kept attempts of a home that asked before an instant and still go on."""
