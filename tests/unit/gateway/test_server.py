"""C1 to C6 at the gateway itself: what it lets through, what it sets, and what it turns away."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from rota.gateway.proxy import UpstreamDialer, UpstreamUnreachable
from tests.unit.gateway.gateways import HEAD, REAL, TOKEN, Door, told


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
