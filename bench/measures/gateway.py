"""What the gateway adds: to a request, to the first byte of a stream, and to memory; redaction."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.kit import percentile, value
from bench.measures.base import Bench
from bench.table import Row
from rota.gateway.client import GatewayClient
from rota.gateway.upstreams import Upstream, parse_allow
from rota.keeper.build import Interpreter
from rota.rules.redaction import Redactor

MOST_ADDED_MS = 5.0
MOST_MIB = 40.0
MOST_LINE_US = 20.0
MIB = 1 << 20
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 2000}]}).encode()


def measure(bench: Bench) -> Iterator[Row]:
    found = asyncio.run(_measured(bench.size(3000, 300)))
    for name, direct, through in found["pairs"]:
        added = [percentile(through, at) - percentile(direct, at) for at in (50, 99)]
        middle = value([added[0]], "ms")
        yield Row(
            measure=f"gateway: added to {name}, p50", rota=middle,
            ratio=f"p99 +{added[1]:.2f} ms; direct p50 {percentile(direct, 50):.2f} ms",
            target=f"<= {MOST_ADDED_MS:.0f} ms", met=added[0] <= MOST_ADDED_MS,
        )  # fmt: skip
    size = value([found["memory"]], "MiB")
    yield Row(
        measure="gateway: memory (PSS) of the process", rota=size,
        ratio=f"ready {found['start']:.0f} ms after it was needed",
        target=f"<= {MOST_MIB:.0f} MiB", met=size.median <= MOST_MIB,
    )  # fmt: skip
    for count in (0, 1, 50):
        took = value([_redaction(count)], "us")
        yield Row(
            measure=f"redaction: a line of 250 characters, {count} secrets known", rota=took,
            target=f"<= {MOST_LINE_US:.0f} us", met=took.median <= MOST_LINE_US,
        )  # fmt: skip


async def _measured(count: int) -> dict[str, Any]:
    server = await asyncio.start_server(_provider, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="rota-") as folder:
        gateway = _gateway(Path(folder), port)
        began = time.monotonic()
        token = gateway.token(1, 1)
        await gateway.grant(
            "1-1", token, upstreams=["models"], ended=f"{folder}/exit", port=None,
            requests_left=10**9, bytes_left=1 << 50, space=1, scope="run 1",
        )  # fmt: skip
        start = (time.monotonic() - began) * 1000
        pid = int((Path(folder) / "g" / "lock").read_text())
        door = gateway.socket_path("1-1")

        async def direct() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection("127.0.0.1", port)

        async def through() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_unix_connection(door)

        pairs = []
        for name, fresh in (("a request of a kept connection", False), ("one of a new", True)):
            times = []
            for way, path in ((direct, "/v1/messages"), (through, "/models/v1/messages")):
                times.append(await _times(way, path, token, count, fresh=fresh))
            pairs.append((name, *times))
        memory = _pss(pid)
        gateway.close()
        os.kill(pid, signal.SIGTERM)
    server.close()
    return {"pairs": pairs, "memory": memory, "start": start}


def _gateway(folder: Path, port: int) -> GatewayClient:
    python = Interpreter.running()
    known = Upstream(
        name="models", scheme="http", host="127.0.0.1", port=port, local=True,
        allow=parse_allow("models", ["POST /v1/messages"]), headers=(("x-api-key", "real-key"),),
        secret="models",
    )  # fmt: skip
    made = GatewayClient(
        folder / "g",
        lambda where: python.module("rota.gateway.server", where),
        {},
        lambda: [known],
    )
    made.extend_lease(time.clock_gettime(time.CLOCK_BOOTTIME) + 3600)
    return made


async def _provider(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    body = b'{"ok":true}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(answer)
    except (OSError, EOFError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


async def _times(
    way: Callable[[], Any], path: str, token: str, count: int, *, fresh: bool
) -> list[float]:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Api-Key: {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    ).encode()
    took: list[float] = []
    line = None
    for _ in range(count):
        began = time.perf_counter()
        if line is None or fresh:
            line = await way()
        line[1].write(head + BODY)
        answered = await line[0].readuntil(b'{"ok":true}')
        took.append((time.perf_counter() - began) * 1000)
        if not answered.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(answered.decode())
        if fresh:
            line[1].close()
    if line is not None:
        line[1].close()
    return took[count // 10 :]


def _pss(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _redaction(count: int) -> float:
    """Return the microseconds of one line."""
    redactor = Redactor({f"s{n}": f"sk-{secrets.token_urlsafe(32)}" for n in range(count)})
    line = json.dumps({"type": "assistant", "text": "lorem ipsum dolor sit amet " * 8})
    began = time.perf_counter()
    for _ in range(20_000):
        redactor.redact_text(line)
    return (time.perf_counter() - began) / 20_000 * 1e6
