"""Process: the gateway server with its sockets, and one connection.

Its folder, which only its owner sees, holds a lock (held while it lives), the socket by which a
daemon speaks to it, and a folder with a socket for each attempt behind walls. It runs with nothing
but the standard library, and ends by itself once nobody needs it.

Words: FOLDER
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import struct
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from rota.gateway.grants import (
    CONTROL,
    DOOR,
    DOORS,
    LOCK,
    MAX_CONCURRENT,
    USED,
    VERSION,
    BudgetExhausted,
    Grant,
    UsageFiles,
    WriteMarks,
)
from rota.gateway.http import (
    CHUNK,
    Deadline,
    InvalidHead,
    RequestHead,
    part_from,
    read_request_head,
    write_body,
)
from rota.gateway.journal import IdempotentWrites, WriteJournal, effect_name_of
from rota.gateway.proxy import (
    END,
    Proxy,
    ProxyRequest,
    RequestRefused,
    UpstreamDialer,
    UpstreamUnreachable,
    refusal,
)
from rota.gateway.upstreams import PLAIN, Upstream, clean_query, upstream_in

TAKEN = 3
LINGER_SECONDS = 2.0
"""How long it stays when it has no permit and no daemon."""
LOOK_SECONDS = 0.5
MAX_ORDER = 4 << 20
MAX_UNISOLATED = 1024
"""Connections of all attempts together that have no walls, and so share a door."""
NOT_DUMPABLE = 4


class GatewaySockets:
    """The listening sockets: one for each attempt behind walls, one for all that have none."""

    def __init__(self, folder: str, gate: ConnectionContext, writes: WriteMarks) -> None:
        self._folder = folder
        self._gate = gate
        self._writes = writes
        self._spending = UsageFiles(folder)
        self.permits: dict[str, Grant] = {}
        self._servers: dict[str, asyncio.Server] = {}
        self._serving: dict[str, set[asyncio.Task[None]]] = {}

    def begin(self) -> None:
        """Make room for what is written down."""
        self._spending.open()
        self._writes.open()
        self._gate.once.effects.open()

    async def open(self, permit: Grant) -> None:
        """Let an attempt in; what it has used already stays used."""
        before = self.permits.get(permit.name)
        if before is not None:
            permit.asked, permit.carried = before.asked, before.carried
            permit.spares, permit.turns = before.spares, before.turns
        else:
            permit.asked, permit.carried = self._spending.known(permit.name)
        permit.requests_left -= permit.asked
        permit.bytes_left -= permit.carried
        door = permit.name if permit.port is None else f":{permit.port}"
        if door not in self._servers:
            await self._listen(door, permit)
        self.permits[permit.name] = permit

    async def _listen(self, door: str, permit: Grant) -> None:
        sock = self._bound(door) if permit.port is None else _loopback(permit.port)
        find = partial(self._find, door)
        self._servers[door] = await asyncio.start_server(
            partial(self._connected, door, find), sock=sock, limit=CHUNK, backlog=MAX_CONCURRENT
        )

    def note(self) -> None:
        """Write down what attempts have used, for the gateway after this one."""
        for permit in self.permits.values():
            self._spending.note(permit.name, permit.asked, permit.carried)

    def close(self, name: str) -> dict[str, int]:
        """Let an attempt in no more, end what it has under way, and tell what it has used."""
        permit = self.permits.pop(name, None)
        self._spending.drop(name)
        self._writes.close(name)
        server = self._servers.pop(name, None)
        if server is not None:
            server.close()
            shutil.rmtree(os.path.join(self._folder, DOORS, name), ignore_errors=True)  # noqa: PTH118
        for task in self._serving.pop(name, ()):
            task.cancel()
        if permit is None:
            return {}
        permit.close()
        return {"requests": permit.asked, "bytes": permit.carried}

    def _find(self, door: str, token: str) -> Grant | None:
        if door.startswith(":"):
            unwalled = (permit for permit in self.permits.values() if permit.port is not None)
            found = next((permit for permit in unwalled if permit.opens_for(token)), None)
        else:
            known = self.permits.get(door)
            found = known if known is not None and known.opens_for(token) else None
        return found if found is not None and found.living else None

    async def _connected(
        self,
        door: str,
        find: Callable[[str], Grant | None],
        reader: StreamReader,
        writer: StreamWriter,
    ) -> None:
        """Serve a connection; a crowd at one door is nobody else's matter."""
        own = self._serving.setdefault(door, set())
        shared = door.startswith(":")
        task = asyncio.current_task()
        if task is None or len(own) >= (MAX_UNISOLATED if shared else MAX_CONCURRENT):
            writer.close()
            return
        own.add(task)
        whose: list[str] = []

        def noted(token: str) -> Grant | None:
            permit = find(token)
            if permit is not None and shared and not whose:
                whose.append(permit.name)
                self._serving.setdefault(permit.name, set()).add(task)
            return permit

        try:
            await self._gate.serve(reader, writer, noted)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            own.discard(task)
            for name in whose:
                self._serving.get(name, set()).discard(task)

    def _bound(self, name: str) -> socket.socket:
        folder = os.path.join(self._folder, DOORS, name)  # noqa: PTH118
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        return bound(folder, DOOR)


