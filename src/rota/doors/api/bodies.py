"""How long the bodies of requests may be, and how much of the long ones is held at once.

A body is held whole while its command is carried out. Short ones are bounded by the number of
connections; of long ones, which few commands take, only so many bytes are let in as memory has for
them, whoever sends them. What has no length in its head counts as short.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rota.model.keys import KeyScope
from rota.wiring.loop import return_memory

LONGEST_BODY = 1 << 20
LONGER = {("POST", "/v1/threads/{thread_key}/messages"): 14 << 20}
"""What takes more: 10 MiB of files are 13.4 MiB in base64, and there is a text beside them."""
LONGER_SCOPE = KeyScope.RUN
"""What opens it: who lacks that is turned away before any of it is held."""
LONGEST_OF_ALL = max(LONGER.values())
MOST_HELD = 2 * LONGEST_OF_ALL
MOST_OF_ONE = LONGEST_OF_ALL
"""How many bytes of long bodies are held at once, and how many of them for one caller."""
AGAIN_SECONDS = 2
_FIELD = re.compile(r"\\{\w+\\}")
_LONGER = [
    (method, re.compile(_FIELD.sub("[^/]+", re.escape(path))), most)
    for (method, path), most in LONGER.items()
]


class TooMany(NamedTuple):
    """Why a long body is not let in now."""

    status: int
    code: str
    message: str


def longest(method: str, path: str) -> int:
    """Return how many bytes the body of a request may have."""
    for known, pattern, most in _LONGER:
        if known == method and pattern.fullmatch(path):
            return most
    return LONGEST_BODY


class Bodies:
    """The long bodies that are held now, by who sent them."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """How many bytes are held."""
        return self._held.total()

    def refusal(self, caller: str, size: int) -> TooMany | None:
        """Return why a body of so many bytes is not let in now; None if it is."""
        if size <= LONGEST_BODY:
            return None
        if self._held[caller] + size > MOST_OF_ONE:
            message = f"one long request at a time: send it again in {AGAIN_SECONDS} s"
            return TooMany(429, "too_many_bodies", message)
        if self.held + size > MOST_HELD:
            message = f"others send long requests now: send it again in {AGAIN_SECONDS} s"
            return TooMany(503, "too_many_bodies", message)
        return None

    @contextmanager
    def holding(self, caller: str, size: int) -> Iterator[None]:
        """Count a body as held until the block is left."""
        counted = size if size > LONGEST_BODY else 0
        self._held[caller] += counted
        try:
            yield
        finally:
            self._held[caller] -= counted
            if self._held[caller] <= 0:
                del self._held[caller]
            if counted and not self.held:
                return_memory()
