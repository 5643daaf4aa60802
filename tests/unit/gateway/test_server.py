"""The gateway: what it lets through, what it sets, what it refuses and how much it takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from dataclasses import replace

import pytest

from rota.gateway.proxy import UpstreamDialer, UpstreamUnreachable
from tests.unit.gateway.gateways import HEAD, PATIENT, REAL, TOKEN, Door, ask, told

# requests


def test_c5_the_gateway_shows_its_own_key_and_none_that_it_was_shown(door, provider):
    more = HEAD + "Authorization: Bearer mine\r\nApi-Key: mine\r\nAnthropic-Version: 1\r\n"
    more += "Anthropic-Api-Key: mine\r\nX-Claude-Auth-Token: mine\r\n"
    status, head, body = told(door, "GET /models/v1/x?key=mine&a=b", more)
    assert (status, json.loads(body)) == (200, {"path": "/v1/x?a=b"})
    (noted,) = provider.script.noted
    assert noted.headers["x-api-key"] == [REAL]
    assert noted.headers["host"] == [f"127.0.0.1:{provider.port}"]
    assert noted.headers["anthropic-version"] == ["1"]
    assert "authorization" not in noted.headers
    assert "mine" not in str(noted)
    assert TOKEN not in str(noted)
    assert REAL not in head + body.decode()
    assert door.used == ["models"]


@pytest.mark.parametrize(
    ("first", "effects", "wrote"),
    [
        ("POST /models/v1/x", True, [("1-1", 0)]),
        ("GET /models/v1/x", True, []),
        ("HEAD /models/v1/x", True, []),
        ("POST /models/v1/x", False, []),
        ("POST /models/no", True, []),
    ],
)
def test_a_write_is_noted_before_it_is_passed_on(provider, tmp_path, first, effects, wrote):
    door = Door(provider, tmp_path / "exit", effects=effects)
    told(door, first, HEAD + "Content-Length: 0\r\n")
    assert door.wrote == wrote


def test_a_write_that_cannot_be_noted_is_not_passed_on(provider, tmp_path):
    door = Door(provider, tmp_path / "exit", effects=True)
    door.unnoted = OSError(28, "No space left on device")
    status, _, body = told(door, "POST /models/v1/x", HEAD + "Content-Length: 2\r\n", b"{}")
    assert (status, json.loads(body)["error"]["code"]) == (503, "not_noted")
    assert "No space left on device" in body.decode()
    assert provider.script.noted == []


@pytest.mark.parametrize(
    "headers",
    [
        "Host: 127.0.0.1\r\n",
        "Host: 127.0.0.1\r\nX-Api-Key: sk-rota-2\r\n",
        "Host: 127.0.0.1\r\nAuthorization: Basic sk-rota-1\r\n",
        "Host: 127.0.0.1\r\nAuthorization: Bearer\r\n",
        f"Host: 127.0.0.1\r\nAuthorization: Bearer {REAL}\r\n",
    ],
)
def test_c6_without_the_token_of_the_attempt_nobody_asks(door, provider, headers):
    status, _, body = told(door, "GET /models/v1/x", headers)
    assert (status, json.loads(body)["error"]["type"]) == (401, "unknown_token")
    assert provider.script.noted == []


def test_c6_a_token_is_dead_with_its_attempt(door, provider, tmp_path):
    bearer = "Host: localhost:7683\r\nAuthorization: bearer sk-rota-1\r\n"
    assert told(door, "GET /models/v1/x", bearer)[0] == 200
    (tmp_path / "exit").touch()
    assert told(door, "GET /models/v1/x", bearer)[0] == 401
    (tmp_path / "exit").unlink()
    door.permit.until = 0.0
    assert told(door, "GET /models/v1/x", bearer)[0] == 401


@pytest.mark.parametrize(
    ("first", "status"),
    [
        ("GET /models/v2/x", 403),
        ("DELETE /models/v1/x", 403),
        ("GET /models/v1/../v2", 403),
        ("GET /models/v1/%2e%2e/v2", 403),
        ("GET /models", 403),
        ("GET /other/v1/x", 404),
        ("GET /", 404),
        ("GET http://169.254.169.254/", 400),
        ("GET http://127.0.0.1/models/v1/x", 400),
        ("CONNECT 169.254.169.254:80", 400),
        ("GET *", 400),
        ("GET //169.254.169.254/models", 404),
        ("GET /models/v1/x\tHTTP/1.1\r\nx:", 400),
    ],
)
def test_c2_c3_only_what_is_listed_is_to_be_reached(door, provider, first, status):
    assert told(door, first)[0] == status
    assert provider.script.noted == []


def test_who_wants_another_protocol_is_told_to_stay_with_this_one(door, provider):
    status, _, body = told(door, "GET /models/v1/x", HEAD + "Upgrade: websocket\r\n")
    assert (status, json.loads(body)["error"]["type"]) == (426, "no_upgrade")
    assert provider.script.noted == []


def test_c2_a_redirect_is_told_and_never_followed(door, provider):
    status, head, _ = told(door, "GET /models/v1/moved")
    assert (status, "169.254.169.254" in head) == (302, True)
    assert len(provider.script.noted) == 1


def test_c2_a_name_that_turns_to_a_private_address_is_not_spoken_to(door):
    public = replace(door.gate.upstreams["models"], host="api.example", local=False)
    answers = iter([["1.1.1.1", "169.254.169.254"], ["127.0.0.1"], ["::ffff:10.0.0.1"], []])

    async def lookup(host, port):
        return next(answers)

    async def go():
        reach = UpstreamDialer(lookup)
        for _ in range(4):
            with pytest.raises(UpstreamUnreachable, match="is not allowed"):
                await reach.connect(public)

    asyncio.run(go())


def test_c2_what_was_looked_at_is_what_is_spoken_to(door, provider):
    """A second answer to the same question would lead elsewhere: nobody asks twice."""
    known = replace(door.gate.upstreams["models"], host="api.example")
    asked = []

    async def lookup(host, port):
        asked.append(host)
        return ["127.0.0.1"]

    door.gate.upstreams = {"models": known}
    door.exchange.dialer = UpstreamDialer(lookup)
    assert told(door, "GET /models/v1/x")[0] == 200
    assert asked == ["api.example"]
    assert provider.script.noted[0].headers["host"] == [f"api.example:{provider.port}"]


def test_an_upstream_that_is_not_there_is_told_plainly(door, provider):
    door.gate.upstreams = {"models": replace(door.gate.upstreams["models"], port=1)}
    status, _, body = told(door, "GET /models/v1/x")
    assert (status, json.loads(body)["error"]["type"]) == (502, "upstream_unreached")


def test_an_answer_streams_while_it_is_made(door, provider):
    async def go():
        async with door.open() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                f"POST /models/v1/messages HTTP/1.1\r\n{HEAD}Content-Length: 2\r\n\r\n{{}}".encode()
            )
            first = await reader.readuntil(b"first\n\n")
            assert b"last" not in first
            provider.script.go.set()
            await reader.readuntil(b"last\n\n\r\n0\r\n\r\n")
            writer.write(f"GET /models/v1/again HTTP/1.1\r\n{HEAD}\r\n".encode())
            assert b'"/v1/again"' in await reader.readuntil(b"}")
            writer.close()

    asyncio.run(asyncio.wait_for(go(), 20))
    assert [noted.body for noted in provider.script.noted] == [2, 0]


def test_a_body_in_chunks_goes_through_and_what_is_no_chunk_does_not(door, provider):
    chunked = HEAD + "Transfer-Encoding: chunked\r\n"
    body = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    assert json.loads(told(door, "POST /models/v1/x", chunked, body=body)[2]) == {"received": 11}
    for wrong in (b"5;x=y\r\nhello\r\n0\r\n\r\n", b"4\r\nhello\r\n0\r\n\r\n", b"0\r\nx: y\r\n\r\n"):
        assert told(door, "POST /models/v1/x", chunked, body=wrong)[0] == 400


def test_who_expects_to_be_told_to_go_on_is_told(door):
    more = HEAD + "Expect: 100-continue\r\nContent-Length: 2\r\n"
    status, _, rest = told(door, "POST /models/v1/x", more, body=b"{}")
    assert status == 100
    assert b"200" in rest.partition(b"\r\n")[0]


def test_an_early_answer_reaches_who_is_still_sending(door):
    more = HEAD + "Content-Length: 100000\r\n"
    assert told(door, "POST /models/v1/early", more, body=b"x" * 10)[0] == 400


def test_a_head_has_no_body(door):
    status, head, body = told(door, "HEAD /models/v1/x")
    assert (status, body) == (200, b"")
    assert "content-length: 17" in head


@pytest.mark.parametrize("path", ["cut", "reset"])
def test_an_answer_that_breaks_off_does_not_end_well(door, path):
    status, _, body = told(door, f"GET /models/v1/{path}")
    assert status == 200
    assert b"half" in body and not body.endswith(b"0\r\n\r\n")


def test_c1_a_refusal_says_nothing_of_the_key(door):
    for first in ("GET /models/v9", "GET /nowhere/x", "POST /models/v1/early"):
        _, head, body = told(door, first)
        assert REAL not in head + body.decode()
    assert REAL not in repr(door.gate.upstreams)


# early answers

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


# limits


def test_c7_requests_are_counted(provider, tmp_path):
    door = Door(provider, tmp_path / "exit", requests_left=2)
    answers = [told(door, "GET /models/v1/x") for _ in range(3)]
    assert [status for status, _, _ in answers] == [200, 200, 403]
    assert json.loads(answers[-1][2])["error"]["type"] == "budget_spent"
    assert len(provider.script.noted) == 2


def test_c7_a_huge_upload_is_refused_before_it_is_sent(provider, tmp_path):
    door = Door(provider, tmp_path / "exit", bytes_left=1000)
    status, _, body = told(door, "POST /models/v1/x", HEAD + f"Content-Length: {10 << 30}\r\n")
    assert (status, json.loads(body)["error"]["type"]) == (413, "budget_spent")


def test_c7_an_upload_without_an_end_is_cut_with_a_sentence(provider, tmp_path):
    door = Door(provider, tmp_path / "exit", bytes_left=100_000)
    body = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    status, _, told_body = told(
        door, "POST /models/v1/x", HEAD + "Transfer-Encoding: chunked\r\n", body=body * 3
    )
    assert (status, json.loads(told_body)["error"]["type"]) == (403, "budget_spent")


def test_c7_who_sends_more_than_it_may_reads_why_and_meets_no_reset(provider, tmp_path):
    """Many clients read nothing while they send, and take a reset for a fault of the network."""
    door = Door(provider, tmp_path / "exit", bytes_left=100_000)
    head = f"POST /models/v1/x HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"

    def upload(port):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
            line.sendall(head.encode() + chunk * 256)
            return line.makefile("rb").read()

    async def go():
        async with door.open() as port:
            return await asyncio.to_thread(upload, port)

    assert asyncio.run(go()).startswith(b"HTTP/1.1 403 ")


def test_c7_who_never_stops_sending_is_let_go(provider, tmp_path):
    door = Door(provider, tmp_path / "exit", bytes_left=1000)
    door.exchange.timeouts = PATIENT._replace(close=0.2)

    def flood(port):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
            line.sendall(
                f"POST /models/v1/x HTTP/1.1\r\n{HEAD}Content-Length: 9999\r\n\r\n".encode()
            )
            with contextlib.suppress(ConnectionError):
                while True:
                    line.sendall(b"x" * 65536)
            return line.recv(12)

    async def go():
        async with door.open() as port:
            return await asyncio.wait_for(asyncio.to_thread(flood, port), 20)

    assert asyncio.run(go()) == b"HTTP/1.1 413"


def test_c7_an_answer_without_an_end_is_cut(provider, tmp_path):
    provider.script.flood = 10 << 20
    door = Door(provider, tmp_path / "exit", bytes_left=1 << 20)
    status, _, body = told(door, "GET /models/v1/flood")
    assert status == 200
    assert len(body) < 2 << 20 and not body.endswith(b"0\r\n\r\n")
    assert told(door, "GET /models/v1/flood")[2].count(b"x") == 0


@pytest.mark.parametrize("sent", ["", "G", "GET /models/v1/x HTTP/1.1\r\nHost:"])
def test_c7_who_is_too_slow_with_a_head_is_let_go(door, sent):
    door.exchange.timeouts = PATIENT._replace(head=0.2)

    async def go():
        async with door.open() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent.encode())
            whole = await reader.read()
            writer.close()
            return whole

    whole = asyncio.run(asyncio.wait_for(go(), 10))
    assert whole == b"" if not sent else whole.startswith(b"HTTP/1.1 408 ")


def test_c7_who_is_too_slow_with_a_body_is_let_go(door, provider):
    door.exchange.timeouts = PATIENT._replace(body=0.2)

    async def go():
        async with door.open() as port:
            return await ask(port, "POST /models/v1/x", HEAD + "Content-Length: 100\r\n", b"x")

    status, _, body = asyncio.run(asyncio.wait_for(go(), 10))
    assert (status, json.loads(body)["error"]["type"]) == (408, "too_slow")


def test_c7_who_does_not_read_slows_nobody_but_itself_and_holds_little(door, provider):
    provider.script.flood = 64 << 20

    async def go():
        async with door.open() as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.transport.pause_reading()
            writer.write(f"GET /models/v1/flood HTTP/1.1\r\n{HEAD}\r\n".encode())
            for _ in range(20):
                assert (await ask(port, "GET /models/v1/x"))[0] == 200
            carried = door.permit.byte_count
            writer.transport.abort()
            return carried

    assert asyncio.run(asyncio.wait_for(go(), 20)) < 16 << 20


def test_c7_who_never_reads_is_let_go_with_all_that_waits_for_it(door, provider):
    provider.script.flood = 64 << 20
    door.exchange.timeouts = PATIENT._replace(stall=0.5, close=0.2)
    left = []
    served = asyncio.Event()

    async def serve(reader, writer):
        await door.serve(reader, writer)
        await asyncio.sleep(0)
        left.append(writer.get_extra_info("socket").fileno())
        served.set()

    async def go():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            with socket.create_connection(server.sockets[0].getsockname()) as line:
                line.sendall(f"GET /models/v1/flood HTTP/1.1\r\n{HEAD}\r\n".encode())
                await asyncio.wait_for(served.wait(), 20)

    asyncio.run(go())
    assert left == [-1]


def test_an_upstream_that_takes_nothing_is_let_go_with_all_that_waits_for_it(door):
    lines = []
    ended = asyncio.Event()

    class Noting(UpstreamDialer):
        async def connect(self, upstream):
            lines.append(await super().connect(upstream))
            return lines[-1]

    async def take_nothing(reader, writer):
        writer.transport.pause_reading()
        await ended.wait()
        writer.transport.abort()

    async def go():
        body = b"x" * (32 << 20)
        more = HEAD + f"Content-Length: {len(body)}\r\n"
        async with await asyncio.start_server(take_nothing, "127.0.0.1", 0) as upstream:
            port = upstream.sockets[0].getsockname()[1]
            door.gate.upstreams = {"models": replace(door.gate.upstreams["models"], port=port)}
            async with door.open() as inside:
                assert (await ask(inside, "POST /models/v1/x", more, body))[0] == 408
                ((_, line),) = lines
                await asyncio.wait_for(line.wait_closed(), 10)
                ended.set()

    door.exchange.dialer = Noting()
    door.exchange.timeouts = PATIENT._replace(stall=1.0)
    asyncio.run(go())