class GatewayServer:
    """Carries out what a daemon tells it, until nobody needs it any more."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._noted: dict[str, float] = {}
        writes = WriteMarks(folder)
        clock = time.time  # noqa: TID251 - nobody is here to hand this process one
        exchange = Proxy(UpstreamDialer(), self._note, writes.note)
        self._gate = ConnectionContext(
            {}, exchange, IdempotentWrites(exchange, WriteJournal(folder, clock))
        )
        self._doors = GatewaySockets(folder, self._gate, writes)
        self._daemons = 0
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Serve until there is neither a daemon nor an attempt."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ended.set)
        control = await asyncio.start_server(
            self._heard, sock=bound(self._folder, CONTROL), limit=MAX_ORDER
        )
        self._doors.begin()
        lonely = time.monotonic()
        async with control:
            while not self._ended.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await self._ended.wait()
                self._doors.note()
                if self._daemons or self._living():
                    lonely = time.monotonic()
                elif time.monotonic() - lonely > LINGER_SECONDS:
                    break

    def _living(self) -> bool:
        """Close what has ended while no daemon looked, and say whether anything is left."""
        if self._daemons:
            return True
        for name, permit in tuple(self._doors.permits.items()):
            if not permit.living:
                self._doors.close(name)
        return bool(self._doors.permits)

    def _note(self, secret: str) -> None:
        """Note that a secret was shown, by the time of a file."""
        now = time.monotonic()
        if now - self._noted.get(secret, -10.0) > 1.0:
            self._noted[secret] = now
            path = os.path.join(self._folder, USED, secret)  # noqa: PTH118
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
                os.utime(path)

    async def _heard(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Carry out the orders of one daemon, each answered in turn."""
        peer = writer.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        if struct.unpack("3i", peer)[1] not in {0, os.geteuid()}:
            writer.close()
            return
        self._daemons += 1
        try:
            while line := await reader.readline():
                answer = await self._obey(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            return
        finally:
            self._daemons -= 1
            writer.close()

    async def _obey(self, order: dict[str, Any]) -> dict[str, Any]:
        doors = self._doors
        match order["do"]:
            case "hello":
                return {"version": VERSION, "pid": os.getpid(), "permits": list(doors.permits)}
            case "configure":
                found = (upstream_in(record) for record in order["upstreams"])
                self._gate.upstreams = {upstream.name: upstream for upstream in found}
            case "permit":
                record = {**order["permit"], "upstreams": frozenset(order["permit"]["upstreams"])}
                try:
                    await doors.open(Grant(**record))
                except OSError as error:
                    return {"error": f"cannot listen: {error.strerror}"}
            case "promise":
                for permit in doors.permits.values():
                    permit.until = order["until"]
            case "close":
                return {"used": {name: doors.close(name) for name in order["names"]}}
            case "end":
                self._ended.set()
        return {}


def bound(folder: str, name: str) -> socket.socket:
    """Return a socket that listens in a folder, however long its path is."""
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=held)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(f"/proc/self/fd/{held}/{name}")
        os.chmod(name, 0o600, dir_fd=held)
    finally:
        os.close(held)
    return sock


