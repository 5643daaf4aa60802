"""A clock that moves only when it is told to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

BEGIN = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
"""A Monday noon far from any clock change."""


class VirtualClock:
    """Time in a test's hands; the same from one run to the next."""

    def __init__(self, start: datetime = BEGIN) -> None:
        self._now = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        """Return the instant it was set to."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds it was advanced by so far; setting the clock leaves them alone."""
        return self._elapsed

    def advance(
        self,
        span: timedelta | None = None,
        *,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> datetime:
        """Let time pass; return the new instant."""
        step = (span or timedelta()) + timedelta(
            seconds=seconds, minutes=minutes, hours=hours, days=days
        )
        if step < timedelta():
            message = f"time does not pass backwards ({step}): use set"
            raise ValueError(message)
        self._now += step
        self._elapsed += step.total_seconds()
        return self._now

    def set(self, instant: datetime) -> None:
        """Jump to an instant, forwards or back, as a corrected machine clock would."""
        if instant.tzinfo is None:
            message = f"an instant needs a time zone, got {instant.isoformat()}"
            raise ValueError(message)
        self._now = instant.astimezone(UTC)
