"""The little of ASGI that the door needs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.errors import Unavailable

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

NO_CONTENT = 204


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whole; in JSON unless it says otherwise."""

    status: int
    body: bytes
    headers: Sequence[tuple[str, str]] = ()
    kind: str = "application/json"

    @classmethod
    def record(cls, status: int, value: object, headers: Sequence[tuple[str, str]] = ()) -> Reply:
        """Return a record as an answer."""
        return cls(status, json.dumps(value, ensure_ascii=False).encode(), headers)

    async def send(self, send: Send) -> None:
        """Give it to the server."""
        headers = [(name.encode(), value.encode("latin-1")) for name, value in self.headers]
        if self.status != NO_CONTENT:
            headers.append((b"content-type", self.kind.encode()))
            headers.append((b"content-length", str(len(self.body)).encode()))
        start = {"type": "http.response.start", "status": self.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body})


async def whole_body(receive: Receive) -> bytes:
    """Return the body of a request; the guard bounds it."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Unavailable("the caller has hung up")
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