def _loopback(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    return sock


def _settle_in() -> None:
    """Let nobody look into this process, and let it have as many connections as it may."""
    os.umask(0o077)
    ctypes.CDLL(None).prctl(NOT_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main(words: list[str]) -> int:
    """Be the gateway of a folder, unless another one is."""
    folder = words[0]
    _settle_in()
    for name in (DOORS, USED):
        os.makedirs(os.path.join(folder, name), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH118
    path = os.path.join(folder, LOCK)  # noqa: PTH118
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return TAKEN
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d" % os.getpid(), 0)
    asyncio.run(GatewayServer(folder).run())
    return 0


@dataclass
class ConnectionContext:
    """What every connection is served from."""

    upstreams: Mapping[str, Upstream]
    exchange: Proxy
    once: IdempotentWrites

    async def serve(
        self, reader: StreamReader, writer: StreamWriter, find: Callable[[str], Grant | None]
    ) -> None:
        """Serve a connection until either side has enough."""
        waits = self.exchange.waits
        try:
            with suppress(OSError, EOFError, asyncio.LimitOverrunError):
                patience = waits.head
                while await self._one(reader, writer, find, patience):
                    patience = waits.idle
            await part_from(reader, writer, waits.parting, waits.stall)
        finally:
            writer.transport.abort()

    async def _one(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        find: Callable[[str], Grant | None],
        patience: float,
    ) -> bool:
        """Serve one request; false if the connection is to end."""
        begun = asyncio.Event()
        try:
            asking = await self._head(reader, patience)
            permit = _permit(asking, find)
            _check_protocol(asking)
            upstream, target = _target(asking, permit, self.upstreams)
            request = ProxyRequest(asking, permit, upstream, target)
            request.check_size()
            name = effect_name_of(asking)
            if name is None:
                return await self.exchange.plain(reader, writer, request, begun)
            return await self.once.serve(reader, writer, request, name, begun)
        except RequestRefused as turned:
            told = turned
        except InvalidHead as error:
            told = RequestRefused(400, "bad_request", str(error))
        except asyncio.LimitOverrunError:
            told = RequestRefused(431, "bad_request", "the head of the request is too long")
        except TimeoutError:
            told = RequestRefused(408, "too_slow", "nothing came, or was taken, for too long")
        except BudgetExhausted as error:
            told = RequestRefused(403, "budget_spent", str(error))
        except UpstreamUnreachable as error:
            told = RequestRefused(502, "upstream_unreached", str(error))
        if not begun.is_set():
            await write_body(writer, refusal(told), self.exchange.waits.stall)
        return False

    async def _head(self, reader: StreamReader, patience: float) -> RequestHead:
        try:
            async with Deadline(patience):
                first = await reader.readexactly(1)
        except TimeoutError:
            raise EOFError from None
        try:
            async with Deadline(self.exchange.waits.head):
                return read_request_head(first + await reader.readuntil(END))
        except TimeoutError:
            raise RequestRefused(
                408, "too_slow", "the head of the request did not come in time"
            ) from None


def _permit(asking: RequestHead, find: Callable[[str], Grant | None]) -> Grant:
    """Return who asks: whoever has the token of an attempt that lives, at its own door."""
    for name in ("x-api-key", "api-key", "x-goog-api-key"):
        for value in asking.all(name):
            if permit := find(value):
                return permit
    for value in asking.all("authorization"):
        kind, _, token = value.partition(" ")
        if kind.lower() == "bearer" and (permit := find(token.strip())):
            return permit
    raise RequestRefused(401, "unknown_token", "this is not the token of an attempt that runs here")


def _check_protocol(asking: RequestHead) -> None:
    """Refuse another protocol with the answer at which clients fall back to HTTP at once."""
    if any(asking.all("upgrade")):
        raise RequestRefused(426, "no_upgrade", "the gateway speaks HTTP/1.1, and no WebSocket")


def _target(
    asking: RequestHead, permit: Grant, upstreams: Mapping[str, Upstream]
) -> tuple[Upstream, str]:
    """Return which upstream is asked, and for what."""
    if not PLAIN.fullmatch(asking.target):
        raise InvalidHead("ask by a path, /UPSTREAM/…: no other host is to be reached")
    path, mark, query = asking.target.partition("?")
    name, slash, rest = path[1:].partition("/")
    upstream = upstreams.get(name)
    if upstream is None or name not in permit.upstreams:
        raise RequestRefused(404, "unknown_upstream", "there is no such upstream for this attempt")
    if not upstream.allows(asking.method, slash + rest):
        message = f"{asking.method} on this path is not among what {name!r} allows"
        raise RequestRefused(403, "not_allowed", message)
    query = clean_query(query)
    return upstream, f"{upstream.base}{slash}{rest}{mark if query else ''}{query}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
