"""The one clock that every decision uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timed(Protocol):
    """Has the one clock that every decision uses."""

    def now(self) -> int:
        """Return the store's own time in microseconds; on PostgreSQL the database's."""

    def subscribe(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call a listener with every topic that is announced; returns how to stop that."""
