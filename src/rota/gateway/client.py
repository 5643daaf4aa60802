"""The daemon's side of the gateway: start, register attempts, status.

What it is told is told again, whole, whenever one is started or found; so it does not matter which
of the two was killed.
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
from rota.gateway.grants import CONTROL, DOOR, DOORS, LOCK, VERSION, digest_of, token_of
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
TRIES = 3
LOOK_SECONDS = 0.02
AGAIN_SECONDS = (0.1, 0.5, 2.0, 5.0)
IDLE_SECONDS = 60.0
"""How long a gateway is kept that no attempt needs."""
YOUNG_SECONDS = 60.0
"""How long one that was let in may be missing among the living: they were counted before."""


class GatewayClient:
    """The gateway of a home folder; nothing is started before an attempt needs it."""

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
        self._permits: dict[str, dict[str, Any]] = {}
        self._permitted: dict[str, float] = {}
        self._line: tuple[StreamReader, StreamWriter] | None = None
        self._talking = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._child = 0
        self._needed_at = time.monotonic()
        self._until = 0.0

    def token(self, run_id: int, epoch: int) -> str:
        """Return what an attempt shows instead of a key."""
        return token_of(self._key(), run_id, epoch)

    def port(self) -> int:
        """Return the port of loopback for attempts without walls: the same as long as it works."""
        path = self._folder / PORT
        with contextlib.suppress(OSError, ValueError):
            return int(path.read_text())
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        self._write(PORT, b"%d" % port)
        return port

    def door(self, name: str) -> str:
        """Return the path of the socket at which one attempt behind walls is let in."""
        return str(self._folder / DOORS / name / DOOR)

    async def permit(self, name: str, token: str, **said: Any) -> None:  # noqa: ANN401
        """Let an attempt in; when this returns, it can ask. `said` is the rest of a Permit."""
        permit = {"name": name, "digest": digest_of(token), "until": self._until, **said}
        self._permits[name] = permit
        self._permitted[name] = self._needed_at = time.monotonic()
        try:
            await self._tell({"do": "permit", "permit": permit})
        except Unavailable:
            self._permits.pop(name, None)
            raise

    def promise(self, until: float) -> None:
        """Let attempts ask until a moment of boot time."""
        self._until = until
        for permit in self._permits.values():
            permit["until"] = until

    async def keep(self, living: Collection[str]) -> None:
        """Tell the gateway how long it may go on, and for whom; none is started for that."""
        now = time.monotonic()
        for name in [name for name in self._permits if name not in living]:
            if now - self._permitted[name] > YOUNG_SECONDS:
                del self._permits[name]
        if self._permits:
            self._needed_at = now
        elif self._line is None and not await asyncio.to_thread(self._held):
            return
        try:
            if now - self._needed_at > IDLE_SECONDS:
                await self._tell({"do": "end"})
                self._hang_up()
                return
            known = (await self._tell({"do": "hello"}))["permits"]
            if gone := [n for n in known if n not in living and n not in self._permits]:
                await self._close(gone)
            await self._tell({"do": "promise", "until": self._until})
        except Unavailable as error:
            log.warning("gateway.unreached", extra={"error": str(error)})

    def begin(self, name: str) -> None:
        """Note of an attempt that could write, before it begins, that it has not."""
        grants.begin(str(self._folder), name)

    def wrote(self, name: str) -> bool | None:
        """Return whether an attempt has written to somewhere outside; None if nobody knows."""
        return grants.seen(str(self._folder), name)

    async def dismiss(self, name: str) -> None:
        """Let an attempt in no more, and forget what it has done."""
        grants.drop(str(self._folder), name)
        if self._permits.pop(name, None) is not None and self._line is not None:
            with contextlib.suppress(Unavailable):
                await self._close([name])

    async def _close(self, names: Sequence[str]) -> None:
        used = (await self._tell({"do": "close", "names": names}))["used"]
        for name, figures in used.items():
            log.info("gateway.closed", extra={"attempt": name, **figures})

    @property
    def connected(self) -> bool:
        """Whether a gateway listens to this process."""
        return self._line is not None

    async def configure(self) -> None:
        """Tell what has changed about upstreams and their secrets."""
        await self._tell(self._configuration())

    def close(self) -> None:
        """Let go of the gateway; it goes on as long as it is needed."""
        self._hang_up()

    def _hang_up(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if self._line is not None:
            self._line[1].close()
            self._line = None

    def _configuration(self) -> dict[str, Any]:
        return {"do": "configure", "upstreams": [each.record() for each in self._upstreams()]}

    async def _tell(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Tell the gateway something, and return its answer; it is started if it is not there."""
        async with self._talking:
            answer = await self._told(order)
        if "error" in answer:
            with contextlib.suppress(OSError):
                (self._folder / PORT).unlink()
            raise Unavailable(f"the gateway {answer['error']}")
        return answer

    async def _told(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Tell it, again if it died meanwhile: whatever it is told may be told twice."""
        why = ""
        for _ in range(TRIES):
            try:
                await self._reach()
                return await self._ask(order)
            except (OSError, EOFError, ValueError) as error:
                self._hang_up()
                why = str(error) or "it hung up, or took too long"
        raise Unavailable(f"the gateway does not answer: {why}")

    async def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        if self._line is None:
            raise EOFError
        reader, writer = self._line
        writer.write(json.dumps(order).encode() + b"\n")
        async with asyncio.timeout(ANSWER_SECONDS):
            await writer.drain()
            line = await reader.readline()
        if not line:
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _reach(self) -> None:
        """Find the gateway or start one, and tell it everything."""
        if self._line is not None and not self._line[0].at_eof():
            return
        self._hang_up()
        self._make_folder()
        watched = await self._connected()
        self._line = await self._connected()
        try:
            await self._introduce()
        except BaseException:
            watched[1].close()
            raise
        self._watching = asyncio.get_running_loop().create_task(self._watch(*watched))

    async def _introduce(self) -> None:
        hello = await self._ask({"do": "hello"})
        if hello["version"] != VERSION:
            await self._ask({"do": "end"})
            raise OSError(f"it is of another version, {hello['version']}, and was ended")
        await self._ask(self._configuration())
        for permit in tuple(self._permits.values()):
            await self._ask({"do": "permit", "permit": permit})

    async def _connected(self) -> tuple[StreamReader, StreamWriter]:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                return await self._dialled()
            except (FileNotFoundError, ConnectionError):
                if time.monotonic() > until:
                    raise
            if not await asyncio.to_thread(self._held):
                await asyncio.to_thread(self._start)
            await asyncio.sleep(LOOK_SECONDS)

    async def _dialled(self) -> tuple[StreamReader, StreamWriter]:
        held = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return await asyncio.open_unix_connection(f"/proc/self/fd/{held}/{CONTROL}")
        finally:
            os.close(held)

    async def _watch(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Wait until the gateway dies, and start another one if anybody needs it."""
        try:
            await reader.read()
        except OSError:
            pass
        finally:
            writer.close()
        log.warning("gateway.died", extra={"attempts": len(self._permits)})
        self._watching = None
        for seconds in AGAIN_SECONDS:
            if not self._permits:
                return
            with contextlib.suppress(Unavailable):
                await self._tell({"do": "hello"})
                return
            await asyncio.sleep(seconds)

    def _held(self) -> bool:
        """Whether a gateway lives, or is being born."""
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
        made = secrets.token_bytes(KEY_BYTES)
        self._write(KEY, made)
        return made

    def _write(self, name: str, data: bytes) -> None:
        self._make_folder()
        begun = self._folder / f".{name}.{os.getpid()}"
        begun.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(begun, flags, PRIVATE), "wb") as file:
            file.write(data)
        begun.replace(self._folder / name)


