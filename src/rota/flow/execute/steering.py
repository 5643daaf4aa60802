"""Steering: what is said while a program works reaches it on its input.

The file its keeper feeds it from is the record of what it was told: each message is a line there,
once, in its order. A process that was killed in the middle of a line writes the same line again,
over itself. Nothing is written once the input has ended.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from rota.flow.execute.readying import Ready
from rota.model.keeping import Kept
from rota.model.messages import ThreadMessage
from rota.ports.agent import Room, Steerable
from rota.ports.runner import Assignment
from rota.ports.yard import Yard

log = logging.getLogger(__name__)


def steerable(ready: Ready) -> Steerable | None:
    """Return the agent of an attempt if it takes messages while it works."""
    agent: object = ready.agent
    return agent if isinstance(agent, Steerable) and agent.steers(ready.wish) else None


def steered(ready: Ready, assignment: Assignment) -> Room:
    """Return the room of a try, whose input stays open if something may come there."""
    steers = assignment.lease.thread is not None and steerable(ready) is not None
    return replace(ready.room, steered=True) if steers else ready.room


class Steer:
    """The input of one try."""

    def __init__(self, yard: Yard, kept: Kept, agent: Steerable, files: str | None = None) -> None:
        self._yard = yard
        self._agent = agent
        self._files = files
        self.kept = kept
        self.taken = 0
        """The last message that is on record as taken."""
        self._given: list[int] = []
        self._lines: set[bytes] = set()
        self._wanted: list[bytes] = []
        self._at = 0
        self._torn = b""
        self._ended = True
        self._look()
        self._ring()

    def _ring(self) -> None:
        """Have what lies there read: who put it there may have been killed before it rang."""
        try:
            self._yard.write(self.kept, self._at + len(self._torn), b"", end=self._ended)
        except OSError as fault:
            log.warning("run.not_told", extra={"run_id": self.kept.run_id, "error": str(fault)})

    def _look(self) -> None:
        """Learn what lies there, whoever has put it there."""
        data, self._ended = self._yard.input(self.kept)
        *whole, self._torn = data.split(b"\n")
        self._at = len(data) - len(self._torn)
        self._lines = {line + b"\n" for line in whole}
        found = (self._agent.message_in(line) for line in whole)
        self._given = [number for number in found if number is not None]

    def has(self, message: ThreadMessage) -> bool:
        """Whether a message is there."""
        return message.id in self._given

    async def put(self, message: ThreadMessage) -> int | None:
        """Put a message there unless it is there, and return its number; None if it has ended."""
        if self.has(message):
            return self._given.index(message.id) + 1
        if not self._write(self._agent.line(message, self._files)):
            return None
        self._given.append(message.id)
        self._write_wanted()
        return len(self._given)

    def want(self, line: str) -> None:
        """Put a line there that the program must be told, unless it is there.

        Behind a line that was torn it has to wait until that is whole.
        """
        self._wanted.append(line.encode())
        self._write_wanted()

    def _write_wanted(self) -> None:
        while self._wanted and (self._wanted[0] in self._lines or self._write(self._wanted[0])):
            self._wanted.pop(0)

    def _write(self, line: bytes) -> bool:
        """Put a line there; false if the input has ended or takes nothing now."""
        if self._ended or not line.startswith(self._torn):
            return False
        try:
            self._yard.write(self.kept, self._at, line)
        except OSError as fault:
            log.warning("run.not_told", extra={"run_id": self.kept.run_id, "error": str(fault)})
            self._look()
            return False
        self._at, self._torn = self._at + len(line), b""
        self._lines.add(line)
        return True

    def upto(self, taken: int) -> int:
        """Return the last message that was given of those up to one that was taken."""
        return max((number for number in self._given if number <= taken), default=0)

    def close_unless_more(self) -> None:
        """End the input of a program that has done all it was told, unless more lies there."""
        if max(self._given, default=0) <= self.taken:
            self.close()

    def close(self) -> None:
        """End the input: what was not taken from there will not be."""
        if not self._ended:
            self._yard.write(self.kept, self._at, b"", end=True)
            self._ended = True
