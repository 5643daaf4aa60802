"""The real clock; the only place that reads it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """This machine's time."""

    def now(self) -> datetime:
        """Return the current instant in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()
