"""A client that asks the daemon over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from select import select
from typing import Any, NamedTuple
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from rota.app.discovery import find_daemon_address
from rota.commands.errors import exit_code_of
from rota.errors import Invalid, RotaError, Unavailable

ADMIN_KEY = "admin.key"
HEALTH = "/healthz"
VERSION = "/v1"
"""Where every path begins; an address may be given with it or without."""
NO_CONTENT = 204
REFUSED = 400
LOOK_SECONDS = 0.5
"""How long a daemon that the home folder tells of may take to say that it is there."""
ANSWER_SECONDS = 60.0
CHUNK = 64 * 1024
IN_PATH = frozenset({"GET", "DELETE"})
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class DaemonRefused(RotaError):
    """What a daemon answered instead of doing what it was asked."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message") or f"the daemon answered {status}"))
        self.code = str(error.get("code") or "error")
        self.field = error.get("field")
        self.exit_code = exit_code_of(status, self.code)


class ServerSentEvent(NamedTuple):
    """One thing a daemon sends unasked: where the reader is then, and what happened."""

    id: str
    name: str
    data: dict[str, Any] | None


class HttpClient:
    """A daemon at an address."""

    def __init__(self, url: str, key: str | None = None, home: Path | None = None) -> None:
        """Speak to whoever is at an address, or with a home only to the daemon of that."""
        self.url = url.rstrip("/").removesuffix(VERSION)
        self._key = key
        self._home = home
        self._parts = _split(self.url)
        self._connection = self._connect(ANSWER_SECONDS)

    def call(
        self, method: str, path: str, said: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Ask for one command; the answer is empty for a rehearsal that went well."""
        headers = self._headers("application/json")
        body = None
        if dry_run:
            headers["Rota-Dry-Run"] = "true"
        if method not in IN_PATH:
            headers["Content-Type"] = "application/json"
            body = json.dumps(said).encode()
        elif said:
            path = f"{path}?{urlencode(said)}"
        status, answer = self._exchange(method, path, body, headers)
        if status >= REFUSED:
            error = answer.get("error")
            raise DaemonRefused(status, error if isinstance(error, dict) else {})
        return answer

    def post(
        self, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a body as it is; return the status, the headers and the body of the answer."""
        sent = {**self._headers("application/json"), "Content-Type": "application/json", **headers}
        try:
            self._reach()
            self._connection.request("POST", self._parts.path + path, body, sent)
            response = self._connection.getresponse()
            told = {name.lower(): value for name, value in response.getheaders()}
            return response.status, told, response.read()
        except (OSError, HTTPException, ValueError) as fault:
            self._connection.close()
            raise Unavailable(_silence(self.url, fault)) from fault

    def fetch(self, run: int, name: str) -> Iterator[bytes]:
        """Yield the bytes of an artifact."""
        path = f"/v1/runs/{run}/artifacts/{quote(name)}"
        try:
            response = self._get(path, self._headers("application/octet-stream"))
            if response.status >= REFUSED:
                raise DaemonRefused(response.status, _read(response).get("error") or {})
            left = int(response.headers["Content-Length"])
            while left and (part := response.read(min(CHUNK, left))):
                left -= len(part)
                yield part
        except (OSError, HTTPException, ValueError, TypeError) as fault:
            raise Unavailable(_silence(self.url, fault)) from fault
        finally:
            self._connection.close()
        if left:
            raise Unavailable(f"the daemon at {self.url} broke off: fetch it again")

    def follow(self, path: str, last: str | None) -> Iterator[ServerSentEvent]:
        """Yield what the daemon sends, from after the last on that was told, until it ends."""
        headers = self._headers("text/event-stream")
        if last is not None:
            headers["Last-Event-ID"] = last
        try:
            response = self._get(path, headers)
            if response.status >= REFUSED:
                raise DaemonRefused(response.status, _read(response).get("error") or {})
            yield from _told(response)
        except (OSError, HTTPException, ValueError) as fault:
            raise Unavailable(_silence(self.url, fault)) from fault
        finally:
            self._connection.close()

    def _headers(self, wanted: str) -> dict[str, str]:
        key = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        return {"Accept": wanted, **key}

    def answers(self) -> bool:
        """Tell whether a daemon is there, without waiting for long."""
        connection = self._connect(LOOK_SECONDS)
        try:
            connection.request("GET", HEALTH)
            response = connection.getresponse()
            return response.status < REFUSED and _read(response) == {"status": "ok"}
        except (OSError, HTTPException, ValueError):
            return False
        finally:
            connection.close()

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _connect(self, seconds: float) -> HTTPConnection:
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        return kind(self._parts.hostname or "", self._parts.port, timeout=seconds)

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        sent = False
        try:
            if method == "GET":
                response = self._get(path, headers)
                return response.status, _read(response)
            self._reach()
            with suppress(BrokenPipeError, ConnectionResetError):
                # who is turned away in the middle of a long body is told why
                self._connection.request(method, self._parts.path + path, body, headers)
                sent = True
            response = self._connection.getresponse()
            return response.status, _read(response)
        except (OSError, HTTPException, ValueError) as fault:
            self._connection.close()
            doubt = "; what was asked for may have been done" if sent else ""
            raise Unavailable(_silence(self.url, fault) + doubt) from fault

    def _get(self, path: str, headers: dict[str, str]) -> HTTPResponse:
        """Ask for something; who meets the end of a connection that was kept asks again."""
        kept = self._reach()
        try:
            self._connection.request("GET", self._parts.path + path, None, headers)
            return self._connection.getresponse()
        except ConnectionError:
            self._connection.close()
            if not kept:
                raise
        return self._get(path, headers)

    def _reach(self) -> bool:
        """Be connected, and return whether that was so: daemons hang up on who asks nothing."""
        connection = self._connection
        if connection.sock is not None and select([connection.sock], [], [], 0)[0]:
            connection.close()  # nobody was asked, so what came is the end
        kept = connection.sock is not None
        if not kept:
            connection.connect()
            self._know()
        return kept

    def _know(self) -> None:
        """Make sure who it is before a key is shown: a port goes to the next who wants it."""
        if self._home is None:
            return
        word = find_daemon_address(self._home)
        if word is None or word.url != self.url:
            self._connection.close()
            message = f"the daemon of {self._home} is gone: another answers at {self.url}"
            raise Unavailable(message)


def find_daemon(home: Path, key: str | None = None) -> HttpClient | None:
    """Return the daemon that has left word of itself in a home folder, if it is there."""
    word = find_daemon_address(home)
    if word is None:
        return None
    found = HttpClient(word.url, key or read_key(home), home)
    return found if found.answers() else None


def read_key(home: Path) -> str | None:
    """Return the admin key of a home folder, if this user may read it."""
    try:
        return (home / ADMIN_KEY).read_text().strip() or None
    except (OSError, ValueError):
        return None


def is_near(url: str) -> bool:
    """Tell whether an address is on this machine, so that the key of the home may go there."""
    return (_split(url).hostname or "") in LOOPBACK


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    try:
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise Invalid("url", url, "write it as http://127.0.0.1:7682")
    return parts


def _silence(url: str, fault: Exception) -> str:
    reason = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
    return f"the daemon at {url} does not answer: {reason.lower()}"


def _told(lines: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """Read server-sent events; one without data only says how far the reader is."""
    told = ServerSentEvent("", "", None)
    for raw in lines:
        name, _, value = raw.decode().rstrip("\r\n").partition(": ")
        if name == "id":
            told = told._replace(id=value)
        elif name == "event":
            told = told._replace(name=value)
        elif name == "data":
            told = told._replace(data=json.loads(value))
        elif not name and told.id:
            yield told
            told = ServerSentEvent("", "", None)


def _read(response: HTTPResponse) -> dict[str, Any]:
    text = response.read()
    if response.status == NO_CONTENT:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    message = "that is not an answer of Rota"
    raise ValueError(message)
