"""When everything was paused: nothing new began, and slots that came due did not run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

MOST_PAUSES = 500


class Pause(NamedTuple):
    """A span in which everything was paused; without an end it goes on."""

    since: int
    until: int | None

    def holds(self, instant: int) -> bool:
        """Whether an instant lies in it."""
        return self.since <= instant and (self.until is None or instant < self.until)


Pauses = tuple[Pause, ...]
"""Those that may still matter, oldest first; only the last one can be without an end."""


def paused_since(pauses: Pauses) -> int | None:
    """Return since when everything has been paused, if it is."""
    return pauses[-1].since if pauses and pauses[-1].until is None else None


def was_paused(pauses: Pauses, instant: int) -> bool:
    """Return whether everything was paused at an instant."""
    return any(pause.holds(instant) for pause in pauses)


@lru_cache(maxsize=16)
def read_pauses(ended: str | None, going_on: str | None) -> Pauses:
    """Return pauses as a store keeps them."""
    pauses = [Pause(since, until) for since, until in json.loads(ended or "[]")]
    if going_on is not None:
        pauses.append(Pause(int(going_on), None))
    return tuple(pauses)


def write_pauses(pauses: Iterable[Pause]) -> str:
    """Return ended pauses as a store keeps them.

    Beyond a bound the oldest become one: what lies between them was planned by nobody either.
    """
    kept = list(pauses)
    while len(kept) > MOST_PAUSES:
        kept[:2] = [Pause(kept[0].since, kept[1].until)]
    return json.dumps(kept)
