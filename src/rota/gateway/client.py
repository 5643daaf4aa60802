"""The daemon's side of the gateway: start it, grant access to attempts, query its status.

Whenever a gateway is started or found, it is sent the whole configuration and all grants, so either
process can be killed at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import re
import secrets
import signal
import socket
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from rota.errors import Unavailable
from rota.gateway import grants
from rota.gateway.config import GatewayConfig, UpstreamConfig
from rota.gateway.grants import CONTROL, LOCK, SOCKET, SOCKETS, VERSION, grant_token, token_digest
from rota.gateway.upstreams import Upstream
from rota.rules.effects import WriteScope
from rota.rules.redaction import Redactor

log = logging.getLogger(__name__)

PRIVATE = 0o600
FOLDER = 0o700
KEY, PORT, COMPLAINTS = "tokens.key", "port", "err"
KEY_BYTES = 32
ANSWER_SECONDS = 10.0
START_SECONDS = 15.0
MAX_TRIES = 3
POLL_SECONDS = 0.02
RESTART_SECONDS = (0.1, 0.5, 2.0, 5.0)
IDLE_SECONDS = 60.0
"""How long a gateway without grants is kept running."""
NEW_GRANT_SECONDS = 60.0
"""How long a new grant may be missing in the list of living attempts, which may be older."""


class GatewayClient:
    """The gateway of a home; it is started when the first attempt needs it."""

    def __init__(
        self,
        folder: Path,
        argv: Callable[[str], Sequence[str]],
        environment: Mapping[str, str],
        upstreams: Callable[[], Sequence[Upstream]],
    ) -> None:
        self._folder = folder.absolute()
        self._argv = argv
        self._environment = environment
        self._upstreams = upstreams
        self._grants: dict[str, dict[str, Any]] = {}
        self._granted_at: dict[str, float] = {}
        self._connection: tuple[StreamReader, StreamWriter] | None = None
        self._request_lock = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None
        self._child = 0
        self._needed_at = time.monotonic()
        self._until = 0.0

    def token(self, run_id: int, epoch: int) -> str:
        """Return the token that an attempt sends instead of a key."""
        return grant_token(self._key(), run_id, epoch)

    def port(self) -> int:
        """Return the loopback port for attempts that are not isolated; it rarely changes."""
        path = self._folder / PORT
        with contextlib.suppress(OSError, ValueError):
            return int(path.read_text())
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        self._write(PORT, b"%d" % port)
        return port

    def socket_path(self, name: str) -> str:
        """Return the path of the socket of one isolated attempt."""
        return str(self._folder / SOCKETS / name / SOCKET)

    async def grant(self, name: str, token: str, **fields: Any) -> None:  # noqa: ANN401
        """Grant access to an attempt; `fields` are the remaining fields of the Grant."""
        grant = {"name": name, "digest": token_digest(token), "until": self._until, **fields}
        self._grants[name] = grant
        self._granted_at[name] = self._needed_at = time.monotonic()
        try:
            await self._request({"do": "grant", "grant": grant})
        except Unavailable:
            self._grants.pop(name, None)
            raise

    def extend_lease(self, until: float) -> None:
        """Extend all grants to an instant of boot time."""
        self._until = until
        for grant in self._grants.values():
            grant["until"] = until

    async def renew(self, living: Collection[str]) -> None:
        """Send the extended grants, and revoke others; does not start a gateway."""
        now = time.monotonic()
        for name in [name for name in self._grants if name not in living]:
            if now - self._granted_at[name] > NEW_GRANT_SECONDS:
                del self._grants[name]
        if self._grants:
            self._needed_at = now
        elif self._connection is None and not await asyncio.to_thread(self._is_running):
            return
        try:
            if now - self._needed_at > IDLE_SECONDS:
                await self._request({"do": "end"})
                self._disconnect()
                return
            known = (await self._request({"do": "hello"}))["grants"]
            if gone := [n for n in known if n not in living and n not in self._grants]:
                await self._close(gone)
            await self._request({"do": "extend", "until": self._until})
        except Unavailable as error:
            log.warning("gateway.unreachable", extra={"error": str(error)})

    def mark_started(self, name: str) -> None:
        """Record, before an attempt starts, that it has not written yet."""
        grants.mark_started(str(self._folder), name)

    def has_written(self, name: str) -> bool | None:
        """Return whether an attempt has written to the outside; None if that is unknown."""
        return grants.has_written(str(self._folder), name)

    async def revoke(self, name: str) -> None:
        """Revoke the grant of an attempt, and delete its records."""
        grants.delete_mark(str(self._folder), name)
        if self._grants.pop(name, None) is not None and self._connection is not None:
            with contextlib.suppress(Unavailable):
                await self._close([name])

    async def _close(self, names: Sequence[str]) -> None:
        used = (await self._request({"do": "close", "names": names}))["used"]
        for name, figures in used.items():
            log.info("gateway.closed", extra={"attempt": name, **figures})

    @property
    def connected(self) -> bool:
        """Whether this process is connected to a gateway."""
        return self._connection is not None

    async def configure(self) -> None:
        """Send the current upstreams and secrets."""
        await self._request(self._configuration())

    def close(self) -> None:
        """Close the connection; the gateway runs as long as it is needed."""
        self._disconnect()

    def _disconnect(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None
        if self._connection is not None:
            self._connection[1].close()
            self._connection = None

    def _configuration(self) -> dict[str, Any]:
        return {"do": "configure", "upstreams": [each.record() for each in self._upstreams()]}

    async def _request(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Send an order and return the answer; start a gateway if there is none."""
        async with self._request_lock:
            answer = await self._send_with_retry(order)
        if "error" in answer:
            with contextlib.suppress(OSError):
                (self._folder / PORT).unlink()
            raise Unavailable(f"the gateway {answer['error']}")
        return answer

    async def _send_with_retry(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Send an order, and repeat it after a failure: all orders are idempotent."""
        why = ""
        for _ in range(MAX_TRIES):
            try:
                await self._ensure_connected()
                return await self._send(order)
            except (OSError, EOFError, ValueError) as error:
                self._disconnect()
                why = str(error) or "it closed the connection or timed out"
        raise Unavailable(f"the gateway does not answer: {why}")

    async def _send(self, order: Mapping[str, Any]) -> dict[str, Any]:
        if self._connection is None:
            raise EOFError
        reader, writer = self._connection
        writer.write(json.dumps(order).encode() + b"\n")
        async with asyncio.timeout(ANSWER_SECONDS):
            await writer.drain()
            line = await reader.readline()
        if not line:
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _ensure_connected(self) -> None:
        """Connect to the gateway, or start one, and send it everything."""
        if self._connection is not None and not self._connection[0].at_eof():
            return
        self._disconnect()
        self._make_folder()
        watched = await self._connect_or_start()
        self._connection = await self._connect_or_start()
        try:
            await self._handshake()
        except BaseException:
            watched[1].close()
            raise
        self._watcher = asyncio.get_running_loop().create_task(self._watch(*watched))

    async def _handshake(self) -> None:
        hello = await self._send({"do": "hello"})
        if hello["version"] != VERSION:
            await self._send({"do": "end"})
            raise OSError(f"it was of another version, {hello['version']}, and was stopped")
        await self._send(self._configuration())
        for grant in tuple(self._grants.values()):
            await self._send({"do": "grant", "grant": grant})

    async def _connect_or_start(self) -> tuple[StreamReader, StreamWriter]:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                return await self._connect()
            except (FileNotFoundError, ConnectionError):
                if time.monotonic() > until:
                    raise
            if not await asyncio.to_thread(self._is_running):
                await asyncio.to_thread(self._start)
            await asyncio.sleep(POLL_SECONDS)

    async def _connect(self) -> tuple[StreamReader, StreamWriter]:
        held = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return await asyncio.open_unix_connection(f"/proc/self/fd/{held}/{CONTROL}")
        finally:
            os.close(held)

    async def _watch(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Wait until the gateway exits, and start another one if there are grants."""
        try:
            await reader.read()
        except OSError:
            pass
        finally:
            writer.close()
        log.warning("gateway.died", extra={"attempts": len(self._grants)})
        self._watcher = None
        for seconds in RESTART_SECONDS:
            if not self._grants:
                return
            with contextlib.suppress(Unavailable):
                await self._request({"do": "hello"})
                return
            await asyncio.sleep(seconds)

    def _is_running(self) -> bool:
        """Whether a gateway is running or starting."""
        with contextlib.suppress(ChildProcessError):
            if self._child and os.waitpid(self._child, os.WNOHANG)[0] == 0:
                return True
        self._child = 0
        try:
            lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def _start(self) -> None:
        argv = list(self._argv(str(self._folder)))
        complaints = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._child = os.posix_spawn(
            argv[0],
            argv,
            dict(self._environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(self._folder / COMPLAINTS), complaints, PRIVATE),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE),
        )

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)

    def _key(self) -> bytes:
        path = self._folder / KEY
        try:
            found = path.read_bytes()
        except FileNotFoundError:
            found = b""
        if len(found) == KEY_BYTES:
            return found
        key = secrets.token_bytes(KEY_BYTES)
        self._write(KEY, key)
        return key

    def _write(self, name: str, data: bytes) -> None:
        self._make_folder()
        draft = self._folder / f".{name}.{os.getpid()}"
        draft.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, PRIVATE), "wb") as file:
            file.write(data)
        draft.replace(self._folder / name)


