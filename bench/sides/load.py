"""A client that asks the HTTP API as fast as it answers, over many connections at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

from bench.kit import percentile, serve


class Asker(asyncio.Protocol):
    """One connection: the next request goes out when the last one was answered."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._head = b""
        self._wanted = -1
        self._asked = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        assert self._transport is not None
        if self._load.left <= 0:
            self._transport.close()
            return
        self._load.left -= 1
        self._asked = time.perf_counter()
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        if self._wanted < 0:
            self._head += data
            head, end, body = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            lines = head.lower().split(b"\r\n")
            self._wanted = next(int(x[15:]) for x in lines if x.startswith(b"content-length:"))
            self._load.wrong += lines[0][9:10] != b"2"
            self._head = b""
            data = body
        self._wanted -= len(data)
        if self._wanted == 0:
            self._wanted = -1
            self._load.took.append(time.perf_counter() - self._asked)
            self._ask()

    def connection_lost(self, fault: Exception | None) -> None:  # noqa: ARG002
        self._load.open -= 1
        if self._load.open == 0:
            self._load.done.set()


class Load:
    """How much is asked, and how long each answer took."""

    def __init__(self, request: bytes, n: int, connections: int) -> None:
        self.request = request
        self.left = n
        self.open = connections
        self.took: list[float] = []
        self.wrong = 0
        self.done = asyncio.Event()


def ask(
    url: str, key: str, method: str, path: str, n: int, connections: int, body: str = ""
) -> dict[str, Any]:
    return asyncio.run(_ask(url, key, method, path, n, connections, body))


async def _ask(
    url: str, key: str, method: str, path: str, n: int, connections: int, body: str
) -> dict[str, Any]:
    place = urlsplit(url)
    lines = [f"{method} {path} HTTP/1.1", f"Host: {place.netloc}", f"Authorization: Bearer {key}"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body.encode())}"]
    load = Load("\r\n".join([*lines, "", body]).encode(), n, connections)
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    for _ in range(connections):
        await loop.create_connection(lambda: Asker(load), place.hostname, place.port)
    await load.done.wait()
    seconds = time.perf_counter() - began
    if load.wrong:
        raise RuntimeError(f"{load.wrong} of {n} requests were not answered with success")
    return {"rate": len(load.took) / seconds, "p99_ms": percentile(load.took, 99) * 1_000}


if __name__ == "__main__":
    serve(ask)
