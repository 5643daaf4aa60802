"""What happened in one history: a line for every step that matters, and a hash over them all."""

from __future__ import annotations

import hashlib
import logging
import marshal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.tools.simulation.database import Change
from tests.tools.simulation.loop import SimLoop

LAST_LINES = 50
PLAIN = 2
"""The marshal version that writes equal values as equal bytes."""


class Violation(Exception):
    """A promise was broken; `rule` names it."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail


class History:
    """A trace: its last lines for people, its hash for comparing replays."""

    def __init__(self, loop: SimLoop, lines: int | None = LAST_LINES) -> None:
        self._loop = loop
        self._hash = hashlib.sha256()
        self.lines: deque[str] = deque(maxlen=lines)
        self.length = 0

    def note(self, who: str, what: str, changes: Sequence[Change] = ()) -> None:
        """Write down one step, with what it changed."""
        line = f"{self._loop.time():11.5f}  {who:<10} {what}"
        self._hash.update(line.encode())
        if changes:
            rows = [tuple(change.new) if change.new else None for change in changes]
            self._hash.update(marshal.dumps(rows, PLAIN))
            line = f"{line}  {_moves(changes)}"
        self.lines.append(line)
        self.length += 1

    @property
    def digest(self) -> str:
        """The hash over every line and every row written so far."""
        return self._hash.hexdigest()[:16]


def _moves(changes: Sequence[Change]) -> str:
    """Say in a few words what became of runs, schedules and deliveries."""
    words = []
    for change in changes:
        old, new = change.old, change.new
        if change.table == "runs" and new is not None:
            was = "" if old is None else f"{old.state}>"
            words.append(
                f"run {new.id} {was}{new.state}{(new.place and '/' + new.place) or ''} e{new.epoch}"
            )
        elif change.table == "deliveries" and new is not None:
            words.append(f"delivery {new.id} {new.state}")
        elif change.table == "schedules" and new is not None:
            words.append(f"schedule {new.id} g{new.generation} next {new.next_at}")
        elif change.table == "workers":
            words.append(f"worker {(new or old).id}{' fenced' if new and new.fenced else ''}")
        elif change.table == "ledger" and new is not None:
            words.append(f"ledger {new.schedule_id} {new.reason} x{new.count}")
    return "; ".join(words)


@contextmanager
def silence() -> Iterator[None]:
    """Keep the engine's log out of the way; the trace tells what happened."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