PATIENCE_SECONDS = 5.0
MAX_ANSWER = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStatus:
    """A gateway that is there; `attempts` may ask it, and None is one that does not answer."""

    pid: int
    since: datetime
    socket: str
    attempts: int | None = None
    current: bool = True


def look(folder: Path) -> GatewayStatus | None:
    """Return the gateway of a folder, if there is one; nothing is started and nothing is changed.

    It wrote its number into its lock when it began.
    """
    try:
        pid = int((folder / LOCK).read_text())
        since = datetime.fromtimestamp((folder / LOCK).stat().st_mtime, UTC)
    except (OSError, ValueError):
        return None
    place = str(folder / CONTROL)
    with suppress(OSError, ValueError, KeyError, TypeError):
        told = _asked(folder)
        return GatewayStatus(
            pid=int(told["pid"]),
            since=since,
            socket=place,
            attempts=len(told["permits"]),
            current=told["version"] == VERSION,
        )
    return GatewayStatus(pid=pid, since=since, socket=place) if _is_gateway(pid) else None


def _asked(folder: Path) -> dict[str, Any]:
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(PATIENCE_SECONDS)
            line.connect(f"/proc/self/fd/{held}/{CONTROL}")
            line.sendall(b'{"do": "hello"}\n')
            with line.makefile("rb") as answers:
                told: dict[str, Any] = json.loads(answers.readline(MAX_ANSWER))
    finally:
        os.close(held)
    return told


