"""ASGI responses: whole bodies, slow clients and downloads.

The download of an artifact has a route of its own, because it returns bytes and not a record.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from rota.errors import Unavailable
from rota.ports.host import OpenArtifact

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

NO_CONTENT = 204


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response, JSON by default."""

    status: int
    body: bytes
    headers: Sequence[tuple[str, str]] = ()
    kind: str = "application/json"

    @classmethod
    def record(
        cls, status: int, value: object, headers: Sequence[tuple[str, str]] = ()
    ) -> HttpResponse:
        """Return a response with a record as JSON."""
        return cls(status, json.dumps(value, ensure_ascii=False).encode(), headers)

    async def send(self, send: Send) -> None:
        """Send the response to the ASGI server."""
        headers = [(name.encode(), value.encode("latin-1")) for name, value in self.headers]
        if self.status != NO_CONTENT:
            headers.append((b"content-type", self.kind.encode()))
            headers.append((b"content-length", str(len(self.body)).encode()))
        start = {"type": "http.response.start", "status": self.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body})


async def whole_body(receive: Receive) -> bytes:
    """Read the body of a request; the middleware limits its size."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Unavailable("the client has closed the connection")
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


SENDING_SECONDS = 30.0
"""Seconds after which a client that does not read is disconnected."""


async def while_read(writing: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Run a writer until it ends or the client closes the connection."""
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(writing), loop.create_task(_hung_up(receive))}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


PATH = "/v1/runs/{run}/artifacts/{name}"
CHUNK = 64 * 1024
MAX_CONCURRENT = 32

_PATTERN = re.compile(r"/v1/runs/(?P<run>[^/]+)/artifacts/(?P<name>.+)", re.DOTALL)


def find_download(path: str) -> dict[str, str] | None:
    """Return the fields in the path of a download; the name may contain slashes."""
    match = _PATTERN.fullmatch(path)
    return None if match is None else match.groupdict()


class Downloads:
    """Limits the number of simultaneous downloads."""

    def __init__(self) -> None:
        self.under_way = 0

    def begin(self, opened: OpenArtifact, receive: Receive) -> Download:
        """Return the response that sends an opened file and closes it."""
        if self.under_way >= MAX_CONCURRENT:
            opened.file.close()
            raise Unavailable("too many downloads at once: try again")
        self.under_way += 1
        return Download(self, opened, receive)


class Download:
    """A response that reads a file while it sends it."""

    def __init__(self, all_of_them: Downloads, opened: OpenArtifact, receive: Receive) -> None:
        self._all = all_of_them
        self._opened = opened
        self._receive = receive

    async def send(self, send: Send) -> None:
        """Send the file until its end or until the client stops reading."""
        try:
            await while_read(self._write(send), self._receive)
        finally:
            self._opened.file.close()
            self._all.under_way -= 1

    async def _write(self, send: Send) -> None:
        artifact, file = self._opened
        named = quote(artifact.name.rpartition("/")[2], safe="")
        headers = [
            (b"content-type", b"application/octet-stream"),
            (b"content-length", str(artifact.size).encode()),
            (b"content-disposition", f"attachment; filename*=UTF-8''{named}".encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        left = artifact.size
        with suppress(TimeoutError):  # a client that does not read counts as disconnected
            while left:
                part = await asyncio.to_thread(file.read, min(CHUNK, left))
                if not part:
                    return  # the file became shorter while it was read, so the response ends early
                left -= len(part)
                async with asyncio.timeout(SENDING_SECONDS):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
