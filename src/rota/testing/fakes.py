"""Fakes of the ports: a clock, chance, a channel and a runner that do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from rota.model.attempts import DONE, Assignment, AttemptReport
from rota.model.notifications import Delivery

BEGIN = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
"""A Monday noon far from any clock change."""


class VirtualClock:
    """A clock that moves only when a test moves it."""

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


class FixedChance:
    """Always the same number, so that a random part of a delay is known."""

    def __init__(self, number: float = 0.0) -> None:
        self.number = number

    def random(self) -> float:
        """Return the number."""
        return self.number


class RecordingChannel:
    """Records every message; raises the given errors first, one for each call.

    `attempts` holds every delivery that was passed to `send`, `sent` those that were accepted.
    """

    def __init__(self, name: str = "test", errors: Sequence[Exception] = ()) -> None:
        self.name = name
        self.errors = list(errors)
        self.attempts: list[Delivery] = []
        self.sent: list[Delivery] = []

    async def send(self, delivery: Delivery) -> None:
        """Record one message."""
        self.attempts.append(delivery)
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append(delivery)


class ScriptedRunner:
    """Runs the function that a test gives it, and tells in `begun` which attempts have begun."""

    keeps = False

    def __init__(
        self,
        routes: Sequence[str],
        act: Callable[[Assignment], Awaitable[AttemptReport]] | None = None,
    ) -> None:
        self._routes = list(routes)
        self._act = act
        self.begun: asyncio.Queue[Assignment] = asyncio.Queue()
        self.release = asyncio.Event()

    def routes(self) -> Sequence[str]:
        """Return the routes it was given."""
        return self._routes

    def queue_wait(self, run_id: int) -> float | None:  # noqa: ARG002
        """Return zero: every attempt begins at once."""
        return 0.0

    def detach(self, run_id: int) -> None:
        """Do nothing: no attempt goes on without this process."""

    async def run(self, assignment: Assignment) -> AttemptReport:
        """Call the function; without one, wait for `release` and report plain success."""
        self.begun.put_nowait(assignment)
        if self._act is not None:
            return await self._act(assignment)
        await self.release.wait()
        return DONE
