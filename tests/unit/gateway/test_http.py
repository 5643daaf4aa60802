"""HTTP as the gateway reads it: one meaning or no request, in time."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import socket

import pytest

from rota.gateway.http import (
    BodyLength,
    Deadline,
    InvalidHead,
    RequestHead,
    client_headers,
    read_request_head,
    read_response_head,
    upstream_headers,
)
from tests.unit.gateway.gateways import HEAD, PATIENT, Door

# heads

HOST = "Host: 127.0.0.1:7683\r\n"


def asking(first="GET /x/y HTTP/1.1", headers=HOST):
    return read_request_head(f"{first}\r\n{headers}\r\n".encode("latin-1"))


@pytest.mark.parametrize(
    "first",
    [
        *("GET  /x HTTP/1.1", "get /x HTTP/1.1", "GET /x", "GET /x HTTP/2", "GET /x HTTP/1.1 "),
        *("GET /x y HTTP/1.1", "GET /\x00 HTTP/1.1", "GET /\n HTTP/1.1", "", "GET \x7f HTTP/1.1"),
    ],
)
def test_a_request_has_one_first_line(first):
    with pytest.raises(InvalidHead):
        asking(first)


@pytest.mark.parametrize(
    "headers",
    [
        "",
        HOST + HOST,
        "Host: api.anthropic.com\r\n",
        "Host: 127.0.0.1.evil.com\r\n",
        "Host: 127.0.0.1:7683@evil\r\n",
        HOST + "Content-Length: 3\r\nContent-Length: 4\r\n",
        HOST + "Content-Length: +3\r\n",
        HOST + "Content-Length: 3, 3\r\n",
        HOST + "Content-Length: 0x3\r\n",
        HOST + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        HOST + "Transfer-Encoding: gzip, chunked\r\n",
        HOST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        HOST + "Transfer-Encoding: xchunked\r\n",
        HOST + "Content-Length : 3\r\n",
        HOST + " folded: yes\r\n",
        HOST + "a: b\x00c\r\n",
        HOST + "a: b\nc: d\r\n",
        HOST + "a: b\rc: d\r\n",
        HOST + "no colon\r\n",
        HOST + "a: b\r\n" * 200,
    ],
)
def test_a_head_has_one_reading(headers):
    with pytest.raises(InvalidHead):
        asking(headers=headers)


@pytest.mark.timeout(10)
def test_a_header_of_many_spaces_is_refused_at_once():
    """Everybody waits while one head is read."""
    with pytest.raises(InvalidHead):
        asking(headers=f"{HOST}a:{' ' * 60_000}\x00\r\n")


def test_an_ordinary_request_is_read():
    found = asking(
        "POST /a?b=c HTTP/1.1", HOST + "X-Api-Key:  k \r\nTransfer-Encoding: chunked\r\n"
    )
    assert (found.method, found.target, found.keep_alive) == ("POST", "/a?b=c", True)
    assert list(found.all("x-api-key")) == ["k"]
    assert found.body == BodyLength(length=None, chunked=True)
    assert not asking("GET / HTTP/1.0").keep_alive
    assert not asking(headers=HOST + "Connection: Close\r\n").keep_alive


def test_c5_nothing_that_a_program_says_about_who_it_is_goes_through():
    said = (
        "Authorization: Bearer mine\r\nX-Api-Key: mine\r\napi-key: mine\r\nCookie: a=mine\r\n"
        "X-Goog-Api-Key: mine\r\nOpenAI-Organization: mine\r\nX-Whatever-Token: mine\r\n"
        "Proxy-Authorization: mine\r\nX-Forwarded-For: mine\r\nConnection: x-api-key\r\n"
        "anthropic-version: 2023-06-01\r\nContent-Type: application/json\r\n"
    )
    told = upstream_headers(asking(headers=HOST + said), (), (("x-api-key", "real"),))
    assert dict(told) == {
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
        "x-api-key": "real",
    }


def test_what_an_operator_lets_through_never_replaces_the_key():
    told = upstream_headers(
        asking(headers=HOST + "x-api-key: mine\r\n"), ("x-api-key",), (("x-api-key", "r"),)
    )
    assert told == (("x-api-key", "r"),)


def answering(first="HTTP/1.1 200 OK", headers="", method="GET"):
    return read_response_head(f"{first}\r\n{headers}\r\n".encode("latin-1"), method)


def test_how_long_an_answer_is():
    assert answering(headers="Content-Length: 5\r\n").body == BodyLength(length=5)
    assert answering(headers="Transfer-Encoding: chunked\r\n").body.chunked
    ends = answering()
    assert (ends.body, ends.keep_alive) == (BodyLength(length=None), False)
    assert answering(method="HEAD", headers="Content-Length: 5\r\n").body.empty
    assert answering("HTTP/1.1 204 No Content").body.empty
    for wrong in ("HTTP/1.1 999 x", "HTTP/2 200", "ICY 200 OK", ""):
        with pytest.raises(InvalidHead):
            answering(wrong)


def test_an_answer_comes_without_cookies_and_what_is_between_neighbours():
    said = (
        "Set-Cookie: a=b\r\nConnection: x-hop, close\r\nX-Hop: 1\r\nContent-Length: 0\r\nA: b\r\n"
    )
    assert client_headers(answering(headers=said)) == (("a", "b"),)


# hostile heads

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


# deadlines

LONG = PATIENT._replace(answer=1000.0, stall=1000.0)


class HeldUp(asyncio.SelectorEventLoop):
    """A loop that can be told that it was held up for a while."""

    late = 0.0

    def time(self):
        return super().time() + self.late


def run(test):
    with asyncio.Runner(loop_factory=HeldUp) as runner:
        return runner.run(test)


def test_what_came_before_a_deadline_is_read_by_a_loop_that_looks_after_it():
    async def go():
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)

            async def read():
                async with Deadline(10):
                    return await reader.readexactly(1)

            reading = loop.create_task(read())
            await asyncio.sleep(0)
            theirs.send(b"x")
            loop.late += 60
            assert await reading == b"x"
            writer.close()

    run(go())


def test_a_deadline_ends_what_waits_for_nothing():
    async def go():
        loop = asyncio.get_running_loop()

        async def wait():
            async with Deadline(10):
                await asyncio.Event().wait()

        waiting = loop.create_task(wait())
        await asyncio.sleep(0)
        loop.late += 60
        with pytest.raises(TimeoutError):
            await waiting
        async with Deadline(10):
            loop.late += 60
        await asyncio.sleep(0)

    run(go())


def test_a_request_that_came_in_time_is_answered_by_a_gate_that_was_held_up(provider, tmp_path):
    door = Door(provider, tmp_path / "exit")
    door.exchange.timeouts = LONG
    asking = f"GET /models/v1/x HTTP/1.1\r\n{HEAD}\r\n".encode()

    async def go():
        loop = asyncio.get_running_loop()
        async with door.open() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(2):  # the second one finds the gate waiting for it
                writer.write(asking)
                loop.late += 60
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 ")
                length = head.lower().partition(b"content-length: ")[2].split()[0]
                await reader.readexactly(int(length))
                await asyncio.sleep(0)
            writer.close()

    run(go())
