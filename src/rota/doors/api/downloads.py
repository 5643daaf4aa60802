"""Artifacts as they are: bytes that untrusted programs wrote, which no browser shows.

The route stands beside the catalogue, because bytes are no record.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from urllib.parse import quote

from rota.doors.api.asgi import Receive, Send
from rota.doors.api.sending import SENDING_SECONDS, while_read
from rota.errors import Unavailable
from rota.ports.artifacts import Opened

PATH = "/v1/runs/{run}/artifacts/{name}"
CHUNK = 64 * 1024
MOST_AT_ONCE = 32

_PATTERN = re.compile(r"/v1/runs/(?P<run>[^/]+)/artifacts/(?P<name>.+)", re.DOTALL)


def find_download(path: str) -> dict[str, str] | None:
    """Return what stands in the path of a download; a name may have slashes."""
    match = _PATTERN.fullmatch(path)
    return None if match is None else match.groupdict()


class Downloads:
    """Counts those that are under way."""

    def __init__(self) -> None:
        self.under_way = 0

    def begin(self, opened: Opened, receive: Receive) -> Download:
        """Return the answer that hands a file out and closes it."""
        if self.under_way >= MOST_AT_ONCE:
            opened.file.close()
            raise Unavailable("too many artifacts are fetched at once: try again")
        self.under_way += 1
        return Download(self, opened, receive)


class Download:
    """A file as an answer, read while it is sent."""

    def __init__(self, all_of_them: Downloads, opened: Opened, receive: Receive) -> None:
        self._all = all_of_them
        self._opened = opened
        self._receive = receive

    async def send(self, send: Send) -> None:
        """Send it, until it is through or nobody reads any more."""
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
        with suppress(TimeoutError):  # whoever does not read has hung up
            while left:
                part = await asyncio.to_thread(file.read, min(CHUNK, left))
                if not part:
                    return  # it was cut while it was read: the answer breaks off
                left -= len(part)
                async with asyncio.timeout(SENDING_SECONDS):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
