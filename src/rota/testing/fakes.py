"""Fakes of the ports: chance that is fixed, a channel that records, a runner on strings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from rota.model.attempts import DONE, Assignment, AttemptReport
from rota.model.notifications import Delivery


class FixedChance:
    """Always the same number, so that a random part of a delay is known."""

    def __init__(self, number: float = 0.0) -> None:
        self.number = number

    def random(self) -> float:
        """Return the number."""
        return self.number


class RecordingChannel:
    """Takes messages, or raises what it was given to raise, first fault first."""

    def __init__(self, name: str = "test", faults: Sequence[Exception] = ()) -> None:
        self.name = name
        self.faults = list(faults)
        self.tried: list[Delivery] = []
        self.taken: list[Delivery] = []

    async def send(self, delivery: Delivery) -> None:
        """Record one message."""
        self.tried.append(delivery)
        if self.faults:
            raise self.faults.pop(0)
        self.taken.append(delivery)


class PuppetRunner:
    """Runs whatever a test gives it, and says when an attempt has begun."""

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
        """Return nothing: every attempt begins at once."""
        return 0.0

    def detach(self, run_id: int) -> None:
        """Nothing goes on without this process."""

    async def run(self, assignment: Assignment) -> AttemptReport:
        """Act, or wait until released and report plain success."""
        self.begun.put_nowait(assignment)
        if self._act is not None:
            return await self._act(assignment)
        await self.release.wait()
        return DONE
