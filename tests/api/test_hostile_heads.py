"""Whatever stands in the head of a request: no fault of the server, and no traceback in its log."""

from __future__ import annotations

import logging
import random
import re
import socket

import pytest

from rota.api.middleware import TrustedHosts
from rota.api.refusals import MOST_A_SECOND, SERVER, RefusalLimit, log
from rota.commands.catalogue import every_command
from tests.api.conftest import PATIENCE

HOST = b"Host: 127.0.0.1"
NAMES = [
    *("Host", "Origin", "Referer", "Cookie", "Authorization", "Content-Type", "Content-Length"),
    *("Content-Encoding", "Transfer-Encoding", "TE", "Trailer", "Expect", "Upgrade", "Connection"),
    *("Last-Event-ID", "If-Match", "If-None-Match", "If-Modified-Since", "Idempotency-Key"),
    *("Rota-Dry-Run", "Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Range"),
    *("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Via", "Date"),
    *("Sec-Fetch-Site", "Sec-WebSocket-Key", "Mcp-Session-Id", "Mcp-Protocol-Version"),
    *("Mcp-Method", "Mcp-Name", "User-Agent", "Priority", "Max-Forwards", "", "X:Y", "Ünïcode"),
]
VALUES = [
    *(
        b"",
        b" ",
        b"\t",
        b"[",
        b"]",
        b"http://[",
        b"http://[::1",
        b"http://[v1.x]",
        b"//[",
        b"http://",
    ),
    *(b"http://a:99999", b"http://a:x", b"http://\xff", b"null", b"*", b"\xff\xfe", b"\xc2\xb2"),
    *(b"\xb2", b"%5b", b"-1", b"0", b"1", b"9" * 30, b"9" * 5000, b"0x10", b"1e9", b"1,1", b"NaN"),
    *(b"[::1]:x", b"[:::::]", b"[1:2", b"127.0.0.1:999999", b"a" * 9000, b"a," * 3000, b"chunked"),
    *(b"Bearer", b"Bearer ", b"Bearer \xff", b"bearer rota_00000000_" + b"A" * 43, b"Basic =="),
    *(b"Bearer rota_00000000_" + b"-" * 43, b"Bearer rota-1-1-x", b"Bearer rota_run_1.1.x"),
    *(b"application/json; charset=\xff", b"application/json;charset=utf-99", b"text/\x80", b";"),
    *(b"bytes=-", b"bytes=9-1", b"websocket", b"upgrade", b"100-continue", b'W/"', b'"\xff"'),
    *(b"for=[::1", b"for=\x80", b"::1%eth0", b"1.2.3", b"fe80::%", b"\x01", b"\x7f", b"\x00"),
    *(b"0-0-0", b"f" * 64 + b"-" + b"f" * 16 + b"-" + b"f" * 16, b"{}", b"=?utf-8?q?=ff?="),
]
LINES = [
    *(b"", b" ", b"GET", b"GET /", b"GET / HTTP/9.9", b"GET / HTTP/1.", b"get / HTTP/1.1"),
    *(b"GET  / HTTP/1.1", b"GET\t/\tHTTP/1.1", b"\x00", b"\xff\xff\xff\xff", b"\x16\x03\x01\x02"),
    *(b"CONNECT a:1 HTTP/1.1", b"CONNECT [ HTTP/1.1", b"OPTIONS * HTTP/1.1", b"PRI * HTTP/2.0"),
    *(b"GET * HTTP/1.1", b"GET http://[ HTTP/1.1", b"GET http://a HTTP/1.1", b"GET //[ HTTP/1.1"),
    *(b"GET http://[::1/ HTTP/1.1", b"GET ? HTTP/1.1", b"GET # HTTP/1.1", b"GET a HTTP/1.1"),
    *(b"GET /\x80 HTTP/1.1", b"GET /\xc3\xa4 HTTP/1.1", b"GET /%f0%9f HTTP/1.1", b"GET /a#b HTTP/1.1"),
    *(b"M-SEARCH * HTTP/1.1", b"A" * 300 + b" / HTTP/1.1", b"GET /" + b"a" * 9000 + b" HTTP/1.1"),
    *(b"GET /v1/tasks?" + q + b" HTTP/1.1" for q in (
        b"%ff=1", b"a=%ff", b"%zz", b"limit=%C2%B2", b"limit=" + b"9" * 5000, b"a&" * 200, b"=", b";",
        b"before=\xb2", b"space=%ED%A0%80", b"space=%00", b"limit=1&limit=2", b"text=%C0%AE", b"?")),
]  # fmt: skip
PIECES = [
    *("%C2%B2", "%D9%A1", "%ff", "%ED%A0%80", "%00", "%", "%zz", "%2f", "..", "-1", "0", "1.5"),
    *("9" * 19, "9" * 5000, "1_0", "%20", "%0d%0a", "[", "%F0%9F%98%80", "a" * 300, ";", "%5b"),
]
WHOLE_HEAD = re.compile(rb"HTTP/1\.1 (\d{3}) ")


@pytest.fixture
def bounds():
    return {"body_seconds": 0.05}


@pytest.fixture
def trust():
    return TrustedHosts(proxies=frozenset({"127.0.0.1"}))


@pytest.fixture
def heard(caplog):
    """Fail for every traceback and every error in any log."""
    caplog.set_level(logging.INFO)
    yield caplog
    told = [record for record in caplog.records if record.exc_info or record.levelno >= 40]
    assert not told, told[0].exc_text or told[0].getMessage()


