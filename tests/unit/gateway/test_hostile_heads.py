"""Whatever a program writes into the head of a request, the gateway refuses it in one sentence."""

from __future__ import annotations

import asyncio
import logging
import random
import re

import pytest

from rota.gateway.http import InvalidHead, RequestHead, read_request_head, read_response_head
from tests.unit.gateway.gateways import Door

USUAL = {"host": b"Host: 127.0.0.1", "x-api-key": b"X-Api-Key: sk-rota-1"}
NAMES = [
    *("Host", "X-Api-Key", "Authorization", "Content-Length", "Transfer-Encoding", "Connection"),
    *("Content-Type", "Expect", "Upgrade", "Range", "If-Match", "Idempotency-Key", "Rota-Effect"),
    *("Origin", "Cookie", "Forwarded", "Accept", "TE", "X-Goog-Api-Key", "", "A B", "Ünïcode"),
]
VALUES = [
    *(b"", b"[", b"http://[", b"\xff\xfe", b"\xb2", b"9" * 30, b"9" * 5000, b"-1", b"+1", b"1_0"),
    *(b"Bearer", b"Bearer \xff", b"a" * 9000, b"chunked, chunked", b"identity", b"\x00", b"\x7f"),
    *(
        b"127.0.0.1:9999999",
        b"[::1]",
        b"close,,",
        b"100-continue",
        b"websocket",
        b"0",
        b"1",
        b"\x01",
    ),
]
FIRST = [
    *(b"", b"GET", b"GET / HTTP/9.9", b"GET /models/%zz HTTP/1.1", b"GET //[ HTTP/1.1"),
    *(b"GET /models/\xff HTTP/1.1", b"GET http://[/ HTTP/1.1", b"CONNECT [:1 HTTP/1.1", b"\x00"),
    *(b"GET /models/v1/x?" + query + b" HTTP/1.1" for query in (b"%ff", b"%", b"a=%zz", b"&" * 300)),
    *(b"GET /models/v1/..%2f..%2f HTTP/1.1", b"GET /%6dodels/v1/x HTTP/1.1", b"OPTIONS * HTTP/1.1"),
]  # fmt: skip


def heads():
    chance = random.Random(20)
    for line in [*FIRST, *(chance.randbytes(n) for n in range(1, 40))]:
        yield b"\r\n".join([line, *USUAL.values()])
    for name in NAMES:
        rest = [given for known, given in USUAL.items() if known != name.lower()]
        for value in [*VALUES, *(chance.randbytes(20) for _ in range(4))]:
            line = name.encode() + b": " + value
            yield b"\r\n".join([b"GET /models/v1/x HTTP/1.1", *rest, line])


@pytest.mark.parametrize("read", [read_request_head, lambda head: read_response_head(head, "GET")])
def test_a_head_is_read_or_refused(read):
    for head in heads():
        for given in (head, head.replace(b"GET /models/v1/x HTTP/1.1", b"HTTP/1.1 200 OK")):
            try:
                found = read(given + b"\r\n\r\n")
            except InvalidHead:
                continue
            assert not isinstance(found, RequestHead) or found.target.isascii()


def test_no_head_is_a_fault_of_the_gateway(provider, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    door = Door(provider, tmp_path / "exit", requests_left=10_000)

    async def say(port, head):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + b"\r\nConnection: close\r\n\r\n")
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    async def go():
        async with door.open() as port:
            for head in heads():
                answer = await say(port, head)
                status = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
                assert status is None or status[1] != b"500", (head, answer)
                assert status is not None or not answer, (head, answer)

    asyncio.run(go())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
