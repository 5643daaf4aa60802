"""A gate on loopback, and how to ask at it."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

from rota.gateway.grants import Grant, token_digest
from rota.gateway.journal import IdempotentWrites, WriteJournal
from rota.gateway.proxy import Proxy, ProxyTimeouts, UpstreamDialer
from rota.gateway.server import ConnectionContext
from rota.gateway.upstreams import Upstream as Known
from rota.gateway.upstreams import parse_allow

REAL = "sk-ant-the-real-key"
TOKEN = "sk-rota-1"  # noqa: S105
HEAD = "Host: 127.0.0.1:1\r\nX-Api-Key: sk-rota-1\r\n"
PATIENT = ProxyTimeouts(idle=20.0, head=20.0, body=20.0, answer=20.0, stall=20.0, close=20.0)
"""A machine may be busy: what a test wants to be short it shortens itself."""


class Door:
    """A gate on loopback, for one attempt."""

    def __init__(self, provider, gone, effects=False, **more):
        self.provider = provider
        known = Known(
            name="models",
            scheme="http",
            host="127.0.0.1",
            port=provider.port,
            allow=parse_allow("models", ["GET /v1/**", "HEAD /v1/x", "POST /v1/*"]),
            headers=(("x-api-key", REAL),),
            secret="models",  # noqa: S106
            local=True,
            effects=effects,
        )
        self.used = []
        self.wrote = []
        self.unnoted = None
        self.exchange = Proxy(UpstreamDialer(), self.used.append, self.note_write, PATIENT)
        effects = WriteJournal(str(gone.parent), time.time)
        self.gate = ConnectionContext(
            {"models": known}, self.exchange, IdempotentWrites(self.exchange, effects)
        )
        self.permit = Grant(
            name="1-1",
            digest=token_digest(TOKEN),
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
        return self.permit if self.permit.matches(token) and self.permit.is_active else None

    async def serve(self, reader, writer):
        await self.gate.serve(reader, writer, self.find)

    @asynccontextmanager
    async def open(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=64 * 1024)
        async with server:
            yield server.sockets[0].getsockname()[1]
            self.permit.close()


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