@pytest.fixture(params=["nobody", "main"])
def key(request, door):
    token = getattr(door, request.param).token
    return [] if token is None else [f"Authorization: Bearer {token}".encode()]


def status_of(door, *lines, body=b""):
    """Return the status of the answer to a head; None where the server only closed."""
    head = b"\r\n".join([*lines, b"Connection: close", b"", b""])
    answer = b""
    with socket.create_connection(("127.0.0.1", door.port), PATIENCE) as wire:
        try:
            wire.sendall(head + body)
            while b"\r\n\r\n" not in answer and (part := wire.recv(65536)):
                answer += part
        except ConnectionError:
            pass
    found = WHOLE_HEAD.match(answer)
    assert found is not None or not answer, answer
    return None if found is None else int(found[1])


def check(door, *lines, body=b""):
    status = status_of(door, *lines, body=body)
    assert status != 500, (lines, body)
    return status


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//[", "http://]"])
def test_an_origin_that_is_none_is_refused(parser, door, heard, origin):
    assert door.nobody.get("/v1/tasks", Origin=origin).status == 400
    assert door.main.post("/v1/tasks", {}, Origin=origin).status == 400


@pytest.mark.parametrize("line", ["GET /v1/events", "POST /v1/tasks", "POST /mcp"])
def test_no_header_is_a_fault_of_the_server(parser, door, key, heard, line):
    chance = random.Random(line)
    first = f"{line} HTTP/1.1".encode()
    usual = {
        "host": HOST,
        "content-type": b"Content-Type: application/json",
        "authorization": (key or [b"X-No: key"])[0],
    }
    for name in NAMES:
        rest = [given for known, given in usual.items() if known != name.lower()]
        noise = [chance.randbytes(chance.randrange(1, 60)) for _ in range(3)]
        for value in [*chance.sample(VALUES, 12), *(part.translate(None, b"\n") for part in noise)]:
            check(door, first, *rest, name.encode() + b": " + value)
    for value in VALUES:
        for name in ("Origin", "Host", "Content-Length"):
            rest = [given for known, given in usual.items() if known != name.lower()]
            check(door, first, *rest, name.encode() + b": " + value)


def test_no_first_line_is_a_fault_of_the_server(parser, door, key, heard):
    chance = random.Random(1)
    for line in [*LINES, *(chance.randbytes(n) for n in range(1, 60))]:
        check(door, line, HOST, *key)
        check(door, line, *key)


def test_no_path_is_a_fault_of_the_server(parser, door, key, heard):
    chance = random.Random(2)
    streams = [("GET", "/v1/runs/{run}/events"), ("GET", "/v1/runs/{run}/artifacts/{name}")]
    places = [(known.method, known.path) for known in every_command() if known.named]
    for method, path in [*places, *streams, ("GET", "/v1/{a}"), ("GET", "/{a}")]:
        for piece in chance.sample(PIECES, 8):
            line = f"{method} {re.sub('{[^}]+}', piece, path)} HTTP/1.1".encode("latin-1")
            sent = (
                [] if method == "GET" else [b"Content-Type: application/json", b"Content-Length: 2"]
            )
            check(door, line, HOST, *key, *sent, body=b"" if method == "GET" else b"{}")


def test_no_message_to_the_desk_is_a_fault_of_the_server(parser, door, key, heard):
    chance = random.Random(3)
    said = [b"[" * 5000, b'{"id":' * 3000, b"\xff", b"null", b"[]", b"{}", b'"a"', b"1e999", b"NaN"]
    called = b'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":%s}'
    for value in (b"1", b"[]", b"{}", b"1e400", b'"\\ud800"', b'{"name":[]}', b'{"name":"\\ud800"}',
                  b'{"name":"list_tasks","arguments":[]}', b'{"name":"list_tasks","_meta":[]}',
                  b'{"name":"list_tasks","arguments":{"\\ud800":1}}'):  # fmt: skip
        said += [called % (b"1", value), called % (value, b"{}")]
    for body in [*said, *(chance.randbytes(40) for _ in range(20))]:
        length = f"Content-Length: {len(body)}".encode()
        sent = [b"Content-Type: application/json", length]
        check(door, b"POST /mcp HTTP/1.1", HOST, *key, *sent, body=body)


def test_what_strangers_cause_is_logged_so_often_a_second(door, clock, caplog):
    caplog.set_level(logging.INFO)

    def lines():
        told = [r for r in caplog.records if r.name in {SERVER, log.name}]
        caplog.clear()
        return [(record.getMessage(), getattr(record, "left_out", 0)) for record in told]

    limit = RefusalLimit(clock.monotonic)
    with limit.applied():
        for _ in range(30):
            door.nobody.get("/v1/tasks", Origin="http://[")
            status_of(door, b"nonsense")
        first = lines()
        assert len(first) == MOST_A_SECOND
        assert ("api.refused", 0) in first
        limit.tell()
        assert not lines(), "in the same second nothing more is told"
        clock.advance(seconds=1)
        door.nobody.get("/v1/tasks")
        assert lines() == [("api.refused", 60 - MOST_A_SECOND)]
        for _ in range(MOST_A_SECOND):
            door.nobody.get("/v1/tasks")
        clock.advance(seconds=1)
        limit.tell()
        assert lines()[-1] == ("api.refusals_left_out", 1)
    for _ in range(MOST_A_SECOND + 1):
        door.nobody.get("/v1/tasks")
    assert len(lines()) == MOST_A_SECOND + 1, "it bounds nothing when it is over"
