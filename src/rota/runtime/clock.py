"""The real clock; the only place that reads it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def _count() -> float:
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class SystemClock:
    """This machine's time."""

    def now(self) -> datetime:
        """Return the current instant in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since this machine started, sleep included where the system counts it."""
        return _count()
