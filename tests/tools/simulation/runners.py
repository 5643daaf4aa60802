"""Work that behaves as badly as work does, and a channel that is no better."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from random import Random

from rota.model.attempts import (
    DONE,
    Assignment,
    AttemptReport,
    Failed,
    OutgoingMessage,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.notifications import Delivery
from rota.ports.channel import ChannelRefused
from tests.tools.simulation.faults import Sea
from tests.tools.simulation.history import Violation
from tests.tools.simulation.processes import Process

ROUTE = "sim:work"
OTHER_ROUTE = "sim:other"
FOR_EVER = 10_000.0
WAYS = {
    "succeed": 8,
    "at once": 6,
    "slow": 4,
    "fail": 4,
    "fail for good": 1,
    "raise": 2,
    "exit": 1,
    "cancel itself": 1,
    "hang": 1,
    "flood": 1,
    "ask": 3,
    "ignore the stop": 2,
}
"""What an attempt does, and how often."""


class Works:
    """What all runners and channels of a history share: chance, and who works on what."""

    def __init__(self, sea: Sea, chance: Random) -> None:
        self.sea = sea
        self.chance = chance
        self.working: Counter[int] = Counter()
        self._ways = [way for way, times in WAYS.items() for _ in range(times)]

    def way(self) -> str:
        """Draw what an attempt does; in a healed world all work is well-behaved."""
        if self.sea.healed.is_set():
            return "at once"
        return self._ways[int(self.chance.random() * len(self._ways))]


class SimRunner:
    """Runs attempts of one process."""

    keeps = False

    def __init__(self, works: Works, process: Process, routes: Sequence[str]) -> None:
        self._works = works
        self._process = process
        self._routes = list(routes)

    def routes(self) -> Sequence[str]:
        """Return the routes it was given."""
        return self._routes

    def queue_wait(self, run_id: int) -> float | None:
        """Return nothing: every attempt begins at once."""
        return 0.0

    def detach(self, run_id: int) -> None:
        """Nothing goes on without this process."""

    async def run(self, assignment: Assignment) -> AttemptReport:
        """Do whatever this attempt was drawn to do."""
        works, sea, lease = self._works, self._works.sea, assignment.lease
        way = works.way()
        sea.history.note(self._process.name, f"run {lease.run_id} e{lease.epoch}: {way}")
        try:
            sea.checker.began(lease.run_id, lease.epoch)
        except Violation as violation:
            sea.loop.fail(violation)
        works.working[lease.run_id] += 1
        if works.working[lease.run_id] > 1:
            sea.sometimes.hit("two attempts of a run work at the same time")
        try:
            report = await self._act(way, assignment)
        finally:
            works.working[lease.run_id] -= 1
        if isinstance(report.outcome, Succeeded):
            sea.checker.reports[lease.run_id, lease.epoch] = report.outcome.result
        return report

    async def _act(self, way: str, assignment: Assignment) -> AttemptReport:
        span = self._works.chance.random()
        match way:
            case "at once":
                return DONE
            case "hang":
                await self._works.sea.wait(FOR_EVER)
            case "slow":
                await self._works.sea.wait(10 + 50 * span)
            case "ignore the stop":
                await self._stubborn(3 + 20 * span)
            case _:
                await asyncio.sleep(3 * span)
        return _report(way, assignment, timedelta(seconds=2 + 30 * span))

    async def _stubborn(self, seconds: float) -> None:
        """Work for some time, whoever wants it stopped."""
        sea = self._works.sea
        until = sea.loop.time() + seconds
        while sea.loop.time() < until:
            try:
                await asyncio.sleep(until - sea.loop.time())
            except asyncio.CancelledError:
                sea.history.note(self._process.name, "does not listen")


def _report(way: str, assignment: Assignment, patience: timedelta) -> AttemptReport:
    epoch = assignment.lease.epoch
    match way:
        case "fail" | "fail for good":
            failed = Failed(code="broken", message="it broke", retryable=way == "fail")
            return AttemptReport(outcome=failed)
        case "raise":
            message = "the work raised"
            raise LookupError(message)
        case "exit":
            raise SystemExit(3)
        case "cancel itself":
            raise asyncio.CancelledError
        case "flood":
            return _flood(epoch)
        case "ask" if len(assignment.answers) < 2:
            question = WaitingForAnswer(
                question="Go on?", options=("yes", "no"), expires_in=patience
            )
            return AttemptReport(outcome=question)
        case _:
            return AttemptReport(outcome=Succeeded(result=json.dumps({"epoch": epoch})))


def _flood(epoch: int) -> AttemptReport:
    messages = tuple(
        OutgoingMessage(
            client_id=f"m{number}", channel="test", target=f"t{number % 3}", body="x" * 100
        )
        for number in range(12)
    )
    result = json.dumps({"epoch": epoch, "text": "x" * 5_000})
    return AttemptReport(outcome=Succeeded(result=result), messages=messages)


class SimChannel:
    """Takes messages, refuses them, or leaves everybody guessing."""

    name = "test"

    def __init__(self, works: Works) -> None:
        self._works = works

    async def send(self, delivery: Delivery) -> None:
        """Send one message, perhaps."""
        works = self._works
        drawn = 1.0 if works.sea.healed.is_set() else works.chance.random()
        await asyncio.sleep(0.05)
        if drawn < 0.1:
            message = "come back later"
            raise ChannelRefused(message)
        if drawn < 0.13:
            message = "never"
            raise ChannelRefused(message, final=True)
        if drawn < 0.17:
            await works.sea.wait(60)
        self._take(delivery)
        if drawn < 0.25:
            message = "the line went dead after the message had been taken"
            raise ConnectionError(message)

    def _take(self, delivery: Delivery) -> None:
        taken = self._works.sea.checker.taken
        taken[delivery.dedupe_key] += 1
        if taken[delivery.dedupe_key] > 1:
            detail = f"delivery {delivery.id} was taken {taken[delivery.dedupe_key]} times"
            self._works.sea.loop.fail(Violation("a message is sent once", detail))
