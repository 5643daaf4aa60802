"""Access of checks to the outside: files, URLs and commands.

URLs: a name is resolved once, all its addresses are checked, and the connection goes to a checked
address, so a name that changes in between has no effect. A redirect is checked again. The socket is
closed at the deadline.

Patterns and schemas may take very long to compile or match. One space uses one evaluation process
at a time and all spaces together a few, so that nobody waits long.

Files: no clocks are compared, because every file system has its own. The state of a file is noted
in the home before anything of the attempt starts, and compared at its end.
"""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import json
import os
import socket
import ssl
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from rota.errors import NotPermitted, Unavailable, shown
from rota.keeper.build import Interpreter
from rota.keeper.home import BlockingCalls, raise_if_exhausted
from rota.keeper.paths import open_below
from rota.keeper.workspace import egress_name
from rota.model.ids import Epoch, RunId
from rota.ports.host import FileStat, ProbeResult

MAX_BYTES = 1024 * 1024
MOST_REDIRECTS = 3
REDIRECTS = frozenset({301, 302, 303, 307, 308})
GOOD = range(200, 300)
PORTS = {"http": 80, "https": 443}
EMBEDS = tuple(
    ipaddress.ip_network(network)
    for network in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)
"""IPv6 addresses that embed an IPv4 address."""


class AddressRefusal(Exception):
    """Why an address is not requested."""


class _Answer(NamedTuple):
    status: int
    location: str | None
    body: bytes


def ask(url: str, contains: str | None, seconds: float, *, inside: bool) -> ProbeResult:
    """Return whether a URL answers 2xx and contains a text, within so many seconds.

    With `inside`, addresses of this machine and its networks are allowed.
    """
    return UrlProbe(seconds, inside=inside).ask(url, contains)


class UrlProbe:
    """Requests one URL in a thread; another thread can cut it."""

    def __init__(self, seconds: float, *, inside: bool) -> None:
        self._seconds = seconds
        self._inside = inside
        self._until = time.monotonic() + seconds
        self._line: _Line | None = None

    def cut(self) -> None:
        """Abort the request."""
        self._until = 0.0
        if self._line is not None:
            self._line.cut()

    def ask(self, url: str, contains: str | None) -> ProbeResult:
        """Return whether a URL answers 2xx and contains a text."""
        timer = threading.Timer(self._seconds, self.cut)
        timer.daemon = True
        timer.start()
        try:
            return self._followed(url, contains)
        except AddressRefusal as refusal:
            return ProbeResult(passed=False, evidence=str(refusal))
        except (OSError, ValueError, http.client.HTTPException) as fault:
            late = time.monotonic() >= self._until
            told = f"it did not answer within {self._seconds:g} s" if late else _why(fault)
            return ProbeResult(passed=False, evidence=told)
        finally:
            timer.cancel()

    def _followed(self, url: str, contains: str | None) -> ProbeResult:
        for _ in range(MOST_REDIRECTS + 1):
            answer = self._get(urlsplit(url))
            if answer.status not in REDIRECTS or not answer.location:
                return _judged(answer, contains)
            url = urljoin(url, answer.location)
        told = f"it redirects more than {MOST_REDIRECTS} times"
        return ProbeResult(passed=False, evidence=told)

    def _get(self, parts: SplitResult) -> _Answer:
        host = parts.hostname
        if parts.scheme not in PORTS or not host or parts.username is not None:
            raise AddressRefusal(f"{shown(parts.geturl())} is not allowed in a check")
        port = parts.port or PORTS[parts.scheme]
        self._line = line = _Line(host, _resolved(host, port, inside=self._inside), port)
        try:
            path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
            line.open(self._until - time.monotonic(), secure=parts.scheme == "https")
            line.request("GET", path, headers={"User-Agent": "rota-check", "Accept": "*/*"})
            answer = line.getresponse()
            body = b"" if answer.status in REDIRECTS else answer.read(MAX_BYTES)
            if time.monotonic() >= self._until:
                raise TimeoutError
            return _Answer(answer.status, answer.getheader("Location"), body)
        finally:
            line.close()


