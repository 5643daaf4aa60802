"""Where a reader of events stands: an opaque text that only its own database understands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from rota.model.events import Event

_TEXT = re.compile(r"([0-9a-f]{1,64})-([0-9a-f]{1,16})-([0-9a-f]{1,16})")


class Position(NamedTuple):
    """A place in the order in which events can be read; it never gets an earlier neighbour.

    Where commits happen one at a time the id says it all, and `transaction` is 0.
    """

    transaction: int
    event: int


START = Position(0, 0)


def cursor_at(incarnation: str, position: Position) -> str:
    """Return the text that stands for a position in a database."""
    return f"{incarnation}-{position.transaction:x}-{position.event:x}"


def position_of(cursor: str, incarnation: str) -> Position | None:
    """Return the position that a text stands for, or None if another database has made it."""
    found = _TEXT.fullmatch(cursor)
    if found is None or found[1] != incarnation:
        return None
    return Position(int(found[2], 16), int(found[3], 16))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events in order, each with its position, and where to go on.

    `gap` says that what follows the cursor is not known any more: it is of another incarnation, or
    retention has taken events after it. `more` says that the page was full, and `hidden` that there
    are newer events which a transaction that still runs keeps back.
    """

    events: tuple[tuple[Position, Event], ...]
    position: Position
    gap: bool = False
    more: bool = False
    hidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTally:
    """How many events there were after a position, and where to go on.

    `events` counts by name and, for runs that ended, state. `late` counts runs of slots that ended
    at their first attempt by how late they began: a bucket, how many, and microseconds in all.
    """

    events: tuple[tuple[str, str, int], ...]
    late: tuple[tuple[int, int, int], ...]
    position: Position
    more: bool = False
