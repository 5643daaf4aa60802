"""Process: the gateway server, its sockets and its connections.

Its private folder holds a lock (held while it runs), the control socket for daemons, and a folder
with a socket for each isolated attempt. It only needs the standard library, and exits when it has
neither a daemon nor a grant.

Arguments: FOLDER
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
    LOCK,
    MAX_CONCURRENT,
    SOCKET,
    SOCKETS,
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
    close_connection,
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
    error_response,
)
from rota.gateway.upstreams import PLAIN, Upstream, clean_query, upstream_from_record

ALREADY_RUNNING = 3
LINGER_SECONDS = 2.0
"""How long it runs without grants and daemons."""
CHECK_SECONDS = 0.5
MAX_ORDER = 4 << 20
MAX_SHARED = 1024
"""Connections on the port that is shared by attempts that are not isolated."""
NOT_DUMPABLE = 4


class GatewaySockets:
    """The listening sockets: one for each isolated attempt, one port for all others."""

    def __init__(self, folder: str, gate: ConnectionContext, writes: WriteMarks) -> None:
        self._folder = folder
        self._context = gate
        self._writes = writes
        self._usage_files = UsageFiles(folder)
        self.grants: dict[str, Grant] = {}
        self._servers: dict[str, asyncio.Server] = {}
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}

    def prepare(self) -> None:
        """Create the folders for records."""
        self._usage_files.open()
        self._writes.open()
        self._context.writes.journal.open()

    async def open(self, grant: Grant) -> None:
        """Grant access to an attempt; its earlier usage still counts."""
        before = self.grants.get(grant.name)
        if before is not None:
            grant.request_count, grant.byte_count = before.request_count, before.byte_count
            grant.idle, grant.journal_slots = before.idle, before.journal_slots
        else:
            grant.request_count, grant.byte_count = self._usage_files.read(grant.name)
        grant.requests_left -= grant.request_count
        grant.bytes_left -= grant.byte_count
        door = grant.name if grant.port is None else f":{grant.port}"
        if door not in self._servers:
            await self._listen(door, grant)
        self.grants[grant.name] = grant

    async def _listen(self, door: str, grant: Grant) -> None:
        sock = self._unix_socket(door) if grant.port is None else _loopback(grant.port)
        find = partial(self._find_grant, door)
        self._servers[door] = await asyncio.start_server(
            partial(self._serve, door, find), sock=sock, limit=CHUNK, backlog=MAX_CONCURRENT
        )

    def record_usage(self) -> None:
        """Record usage on disk, for the next gateway."""
        for grant in self.grants.values():
            self._usage_files.write(grant.name, grant.request_count, grant.byte_count)

    def close(self, name: str) -> dict[str, int]:
        """Revoke a grant, abort its connections, and return its usage."""
        grant = self.grants.pop(name, None)
        self._usage_files.delete(name)
        self._writes.close(name)
        server = self._servers.pop(name, None)
        if server is not None:
            server.close()
            shutil.rmtree(os.path.join(self._folder, SOCKETS, name), ignore_errors=True)  # noqa: PTH118
        for task in self._tasks.pop(name, ()):
            task.cancel()
        if grant is None:
            return {}
        grant.close()
        return {"requests": grant.request_count, "bytes": grant.byte_count}

    def _find_grant(self, door: str, token: str) -> Grant | None:
        if door.startswith(":"):
            unwalled = (grant for grant in self.grants.values() if grant.port is not None)
            found = next((grant for grant in unwalled if grant.matches(token)), None)
        else:
            known = self.grants.get(door)
            found = known if known is not None and known.matches(token) else None
        return found if found is not None and found.is_active else None

    async def _serve(
        self,
        door: str,
        find: Callable[[str], Grant | None],
        reader: StreamReader,
        writer: StreamWriter,
    ) -> None:
        """Serve a connection; the number per socket is limited."""
        own = self._tasks.setdefault(door, set())
        shared = door.startswith(":")
        task = asyncio.current_task()
        if task is None or len(own) >= (MAX_SHARED if shared else MAX_CONCURRENT):
            writer.close()
            return
        own.add(task)
        names: list[str] = []

        def find_and_track(token: str) -> Grant | None:
            grant = find(token)
            if grant is not None and shared and not names:
                names.append(grant.name)
                self._tasks.setdefault(grant.name, set()).add(task)
            return grant

        try:
            await self._context.serve(reader, writer, find_and_track)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            own.discard(task)
            for name in names:
                self._tasks.get(name, set()).discard(task)

    def _unix_socket(self, name: str) -> socket.socket:
        folder = os.path.join(self._folder, SOCKETS, name)  # noqa: PTH118
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        return listen_unix(folder, SOCKET)


class GatewayServer:
    """Carries out the orders of daemons until nobody needs it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._recorded: dict[str, float] = {}
        writes = WriteMarks(folder)
        clock = time.time  # noqa: TID251 - nobody is here to hand this process one
        exchange = Proxy(UpstreamDialer(), self._record_secret_use, writes.mark_written)
        self._context = ConnectionContext(
            {}, exchange, IdempotentWrites(exchange, WriteJournal(folder, clock))
        )
        self._sockets = GatewaySockets(folder, self._context, writes)
        self._daemons = 0
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Serve until there is neither a daemon nor a grant."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ended.set)
        control = await asyncio.start_server(
            self._serve_daemon, sock=listen_unix(self._folder, CONTROL), limit=MAX_ORDER
        )
        self._sockets.prepare()
        last_needed = time.monotonic()
        async with control:
            while not self._ended.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_SECONDS):
                        await self._ended.wait()
                self._sockets.record_usage()
                if self._daemons or self._has_grants():
                    last_needed = time.monotonic()
                elif time.monotonic() - last_needed > LINGER_SECONDS:
                    break

    def _has_grants(self) -> bool:
        """Return whether it is needed; without a daemon, revoke grants of ended attempts."""
        if self._daemons:
            return True
        for name, grant in tuple(self._sockets.grants.items()):
            if not grant.is_active:
                self._sockets.close(name)
        return bool(self._sockets.grants)

    def _record_secret_use(self, secret: str) -> None:
        """Record the use of a secret as the modification time of a file."""
        now = time.monotonic()
        if now - self._recorded.get(secret, -10.0) > 1.0:
            self._recorded[secret] = now
            path = os.path.join(self._folder, USED, secret)  # noqa: PTH118
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
                os.utime(path)

    async def _serve_daemon(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Carry out the orders of one daemon one after the other."""
        peer = writer.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        if struct.unpack("3i", peer)[1] not in {0, os.geteuid()}:
            writer.close()
            return
        self._daemons += 1
        try:
            while line := await reader.readline():
                answer = await self._handle_order(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            return
        finally:
            self._daemons -= 1
            writer.close()

    async def _handle_order(self, order: dict[str, Any]) -> dict[str, Any]:
        sockets = self._sockets
        match order["do"]:
            case "hello":
                return {"version": VERSION, "pid": os.getpid(), "grants": list(sockets.grants)}
            case "configure":
                found = (upstream_from_record(record) for record in order["upstreams"])
                self._context.upstreams = {upstream.name: upstream for upstream in found}
            case "grant":
                record = {**order["grant"], "upstreams": frozenset(order["grant"]["upstreams"])}
                try:
                    await sockets.open(Grant(**record))
                except OSError as error:
                    return {"error": f"cannot listen: {error.strerror}"}
            case "extend":
                for grant in sockets.grants.values():
                    grant.until = order["until"]
            case "close":
                return {"used": {name: sockets.close(name) for name in order["names"]}}
            case "end":
                self._ended.set()
        return {}


def listen_unix(folder: str, name: str) -> socket.socket:
    """Return a listening socket in a folder with a path of any length."""
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


def _harden_process() -> None:
    """Disable core dumps and ptrace, and raise the limit on open files."""
    os.umask(0o077)
    ctypes.CDLL(None).prctl(NOT_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def main(args: list[str]) -> int:
    """Run the gateway of a folder, unless one is running."""
    folder = args[0]
    _harden_process()
    for name in (SOCKETS, USED):
        os.makedirs(os.path.join(folder, name), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH118
    path = os.path.join(folder, LOCK)  # noqa: PTH118
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return ALREADY_RUNNING
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d" % os.getpid(), 0)
    asyncio.run(GatewayServer(folder).run())
    return 0


@dataclass
class ConnectionContext:
    """Serves connections."""

    upstreams: Mapping[str, Upstream]
    proxy: Proxy
    writes: IdempotentWrites

    async def serve(
        self, reader: StreamReader, writer: StreamWriter, find: Callable[[str], Grant | None]
    ) -> None:
        """Serve requests of a connection until it ends."""
        timeouts = self.proxy.timeouts
        try:
            with suppress(OSError, EOFError, asyncio.LimitOverrunError):
                head_seconds = timeouts.head
                while await self._serve_request(reader, writer, find, head_seconds):
                    head_seconds = timeouts.idle
            await close_connection(reader, writer, timeouts.close, timeouts.stall)
        finally:
            writer.transport.abort()

    async def _serve_request(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        find: Callable[[str], Grant | None],
        head_seconds: float,
    ) -> bool:
        """Serve one request; false if the connection is to be closed."""
        responding = asyncio.Event()
        try:
            request_head = await self._head(reader, head_seconds)
            grant = _authenticate(request_head, find)
            _check_protocol(request_head)
            upstream, target = _route(request_head, grant, self.upstreams)
            request = ProxyRequest(request_head, grant, upstream, target)
            request.check_size()
            name = effect_name_of(request_head)
            if name is None:
                return await self.proxy.forward(reader, writer, request, responding)
            return await self.writes.serve(reader, writer, request, name, responding)
        except RequestRefused as refused:
            answer = refused
        except InvalidHead as error:
            answer = RequestRefused(400, "bad_request", str(error))
        except asyncio.LimitOverrunError:
            answer = RequestRefused(431, "bad_request", "the head of the request is too long")
        except TimeoutError:
            answer = RequestRefused(408, "too_slow", "no data was sent or accepted for too long")
        except BudgetExhausted as error:
            answer = RequestRefused(403, "budget_spent", str(error))
        except UpstreamUnreachable as error:
            answer = RequestRefused(502, "upstream_unreached", str(error))
        if not responding.is_set():
            await write_body(writer, error_response(answer), self.proxy.timeouts.stall)
        return False

    async def _head(self, reader: StreamReader, head_seconds: float) -> RequestHead:
        try:
            async with Deadline(head_seconds):
                first = await reader.readexactly(1)
        except TimeoutError:
            raise EOFError from None
        try:
            async with Deadline(self.proxy.timeouts.head):
                return read_request_head(first + await reader.readuntil(END))
        except TimeoutError:
            raise RequestRefused(
                408, "too_slow", "the head of the request did not come in time"
            ) from None


def _authenticate(head: RequestHead, find: Callable[[str], Grant | None]) -> Grant:
    """Return the grant whose token the request has, if it is valid on this socket."""
    for name in ("x-api-key", "api-key", "x-goog-api-key"):
        for value in head.all(name):
            if grant := find(value):
                return grant
    for value in head.all("authorization"):
        kind, _, token = value.partition(" ")
        if kind.lower() == "bearer" and (grant := find(token.strip())):
            return grant
    raise RequestRefused(401, "unknown_token", "this is not the token of a running attempt")


def _check_protocol(head: RequestHead) -> None:
    """Reject WebSockets with the status at which clients fall back to HTTP at once."""
    if any(head.all("upgrade")):
        raise RequestRefused(426, "no_upgrade", "the gateway supports HTTP/1.1 only, no WebSocket")


def _route(
    head: RequestHead, grant: Grant, upstreams: Mapping[str, Upstream]
) -> tuple[Upstream, str]:
    """Return the upstream and the path of a request."""
    if not PLAIN.fullmatch(head.target):
        raise InvalidHead("use a path /UPSTREAM/…: other hosts cannot be reached")
    path, mark, query = head.target.partition("?")
    name, slash, rest = path[1:].partition("/")
    upstream = upstreams.get(name)
    if upstream is None or name not in grant.upstreams:
        raise RequestRefused(404, "unknown_upstream", "there is no such upstream for this attempt")
    if not upstream.allows(head.method, slash + rest):
        message = f"{name!r} does not allow {head.method} on this path"
        raise RequestRefused(403, "not_allowed", message)
    query = clean_query(query)
    return upstream, f"{upstream.base}{slash}{rest}{mark if query else ''}{query}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
