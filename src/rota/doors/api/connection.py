"""What one connection may take of the server: the head of a request comes soon and is short.

uvicorn waits for ever for the rest of a head and, with httptools, keeps whatever comes. Here its
own protocol is watched from the outside; what comes after the head is the guard's business.
"""

from __future__ import annotations

import asyncio
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


class Connection(asyncio.Protocol):
    """Hands everything to uvicorn's protocol, and closes on whoever is too slow or too long."""

    def __init__(self, head_seconds: float, **given: Any) -> None:  # noqa: ANN401 - uvicorn's own
        self._inner: Any = AutoHTTPProtocol(**given)
        self._head_seconds = head_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._taken = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first head."""
        self._transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what came, and see whether it was the rest of a head."""
        before = self._inner.cycle
        self._inner.data_received(data)
        cycle = self._inner.cycle
        self._taken = self._taken + len(data) if cycle is before else 0
        if cycle is not None and not cycle.response_complete:
            self._wait_no_longer()
        elif self._timer is None and cycle is before:
            self._wait()
        in_head = cycle is None or (cycle.response_complete and not cycle.more_body)
        if self._taken > (LONGEST_HEAD if in_head else LONGEST_REQUEST):
            if in_head:
                self._transport.write(TOO_LONG)
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        self._wait_no_longer()
        self._inner.connection_lost(exc)

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
        self._timer = loop.call_later(self._head_seconds, self._close)

    def _wait_no_longer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self._wait_no_longer()
        self._transport.close()