def _is_gateway(pid: int) -> bool:
    """Whether a process is a gateway, and not another one that has its number now."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"rota.gateway.server" in words


LOOKS_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH|COOKIE|_HEADERS$|(?:^|_)PAT$", re.IGNORECASE
)
WITH_PASSWORD = re.compile(r"^[a-z0-9+.-]+://[^/]*@", re.IGNORECASE)
ADDRESS, TOKEN = "ROTA_GATEWAY_URL", "ROTA_GATEWAY_TOKEN"


class AttemptGateway:
    """Leads attempts to the gateway.

    `inside` is the port at which programs behind walls find their door, None where the operator
    leads them elsewhere.
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
        self._plan = plan
        self._secrets = secrets
        self._redactor = redactor
        self._inside = inside
        self._open: dict[str, tuple[list[str], WriteScope]] = {}
        self._writers: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: list[Callable[[], None]] = []

    def filter_environment(
        self, offered: Mapping[str, str], *, isolated: bool
    ) -> Mapping[str, str]:
        """Return what programs may choose from: behind walls, nothing that is or seems a secret."""
        if not isolated or self._inside is None:
            return offered
        return {
            name: value
            for name, value in offered.items()
            if not LOOKS_SECRET.search(name)
            and not WITH_PASSWORD.match(value)
            and not self._redactor.holds(value)
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
        """Return what an attempt finds in its environment; nothing if there is nothing to reach.

        Whoever works without walls and finds a key in the environment anyway is left alone.
        """
        if own_loopback and self._inside is None:
            return {}
        open_to = self._ready(space)
        if not own_loopback:
            open_to = [each for each in open_to if not set(each.variables) & set(offered)]
        if not open_to:
            return {}
        self._open[name] = [upstream.name for upstream in open_to], scope
        if any(upstream.writes for upstream in open_to):
            self._writers.add(name)
        address = f"http://127.0.0.1:{self._inside if own_loopback else self._gateway.port()}"
        token = self._gateway.token(*ids)
        said = {ADDRESS: address, TOKEN: token}
        for upstream in open_to:
            for variable, template in upstream.variables.items():
                url = f"{address}/{upstream.name}"
                said[variable] = template.replace("{url}", url).replace("{token}", token)
        return said

    def can_write(self, name: str) -> bool:
        """Whether an attempt that was told of the gateway could write to somewhere outside."""
        return name in self._writers

    def has_written(self, name: str) -> bool | None:
        """Return whether an attempt has written to somewhere outside; None if nobody knows."""
        return self._gateway.wrote(name)

    async def admit(
        self, name: str, ids: tuple[int, int], ended: str, *, own_loopback: bool
    ) -> str:
        """Let an attempt in that is about to begin; return the path of its door."""
        if self.can_write(name):
            self._gateway.begin(name)
        return await self._admit(name, ids, ended, own_loopback=own_loopback)

    async def _admit(
        self, name: str, ids: tuple[int, int], ended: str, *, own_loopback: bool
    ) -> str:
        if name not in self._open:
            return self._gateway.door(name)  # it was dismissed before its turn came
        upstreams, scope = self._open[name]
        await self._gateway.permit(
            name,
            self._gateway.token(*ids),
            upstreams=upstreams,
            ended=ended,
            port=None if own_loopback else self._gateway.port(),
            requests_left=self._plan.requests,
            bytes_left=self._plan.bytes,
            space=scope.space_id,
            scope=scope.key,
            since=scope.since,
        )
        return self._gateway.door(name)

    def readmit(self, name: str, ids: tuple[int, int], ended: str, *, own_loopback: bool) -> None:
        """Let an attempt in again that a process before this one has started."""
        self._begin(partial(self._admit, name, ids, ended, own_loopback=own_loopback))

    def extend_lease(self, until: float) -> None:
        """Let attempts ask until a moment of boot time."""
        self._gateway.promise(until)

    def revoke_others(self, living: Collection[str]) -> None:
        """Let nobody ask but these."""
        self._begin(partial(self._gateway.keep, frozenset(living)))

    def changed(self) -> None:
        """Tell the gateway of secrets that are others now, if it is in use."""
        if self._gateway.connected:
            self._begin(self._gateway.configure)

    async def revoke(self, name: str) -> None:
        """Let an attempt in no more."""
        self._open.pop(name, None)
        self._writers.discard(name)
        await self._gateway.dismiss(name)

    def on_close(self, then: Callable[[], None]) -> None:
        """Do something when the gateway is let go of."""
        self._closing.append(then)

    def close(self) -> None:
        """Let go of the gateway, which goes on as long as an attempt needs it."""
        for then in self._closing:
            then()
        for task in self._tasks:
            task.cancel()
        self._gateway.close()

    def _ready(self, space: str) -> list[UpstreamConfig]:
        known = self._secrets()
        ready = (each for each in self._plan.upstreams if each.takes(known.get(each.secret)))
        return [each for each in ready if each.is_for(space)]

    def _begin(self, work: Callable[[], Awaitable[object]]) -> None:
        task = asyncio.get_running_loop().create_task(_carefully(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _carefully(work: Callable[[], Awaitable[object]]) -> None:
    try:
        await work()  # not before: a task may be cancelled before it begins
    except Unavailable as error:
        log.warning("gateway.unreached", extra={"error": str(error)})
