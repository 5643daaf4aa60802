"""Permits: what an attempt may do at the gateway, by its token, for as long as it lives."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import time
from asyncio import StreamReader, StreamWriter
from dataclasses import dataclass, field

PREFIX = "sk-rota-"
MOST_AT_ONCE = 64
"""Connections of one attempt; more of them wait."""
SPARE = 4
"""Connections to upstreams that are kept for an attempt's next request."""
SPARE_SECONDS = 15.0
MOST_HELD = 8
"""Writes of one attempt under a name, whose requests and answers are held; more of them wait."""


def token_of(key: bytes, run_id: int, epoch: int) -> str:
    """Return the token of an attempt: the same in every process that has the home's key."""
    return PREFIX + hmac.digest(key, f"{run_id}.{epoch}".encode(), "sha256").hex()


def digest_of(token: str) -> str:
    """Return what the gateway knows of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class Spent(Exception):
    """An attempt has used all it may."""


@dataclass(slots=True)
class Spare:
    """A connection to an upstream that waits for the next request."""

    reader: StreamReader
    writer: StreamWriter
    since: float

    def drop(self) -> None:
        """Let go of it, and of what nobody has taken there."""
        self.writer.transport.abort()


@dataclass(slots=True, kw_only=True)
class Permit:
    """What one attempt may do.

    `ended` is the file that its keeper writes when it has ended; `until` is how long keepers may
    go on, in boot time, as they were promised. One that has walls comes by a door of its own, any
    other by a port of loopback. Writes under a name count for `scope`, in `space`; `since` is when
    its run was made, if an attempt before this one may have named some.
    """

    name: str
    digest: str
    upstreams: frozenset[str]
    ended: str
    port: int | None
    requests_left: int
    bytes_left: int
    until: float
    space: int
    scope: str
    since: float | None = None
    asked: int = 0
    carried: int = 0
    spares: dict[str, list[Spare]] = field(default_factory=dict)
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_HELD))

    def opens_for(self, token: str) -> bool:
        """Whether a token is the one of this attempt."""
        return hmac.compare_digest(self.digest, digest_of(token))

    @property
    def living(self) -> bool:
        """Whether the attempt goes on, as far as the files of its keeper tell."""
        if time.clock_gettime(time.CLOCK_BOOTTIME) > self.until:
            return False
        return not os.path.exists(self.ended)  # noqa: PTH110 - once for every request

    def ask(self) -> None:
        """Count a request."""
        if self.requests_left <= 0:
            raise Spent("this attempt has made all the requests it may")
        self.requests_left -= 1
        self.asked += 1

    def carry(self, count: int) -> None:
        """Count bytes, of either direction."""
        self.bytes_left -= count
        self.carried += count
        if self.bytes_left < 0:
            raise Spent("this attempt has sent and received all the bytes it may")

    def take(self, upstream: str, now: float) -> Spare | None:
        """Return a connection that is still good."""
        waiting = self.spares.get(upstream, [])
        while waiting:
            spare = waiting.pop()
            fresh = now - spare.since < SPARE_SECONDS
            if fresh and not spare.reader.at_eof() and not spare.writer.is_closing():
                return spare
            spare.drop()
        return None

    def keep(self, upstream: str, spare: Spare) -> None:
        """Keep a connection for the next request."""
        waiting = self.spares.setdefault(upstream, [])
        if len(waiting) < SPARE:
            waiting.append(spare)
        else:
            spare.drop()

    def close(self) -> None:
        """Let go of every connection that waits."""
        for waiting in self.spares.values():
            for spare in waiting:
                spare.drop()
        self.spares.clear()
