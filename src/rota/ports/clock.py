"""Time and chance, injected."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time; only one place in Rota reads the real one."""

    def now(self) -> datetime:
        """Return the current instant in UTC."""

    def monotonic(self) -> float:
        """Return seconds that never go back; for measuring spans, not for naming instants."""


class Random(Protocol):
    """Chance, as far as Rota needs it."""

    def random(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