STATUS_SECONDS = 5.0
MAX_ANSWER = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStatus:
    """A running gateway; `attempts` counts its grants, None if it does not answer."""

    pid: int
    since: datetime
    socket: str
    attempts: int | None = None
    current: bool = True


def gateway_status(folder: Path) -> GatewayStatus | None:
    """Return the gateway of a folder, if there is one; changes nothing.

    Its lock file contains its process id.
    """
    try:
        pid = int((folder / LOCK).read_text())
        since = datetime.fromtimestamp((folder / LOCK).stat().st_mtime, UTC)
    except (OSError, ValueError):
        return None
    socket_path = str(folder / CONTROL)
    with suppress(OSError, ValueError, KeyError, TypeError):
        answer = _query_status(folder)
        return GatewayStatus(
            pid=int(answer["pid"]),
            since=since,
            socket=socket_path,
            attempts=len(answer["grants"]),
            current=answer["version"] == VERSION,
        )
    return GatewayStatus(pid=pid, since=since, socket=socket_path) if _is_gateway(pid) else None


def _query_status(folder: Path) -> dict[str, Any]:
    folder_fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(STATUS_SECONDS)
            connection.connect(f"/proc/self/fd/{folder_fd}/{CONTROL}")
            connection.sendall(b'{"do": "hello"}\n')
            with connection.makefile("rb") as answers:
                answer: dict[str, Any] = json.loads(answers.readline(MAX_ANSWER))
    finally:
        os.close(folder_fd)
    return answer


