"""Bodies: carried chunk by chunk, so that nothing is held whose length a stranger chooses."""

from __future__ import annotations

import asyncio
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from rota.gateway.deadlines import Deadline
from rota.gateway.heads import BadHead, Body

CHUNK = 64 * 1024
_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})\r\n")


async def parts_of(reader: StreamReader, body: Body, seconds: float) -> AsyncIterator[bytes]:
    """Yield a body as it comes; raise TimeoutError when nothing comes for so long."""
    if body.chunked:
        async for part in _chunks(reader, seconds):
            yield part
        return
    left = body.length
    while left is None or left > 0:
        async with Deadline(seconds):
            part = await reader.read(CHUNK if left is None else min(CHUNK, left))
        if not part:
            if left is None:
                return
            raise asyncio.IncompleteReadError(b"", left)
        left = None if left is None else left - len(part)
        yield part


async def _chunks(reader: StreamReader, seconds: float) -> AsyncIterator[bytes]:
    while True:
        async with Deadline(seconds):
            found = _SIZE.fullmatch(await reader.readuntil(b"\r\n"))
        if found is None:
            raise BadHead("a chunk does not say how long it is")
        left = int(found[1], 16)
        if not left:
            break
        while left:
            async with Deadline(seconds):
                part = await reader.read(min(CHUNK, left))
            if not part:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(part)
            yield part
        async with Deadline(seconds):
            if await reader.readexactly(2) != b"\r\n":
                raise BadHead("a chunk is longer than it says")
    async with Deadline(seconds):
        if await reader.readexactly(2) != b"\r\n":
            raise BadHead("nothing may follow the last chunk")


async def carry(
    parts: AsyncIterator[bytes],
    writer: StreamWriter,
    body: Body,
    count: Callable[[int], None],
    seconds: float,
) -> None:
    """Send a body on, each part counted first; raise TimeoutError when nobody takes it."""
    chunked = body.chunked or body.length is None
    async for part in parts:
        count(len(part))
        await pour(writer, b"%x\r\n%b\r\n" % (len(part), part) if chunked else part, seconds)
    if chunked:
        await pour(writer, b"0\r\n\r\n", seconds)


async def pour(writer: StreamWriter, data: bytes, seconds: float) -> None:
    """Send bytes, and wait while too many of them are on the way."""
    writer.write(data)
    async with Deadline(seconds):
        await writer.drain()


async def part_from(
    reader: StreamReader, writer: StreamWriter, parting: float, stall: float
) -> None:
    """End what is said, let the other side run out, and let it take what was said, for so long.

    Closing on bytes that nobody read resets the connection, and whoever was sending them learns
    that instead of the answer. What nobody takes would be held, when it is closed, for ever.
    """
    with suppress(OSError):
        writer.write_eof()
        async with Deadline(parting):
            while await reader.read(CHUNK):
                pass
    writer.close()
    with suppress(OSError):
        async with Deadline(stall):
            await writer.wait_closed()
