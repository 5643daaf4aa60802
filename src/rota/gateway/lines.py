"""Lines to upstreams: who hangs up while it is sent to has perhaps said why, and is heard first."""

from __future__ import annotations

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterable
from ssl import SSLContext
from typing import TYPE_CHECKING

from rota.gateway.bodies import CHUNK

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


async def line_to(
    address: str, port: int, *, trust: SSLContext | None, host: str
) -> tuple[StreamReader, StreamWriter]:
    """Return a connection to an address; with `trust`, it must prove that it is the host."""
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    line = Line(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    line.setblocking(False)
    try:
        await loop.sock_connect(line, (address, port))
    except BaseException:
        line.close()
        raise
    reader = Hearing(limit=CHUNK, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(
        lambda: protocol, sock=line, ssl=trust, server_hostname=host if trust else None
    )
    return reader, StreamWriter(transport, protocol, reader, loop)


class Line(socket.socket):
    """A socket that tells of a hang-up to who reads, after all that was said, not to who sends.

    asyncio closes a connection at the first fault of either, with what nobody has read yet.
    """

    _fault: ConnectionError | None = None

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """Send; what nobody takes any more counts as sent."""
        try:
            return super().send(data, flags)
        except ConnectionError as fault:
            self._fault = fault
            return memoryview(data).nbytes

    def sendmsg(self, buffers: Iterable[ReadableBuffer], /, *_: object) -> int:
        """Send; what nobody takes any more counts as sent."""
        held = list(buffers)
        try:
            return super().sendmsg(held)
        except ConnectionError as fault:
            self._fault = fault
            return sum(memoryview(data).nbytes for data in held)

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Return what was said."""
        data = super().recv(size, flags)
        self._check(len(data))
        return data

    def recv_into(self, buffer: WriteableBuffer, size: int = 0, flags: int = 0, /) -> int:
        """Take what was said."""
        count = super().recv_into(buffer, size, flags)
        self._check(count)
        return count

    def _check(self, count: int) -> None:
        if not count and self._fault is not None:
            raise self._fault


class Hearing(StreamReader):
    """Gives all that was said before a fault, and then the fault."""

    _ended = False
    _fault: Exception | None = None

    def feed_eof(self) -> None:
        """Take note that all was said."""
        self._ended = True
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        """Take note of a fault, which is none after all was said."""
        self._fault = None if self._ended else exc
        super().feed_eof()

    async def read(self, n: int = -1) -> bytes:
        """Return what was said; nothing, when all was."""
        part = await super().read(n)
        if not part and self._fault is not None:
            raise self._fault
        return part
