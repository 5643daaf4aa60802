"""Deadlines of the gateway on a machine that is busy: what came in time is read, however late."""

from __future__ import annotations

import asyncio
import socket

import pytest

from rota.gateway.http import Deadline
from tests.unit.gateway.gateways import HEAD, PATIENT, Door

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
