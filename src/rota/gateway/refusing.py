"""Refusing: what a program is told of a request that is not carried out."""

from __future__ import annotations

import json

from rota.gateway.heads import written


class Turned(Exception):
    """A request is not carried out, and this is what its sender is told."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def refusal(turned: Turned) -> bytes:
    """Return the answer to a request that is not carried out, as clients of every provider read."""
    error = {"type": turned.code, "code": turned.code, "message": f"Rota: {turned}"}
    body = json.dumps({"type": "error", "error": error}).encode()
    headers = (
        ("content-type", "application/json"),
        ("content-length", str(len(body))),
        ("x-should-retry", "true" if turned.status >= 500 else "false"),  # noqa: PLR2004
        ("connection", "close"),
    )
    return written(f"HTTP/1.1 {turned.status} ", headers) + body
