"""What those who watch and steer the whole need of a store: live events, and a pause for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rota.model.cursors import EventPage, EventTally, Position
from rota.model.pauses import Pauses


class Live(Protocol):
    """Reads events as they come."""

    async def events_after(
        self,
        after: Position | None,
        most: int,
        *,
        space_id: int | None = None,
        run_id: int | None = None,
    ) -> EventPage:
        """Return what follows a position, or begin with the oldest event that is kept.

        At most `most` events are looked at, whatever the space. After a gap the page is empty and
        goes on from the end.
        """

    async def events_end(self) -> Position:
        """Return the position of the newest event that can be read."""

    async def tally_events(self, after: Position, most: int, bounds: Sequence[int]) -> EventTally:
        """Count what follows a position, looking at no more than `most` events.

        How late runs began is counted by how many of the bounds, in microseconds, it is above.
        """

    async def count_skipped(self) -> list[tuple[str, int]]:
        """Return how many slots the newest ledger rows tell of, by reason."""


class Pausing(Protocol):
    """Pauses everything, in every process on the database."""

    async def pause(self, who: str) -> Pauses:
        """Let nothing new begin until it is resumed; nothing happens if it is paused already.

        When this returns no claim gives out anything, and slots that come due from then on are
        skipped. What runs goes on.
        """

    async def resume(self, who: str) -> Pauses:
        """Let work begin again, from now on; nothing happens if nothing is paused."""

    async def pauses(self) -> Pauses:
        """Return the pauses that may still matter, oldest first."""