def _judged(answer: _Answer, contains: str | None) -> ProbeResult:
    if answer.status not in GOOD:
        return ProbeResult(passed=False, evidence=f"it answered {answer.status}")
    if contains is None or contains in answer.body.decode("utf-8", "replace"):
        return ProbeResult(passed=True, evidence=f"it answered {answer.status}")
    told = f"it answered {answer.status} without {shown(contains)}"
    return ProbeResult(passed=False, evidence=f"{told} in its first {len(answer.body)} bytes")


def _why(fault: Exception) -> str:
    reason = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
    return f"it cannot be requested: {shown(reason)}"


class _Line(http.client.HTTPConnection):
    """A connection to a checked address."""

    def __init__(self, host: str, address: str, port: int) -> None:
        super().__init__(host, port)
        self._address = address
        self._raw: socket.socket | None = None
        self._late = False

    def open(self, left: float, *, secure: bool) -> None:
        """Connect within so many seconds, with TLS if required."""
        if left <= 0 or self._late:
            raise TimeoutError
        self._raw = socket.create_connection((self._address, self.port), timeout=left)
        if secure:
            wrapped = ssl.create_default_context().wrap_socket(
                self._raw, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.sock = wrapped  # from here on another thread can cut it
            wrapped.do_handshake()
        else:
            self.sock = self._raw

    def cut(self) -> None:
        """Close the connection from another thread."""
        self._late = True
        for held in filter(None, (self._raw, self.sock)):
            with suppress(OSError):
                socket.socket.shutdown(held, socket.SHUT_RDWR)


def _resolved(host: str, port: int, *, inside: bool) -> str:
    """Return an address of a host; refused if any of its addresses is internal."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    strange = next((one for one in addresses if not is_outside(one)), None)
    if strange is not None and not inside:
        raise AddressRefusal(
            f"{shown(host)} is at {strange}, inside of this network: "
            "let checks go there with the setting check_internal_addresses"
        )
    return addresses[0]


def is_outside(address: str) -> bool:
    """Return whether an address is public."""
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return is_outside(str(found.ipv4_mapped))
        if any(found in network for network in EMBEDS):
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved


TICK_SECONDS = 0.02
"""Longer than the resolution of file times; a second write within it may not change them."""


def note(notes: Path, work: Path, folder: str | None, paths: Sequence[str], *, anew: bool) -> None:
    """Note the state of files; keep earlier notes unless the attempt starts again."""
    if notes.exists() and not anew:
        return
    noted = {_below(folder, path): _settled(work, _below(folder, path)) for path in paths}
    unfinished = notes.with_suffix(".new")
    unfinished.write_text(json.dumps(noted), encoding="utf-8")
    unfinished.replace(notes)


def look(notes: Path, work: Path, folder: str | None, path: str) -> FileStat | str:
    """Return the state of a plain file, or why it is not one."""
    below = _below(folder, path)
    facts = _facts(work, below)
    if isinstance(facts, str):
        return facts
    try:
        was = json.loads(notes.read_text(encoding="utf-8"))[below]
    except (FileNotFoundError, KeyError, ValueError):
        changed = None
    else:
        changed = was != _stamp(facts)
    # The kernel sets the change time, which bounds the modification time that a program can set.
    written = max(0, min(facts.st_mtime_ns, facts.st_ctime_ns))
    return FileStat(written // 1_000, facts.st_size, changed)


def _below(folder: str | None, path: str) -> str:
    return f"{folder}/{path}" if folder else path


def _stamp(facts: os.stat_result) -> list[int]:
    return [facts.st_ino, facts.st_mtime_ns, facts.st_size]


def _settled(work: Path, below: str) -> list[int] | None:
    """Return a stamp of a file that every later write changes; None if it is not a plain file."""
    facts = _facts(work, below)
    if isinstance(facts, str):
        return None
    if abs(time.time_ns() - facts.st_mtime_ns) < TICK_SECONDS * 1e9:
        time.sleep(TICK_SECONDS)
        facts = _facts(work, below)
    return None if isinstance(facts, str) else _stamp(facts)


def _facts(work: Path, below: str) -> os.stat_result | str:
    """Return the stat of a plain file, opening each path component from the folder before."""
    root = str(work)
    try:
        held = open_below(root, f"{root}/{below}")
    except NotPermitted as fault:
        gone = isinstance(fault.__cause__, FileNotFoundError)
        return "there is no file with this path" if gone else str(fault)
    try:
        facts = os.fstat(held)
    finally:
        os.close(held)
    return facts if stat.S_ISREG(facts.st_mode) else "it is not a plain file"


SLACK_SECONDS = 1.0
NOTES = "files.json"
TOO_LONG = "compiling its patterns takes too long: simplify them"


class LocalProbes:
    """Accesses files of a home's spaces and URLs, and evaluates patterns and schemas."""

    def __init__(self, home: Path, *, inside: bool = False) -> None:
        self._spaces = home.absolute() / "spaces"
        self._rooms = home.absolute() / "keepers" / "rooms"
        self._inside = inside
        self._asking = BlockingCalls()
        self._evaluator = Evaluator()

    async def note_files(
        self,
        attempt: tuple[RunId, Epoch],
        space: str,
        folder: str | None,
        paths: Sequence[str],
        *,
        anew: bool,
    ) -> None:
        """Note the state of files in a task's folder before anything of an attempt starts."""
        work = self._spaces / space / "work"
        with raise_if_exhausted(unbegun=anew):
            await asyncio.to_thread(note, self._notes(attempt), work, folder, paths, anew=anew)

    async def stat_file(
        self, attempt: tuple[RunId, Epoch], space: str, folder: str | None, path: str
    ) -> FileStat | str:
        """Return the state of a plain file in a task's folder, or why it is not one."""
        work = self._spaces / space / "work"
        return await asyncio.to_thread(look, self._notes(attempt), work, folder, path)

    def _notes(self, attempt: tuple[RunId, Epoch]) -> Path:
        """Return the path of the notes, which isolated programs cannot access."""
        return self._rooms / egress_name(*attempt) / NOTES

    async def check_url(self, url: str, contains: str | None, seconds: float) -> ProbeResult:
        """Return whether a URL answers in time and contains a text."""
        asking = UrlProbe(seconds, inside=self._inside)
        try:
            async with asyncio.timeout(seconds + SLACK_SECONDS):
                return await self._asking.run("address", asking.ask, url, contains)
        except TimeoutError:  # name resolution cannot be interrupted
            return ProbeResult(passed=False, evidence=f"it did not answer within {seconds:g} s")
        finally:
            asking.cut()

    async def check_patterns(
        self, space: str, patterns: Sequence[str]
    ) -> tuple[int | None, str] | None:
        """Return the invalid pattern and why; without an index if all take too long."""
        answer = await self._evaluator.ask(space, "check_patterns", patterns)
        if answer is None:
            return None, TOO_LONG
        return None if answer[0] is None else (answer[0][0], answer[0][1])

    async def search(self, space: str, pattern: str, text: str) -> bool | None:
        """Return whether a pattern matches; None if that took too long."""
        answer = await self._evaluator.ask(space, "search", pattern, text)
        return None if answer is None else bool(answer[0])

    async def check_result(
        self, space: str, schema: object, result: str | None
    ) -> Sequence[str] | None:
        """Return how a result violates a schema; None if that took too long."""
        answer = await self._evaluator.ask(space, "check_result", schema, result)
        return None if answer is None else answer[0]


PROGRAM = "rota.app.check_process"
SECONDS = 10.0
"""Time limit of an evaluation process; its processor time is limited separately."""
AT_ONCE = 2


class Evaluator:
    """Starts a process for each evaluation."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._turn_of: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ask(self, space: str, question: str, *told: object) -> Any | None:  # noqa: ANN401
        """Return the result of a function of `check_process`; None if it takes too long."""
        async with self._turn_of[space], self._turns:
            out = await self._ran(json.dumps([question, *told]).encode())
        with suppress(ValueError):
            return (json.loads(out)["answer"],)
        return None

    async def _ran(self, said: bytes) -> bytes:
        pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        words = Interpreter.running().module(PROGRAM)
        try:
            child = await asyncio.create_subprocess_exec(
                *words, stdin=pipe, stdout=pipe, stderr=nowhere, env={}
            )
        except OSError as fault:
            message = f"no process could be started to evaluate a check: {fault}"
            raise Unavailable(message) from None
        try:
            async with asyncio.timeout(self._seconds):
                out, _ = await child.communicate(said)
        except TimeoutError:
            return b""
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
                await (
                    child.communicate()
                )  # wait until its pipes are closed, which may be after its end
        return out
