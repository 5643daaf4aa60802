"""How long the bodies of requests may be, and how much of the long ones is held at once.

A body is held whole while its command is carried out. Small ones are bounded by the number of
requests; of the others only so many bytes are let in from one space, and of long ones, which few
commands take, only as many as memory has for them. What has no length in its head counts as the
longest that it may be. Bodies that are not small are read one after the other, because nothing else
goes on while one is read.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from rota.doors.kit.json_size import MOST_VALUES, has_too_many_values
from rota.errors import Invalid
from rota.model.keys import KeyScope
from rota.wiring.loop import return_memory

SMALL_BODY = 64 << 10
LONGEST_BODY = 1 << 20
LONGER = {("POST", "/v1/threads/{thread_key}/messages"): 14 << 20}
"""What takes more: 10 MiB of files are 13.4 MiB in base64, and there is a text beside them."""
LONGER_SCOPE = KeyScope.RUN
"""What opens it: who lacks that is turned away before any of it is held."""
LONGEST_OF_ALL = max(LONGER.values())
MOST_HELD = 2 * LONGEST_OF_ALL
"""How many bytes of long bodies are held at once."""
MOST_OF_SPACE = LONGEST_OF_ALL
"""How many bytes of bodies that are not small are held at once for one space."""
AGAIN_SECONDS = 2
_FIELD = re.compile(r"\\{\w+\\}")
_LONGER = [
    (method, re.compile(_FIELD.sub("[^/]+", re.escape(path))), most)
    for (method, path), most in LONGER.items()
]

Read = TypeVar("Read")


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
    """The bodies that are held now and are not small, by the space they came from."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._long = 0

    @property
    def held(self) -> int:
        """How many bytes are held."""
        return self._held.total()

    def refusal(self, space: str, size: int) -> TooMany | None:
        """Return why a body of so many bytes is not let in now; None if it is."""
        if size <= SMALL_BODY:
            return None
        if self._held[space] + size > MOST_OF_SPACE:
            message = f"your space sends long requests now: send it again in {AGAIN_SECONDS} s"
            return TooMany(429, "too_many_bodies", message)
        if size > LONGEST_BODY and self._long + size > MOST_HELD:
            message = f"others send long requests now: send it again in {AGAIN_SECONDS} s"
            return TooMany(503, "too_many_bodies", message)
        return None

    @contextmanager
    def holding(self, space: str, size: int) -> Iterator[None]:
        """Count a body as held until the block is left."""
        if size <= SMALL_BODY:
            yield
            return
        long = size if size > LONGEST_BODY else 0
        self._held[space] += size
        self._long += long
        try:
            yield
        finally:
            self._held[space] -= size
            self._long -= long
            if self._held[space] <= 0:
                del self._held[space]
            if long and not self._long:
                return_memory()


class Reading:
    """Reads bodies that are not small in turn, and rests after each for as long as it took.

    A thread would not help: the parser keeps the interpreter to itself until it has ended.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def read(self, body: bytes, how: Callable[[bytes], Read]) -> Read:
        """Return what a body says, unless it says too much."""
        if len(body) <= SMALL_BODY:
            return how(body)
        if has_too_many_values(body):
            raise Invalid("body", "", f"give at most {MOST_VALUES} values")
        async with self._turn:
            began = time.monotonic()
            try:
                return how(body)
            finally:
                await asyncio.sleep(time.monotonic() - began)
