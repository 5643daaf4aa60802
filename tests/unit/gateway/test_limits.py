"""C7 at the gateway itself: requests, bytes and time are counted, and whoever is cut is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from dataclasses import replace

import pytest

from rota.gateway.proxy import UpstreamDialer
from tests.unit.gateway.gateways import HEAD, PATIENT, Door, ask, told


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