def _is_gateway(pid: int) -> bool:
    """Whether a process id still belongs to a gateway."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"rota.gateway.server" in words


SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH|COOKIE|_HEADERS$|(?:^|_)PAT$", re.IGNORECASE
)
URL_WITH_PASSWORD = re.compile(r"^[a-z0-9+.-]+://[^/]*@", re.IGNORECASE)
ADDRESS, TOKEN = "ROTA_GATEWAY_URL", "ROTA_GATEWAY_TOKEN"


class AttemptGateway:
    """Gives attempts access to the gateway.

    `inside` is the port at which isolated programs reach it; None if the operator has configured
    another egress for them.
    """

    def __init__(
        self,
        gateway: GatewayClient,
        plan: GatewayConfig,
        secrets: Callable[[], Mapping[str, str]],
        redactor: Redactor,
        inside: int | None,
    ) -> None:
        self._gateway = gateway
        self._config = plan
        self._secrets = secrets
        self._redactor = redactor
        self._isolated_port = inside
        self._attempts: dict[str, tuple[list[str], WriteScope]] = {}
        self._writers: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: list[Callable[[], None]] = []

    def filter_environment(
        self, offered: Mapping[str, str], *, isolated: bool
    ) -> Mapping[str, str]:
        """Return variables programs may choose from; isolated ones get none that seem secret."""
        if not isolated or self._isolated_port is None:
            return offered
        return {
            name: value
            for name, value in offered.items()
            if not SECRET_NAME.search(name)
            and not URL_WITH_PASSWORD.match(value)
            and not self._redactor.contains_secret(value)
        }

    def environment(
        self,
        name: str,
        ids: tuple[int, int],
        space: str,
        offered: Mapping[str, str],
        scope: WriteScope,
        *,
        own_loopback: bool,
    ) -> dict[str, str]:
        """Return the gateway's variables for an attempt; empty if it may reach nothing.

        A program that is not isolated and has the provider's key in its environment keeps using
        that.
        """
        if own_loopback and self._isolated_port is None:
            return {}
        upstreams = self._available_upstreams(space)
        if not own_loopback:
            upstreams = [each for each in upstreams if not set(each.variables) & set(offered)]
        if not upstreams:
            return {}
        self._attempts[name] = [upstream.name for upstream in upstreams], scope
        if any(upstream.can_write for upstream in upstreams):
            self._writers.add(name)
        address = (
            f"http://127.0.0.1:{self._isolated_port if own_loopback else self._gateway.port()}"
        )
        token = self._gateway.token(*ids)
        variables = {ADDRESS: address, TOKEN: token}
        for upstream in upstreams:
            for variable, template in upstream.variables.items():
                url = f"{address}/{upstream.name}"
                variables[variable] = template.replace("{url}", url).replace("{token}", token)
        return variables

    def can_write(self, name: str) -> bool:
        """Whether an attempt could write to the outside."""
        return name in self._writers

    def has_written(self, name: str) -> bool | None:
        """Return whether an attempt has written to somewhere outside; None if nobody knows."""
        return self._gateway.has_written(name)

    async def admit(
        self, name: str, ids: tuple[int, int], ended: str, *, own_loopback: bool
    ) -> str:
        """Grant access to an attempt that is about to start; return the path of its socket."""
        if self.can_write(name):
            self._gateway.mark_started(name)
        return await self._admit(name, ids, ended, own_loopback=own_loopback)

    async def _admit(
        self, name: str, ids: tuple[int, int], ended: str, *, own_loopback: bool
    ) -> str:
        if name not in self._attempts:
            return self._gateway.socket_path(name)  # revoked before this ran
        upstreams, scope = self._attempts[name]
        await self._gateway.grant(
            name,
            self._gateway.token(*ids),
            upstreams=upstreams,
            ended=ended,
            port=None if own_loopback else self._gateway.port(),
            requests_left=self._config.requests,
            bytes_left=self._config.bytes,
            space=scope.space_id,
            scope=scope.key,
            since=scope.since,
        )
        return self._gateway.socket_path(name)

    def readmit(self, name: str, ids: tuple[int, int], ended: str, *, own_loopback: bool) -> None:
        """Grant access again to an attempt that an earlier process started."""
        self._run_in_background(partial(self._admit, name, ids, ended, own_loopback=own_loopback))

    def extend_lease(self, until: float) -> None:
        """Extend all grants to an instant of boot time."""
        self._gateway.extend_lease(until)

    def revoke_others(self, living: Collection[str]) -> None:
        """Revoke the grants of all other attempts."""
        self._run_in_background(partial(self._gateway.renew, frozenset(living)))

    def reconfigure(self) -> None:
        """Send changed secrets to the gateway, if it is in use."""
        if self._gateway.connected:
            self._run_in_background(self._gateway.configure)

    async def revoke(self, name: str) -> None:
        """Revoke the grant of an attempt."""
        self._attempts.pop(name, None)
        self._writers.discard(name)
        await self._gateway.revoke(name)

    def on_close(self, then: Callable[[], None]) -> None:
        """Register a function to call on close."""
        self._closing.append(then)

    def close(self) -> None:
        """Close the connection; the gateway runs as long as an attempt needs it."""
        for then in self._closing:
            then()
        for task in self._tasks:
            task.cancel()
        self._gateway.close()

    def _available_upstreams(self, space: str) -> list[UpstreamConfig]:
        known = self._secrets()
        ready = (
            each for each in self._config.upstreams if each.accepts_secret(known.get(each.secret))
        )
        return [each for each in ready if each.is_open_to(space)]

    def _run_in_background(self, work: Callable[[], Awaitable[object]]) -> None:
        task = asyncio.get_running_loop().create_task(_log_unavailable(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _log_unavailable(work: Callable[[], Awaitable[object]]) -> None:
    try:
        await work()  # called here, because the task may be cancelled before it starts
    except Unavailable as error:
        log.warning("gateway.unreachable", extra={"error": str(error)})
