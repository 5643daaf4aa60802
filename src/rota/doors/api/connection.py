"""What connections may take of the server: heads come soon and are short, and idle ones make room.

uvicorn waits for ever for the rest of a head and, with httptools, keeps whatever comes. Here its
own protocol is watched from the outside; what comes after the head is the guard's business.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from rota.doors.api.bodies import LONGEST_OF_ALL

HEAD_SECONDS = 10.0
LONGEST_HEAD = 64 << 10
LONGEST_REQUEST = LONGEST_OF_ALL + (2 << 20)
"""With its framing: a short body that comes in pieces of one byte is six times as long."""
TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\n"
    b"connection: close\r\n\r\n"
)
NO_ROOM = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"content-length: 0\r\n"
    b"retry-after: 1\r\n"
    b"connection: close\r\n\r\n"
)


class Connections:
    """The open connections of a server, of which there are at most so many.

    One more makes room for itself: it closes the connection that was idle for longest among those
    that have shown no key, else among those of the space that has the most. So nobody keeps others
    out by holding connections open; only connections at work do.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[Connection, None] = {}

    def admit(self, connection: Connection) -> bool:
        """Count a connection; false if there are too many and all of them are at work."""
        while len(self._open) >= self._most:
            given_up = self._least_needed()
            if given_up is None:
                return False
            self.discard(given_up)
            given_up.close()
        self._open[connection] = None
        return True

    def renew(self, connection: Connection) -> None:
        """Count a connection as the youngest: a request has come on it."""
        if connection in self._open:
            del self._open[connection]
            self._open[connection] = None

    def discard(self, connection: Connection) -> None:
        """Count a connection no longer."""
        self._open.pop(connection, None)

    def _least_needed(self) -> Connection | None:
        idle: dict[str, Connection] = {}
        held: Counter[str] = Counter()
        for connection in self._open:
            space = connection.space
            if space is not None:
                held[space] += 1
            if connection.is_idle:
                if space is None:
                    return connection
                idle.setdefault(space, connection)
        return idle[max(idle, key=held.__getitem__)] if idle else None


class Connection(asyncio.Protocol):
    """Hands everything to uvicorn's protocol, and closes on whoever is too slow or too long."""

    def __init__(
        self,
        connections: Connections,
        head_seconds: float,
        **given: Any,  # noqa: ANN401 - uvicorn's own
    ) -> None:
        self._inner: Any = AutoHTTPProtocol(**given)
        self._connections = connections
        self._head_seconds = head_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._taken = 0

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        cycle = self._inner.cycle
        return cycle is None or cycle.response_complete

    @property
    def space(self) -> str | None:
        """The space that the last request came from; None if it has shown no key."""
        cycle = self._inner.cycle
        caller = None if cycle is None else cycle.scope.get("caller")
        return None if caller is None else caller.space

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first head."""
        self._transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(transport)
        if self._connections.admit(self):
            self._wait()
        else:
            self._transport.write(NO_ROOM)
            self.close()

    def data_received(self, data: bytes) -> None:
        """Take what came, and see whether it was the rest of a head."""
        before = self._inner.cycle
        self._inner.data_received(data)
        cycle = self._inner.cycle
        if cycle is not before:
            self._connections.renew(self)
        self._taken = self._taken + len(data) if cycle is before else 0
        if cycle is not None and not cycle.response_complete:
            self._wait_no_longer()
        elif self._timer is None and cycle is before:
            self._wait()
        in_head = cycle is None or (cycle.response_complete and not cycle.more_body)
        if self._taken > (LONGEST_HEAD if in_head else LONGEST_REQUEST):
            if in_head:
                self._transport.write(TOO_LONG)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        self._connections.discard(self)
        self._wait_no_longer()
        self._inner.connection_lost(exc)

    def close(self) -> None:
        """Take nothing more."""
        self._wait_no_longer()
        self._transport.close()

    def eof_received(self) -> None:
        """Say nothing more than uvicorn does."""
        self._inner.eof_received()

    def pause_writing(self) -> None:
        """Let answers wait for a slow reader."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Let answers go on."""
        self._inner.resume_writing()

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._head_seconds, self.close)

    def _wait_no_longer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
