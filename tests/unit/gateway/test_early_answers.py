"""An upstream that answers and hangs up before all was sent: heard to its last word, and told."""

from __future__ import annotations

import asyncio
import socket

from tests.unit.gateway.gateways import HEAD

REQUEST = f"GET /models/v1/x HTTP/1.1\r\n{HEAD}\r\n".encode()
BODY = REQUEST * ((16 << 20) // len(REQUEST))


def uploaded(door, path, times=1):
    """Return all that is answered to who sends a long body, and reads when it has sent it."""
    head = f"POST /models/v1/{path} HTTP/1.1\r\n{HEAD}Content-Length: {len(BODY)}\r\n\r\n"

    def upload(port):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
            line.sendall(head.encode() + BODY)
            return line.makefile("rb").read()

    async def go():
        async with door.open() as port:
            return [await asyncio.to_thread(upload, port) for _ in range(times)]

    return asyncio.run(go())


def test_what_is_left_of_an_upload_is_not_read_as_the_next_request(door, provider):
    (answer,) = uploaded(door, "early-empty")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert len(provider.script.noted) == 1


def test_an_early_answer_is_told_whole_though_its_upstream_hangs_up(door):
    for answer in uploaded(door, "early", times=10):
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.endswith(b'{"error": "no"}')


def test_an_early_answer_that_breaks_off_is_told_as_far_as_it_came(door):
    (answer,) = uploaded(door, "early-cut")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"data: half" in answer and not answer.endswith(b"0\r\n\r\n")
