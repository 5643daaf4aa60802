"""What live views need of a store: events in an order that never changes behind a reader."""

from __future__ import annotations

from typing import Protocol

from rota.model.cursors import EventPage, Position


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
