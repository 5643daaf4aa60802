"""Time and randomness, injected."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The source of time; only one implementation reads the system clock."""

    def now(self) -> datetime:
        """Return the current instant in UTC."""

    def monotonic(self) -> float:
        """Return seconds that never go back, for measuring spans."""


class Random(Protocol):
    """The source of randomness."""

    def random(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
