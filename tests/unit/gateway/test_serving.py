"""C1 to C7 at the gateway itself: what it lets through, what it sets, and what it turns away."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.system.gateway.upstream import Upstream

from rota.gateway.effects import Effects
from rota.gateway.exchanging import Exchange, Waits
from rota.gateway.once import Once
from rota.gateway.permits import Permit, digest_of
from rota.gateway.reaching import Reach, Unreached
from rota.gateway.serving import Gate
from rota.gateway.upstreams import Upstream as Known
from rota.gateway.upstreams import allowed_in

REAL = "sk-ant-the-real-key"
TOKEN = "sk-rota-1"  # noqa: S105
HEAD = "Host: 127.0.0.1:1\r\nX-Api-Key: sk-rota-1\r\n"
QUICK = Waits(idle=5.0, head=0.2, body=0.3, answer=2.0, stall=1.0)


@pytest.fixture
def provider():
    with Upstream() as made:
        yield made


class Door:
    """A gate on loopback, for one attempt."""

    def __init__(self, provider, gone, effects=False, **more):
        self.provider = provider
        known = Known(
            name="models",
            scheme="http",
            host="127.0.0.1",
            port=provider.port,
            allow=allowed_in("models", ["GET /v1/**", "HEAD /v1/x", "POST /v1/*"]),
            headers=(("x-api-key", REAL),),
            secret="models",  # noqa: S106
            local=True,
            effects=effects,
        )
        self.used = []
        self.wrote = []
        self.unnoted = None
        self.exchange = Exchange(Reach(), self.used.append, self.note_write, QUICK)
        effects = Effects(str(gone.parent), time.time)
        self.gate = Gate({"models": known}, self.exchange, Once(self.exchange, effects))
        self.permit = Permit(
            name="1-1",
            digest=digest_of(TOKEN),
            upstreams=frozenset({"models"}),
            ended=str(gone),
            port=None,
            until=float("inf"),
            space=1,
            scope="run 1",
            **{"requests_left": 100, "bytes_left": 1 << 40, **more},
        )

    async def note_write(self, name):
        if self.unnoted is not None:
            raise self.unnoted
        self.wrote.append((name, len(self.provider.script.noted)))

    def find(self, token):
        return self.permit if self.permit.opens_for(token) and self.permit.living else None

    async def serve(self, reader, writer):
        await self.gate.serve(reader, writer, self.find)

    @asynccontextmanager
    async def open(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=64 * 1024)
        async with server:
            yield server.sockets[0].getsockname()[1]
            self.permit.close()


@pytest.fixture
def door(provider, tmp_path):
    return Door(provider, tmp_path / "exit")


async def ask(port, first, headers=HEAD, body=b""):
    """Return the status, the head and the body of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{first} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n".encode() + body)
    async with asyncio.timeout(20):
        whole = await reader.read()
    writer.close()
    head, _, rest = whole.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), rest


def told(door, *asked, **more):
    async def go():
        async with door.open() as port:
            return await ask(port, *asked, **more)

    return asyncio.run(go())


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
        reach = Reach(lookup)
        for _ in range(4):
            with pytest.raises(Unreached, match="not spoken to"):
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
    door.exchange.reach = Reach(lookup)
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


def test_an_answer_that_breaks_off_does_not_end_well(door):
    status, _, body = told(door, "GET /models/v1/cut")
    assert status == 200
    assert b"half" in body and not body.endswith(b"0\r\n\r\n")


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


def test_c7_an_answer_without_an_end_is_cut(provider, tmp_path):
    provider.script.flood = 10 << 20
    door = Door(provider, tmp_path / "exit", bytes_left=1 << 20)
    status, _, body = told(door, "GET /models/v1/flood")
    assert status == 200
    assert len(body) < 2 << 20 and not body.endswith(b"0\r\n\r\n")
    assert told(door, "GET /models/v1/flood")[2].count(b"x") == 0


@pytest.mark.parametrize("sent", ["", "G", "GET /models/v1/x HTTP/1.1\r\nHost:"])
def test_c7_who_is_too_slow_with_a_head_is_let_go(door, sent):
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
            carried = door.permit.carried
            writer.transport.abort()
            return carried

    assert asyncio.run(asyncio.wait_for(go(), 20)) < 16 << 20


def test_c1_a_refusal_says_nothing_of_the_key(door):
    for first in ("GET /models/v9", "GET /nowhere/x", "POST /models/v1/early"):
        _, head, body = told(door, first)
        assert REAL not in head + body.decode()
    assert REAL not in repr(door.gate.upstreams)
