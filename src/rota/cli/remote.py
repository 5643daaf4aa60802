"""The HTTP client of the daemon."""

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
"""Begin of every path; addresses may be given with or without it."""
NO_CONTENT = 204
REFUSED = 400
CONNECT_SECONDS = 0.5
"""Timeout for checking that the daemon of the home folder responds."""
RESPONSE_SECONDS = 60.0
CHUNK = 64 * 1024
IN_PATH = frozenset({"GET", "DELETE"})
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class DaemonRefused(RotaError):
    """An error response of the daemon."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message") or f"the daemon responded with status {status}"))
        self.code = str(error.get("code") or "error")
        self.field = error.get("field")
        self.exit_code = exit_code_of(status, self.code)


class ServerSentEvent(NamedTuple):
    """A server-sent event: its id is the cursor after it."""

    id: str
    name: str
    data: dict[str, Any] | None


class HttpClient:
    """A client of the daemon at an address."""

    def __init__(self, url: str, key: str | None = None, home: Path | None = None) -> None:
        """Connect to an address; with a home, only to the daemon of that home."""
        self.url = url.rstrip("/").removesuffix(VERSION)
        self._key = key
        self._home = home
        self._parts = _split(self.url)
        self._connection = self._connect(RESPONSE_SECONDS)

    def call(
        self, method: str, path: str, fields: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Execute a command; the response is empty after a dry run."""
        headers = self._headers("application/json")
        body = None
        if dry_run:
            headers["Rota-Dry-Run"] = "true"
        if method not in IN_PATH:
            headers["Content-Type"] = "application/json"
            body = json.dumps(fields).encode()
        elif fields:
            path = f"{path}?{urlencode(fields)}"
        status, answer = self._exchange(method, path, body, headers)
        if status >= REFUSED:
            error = answer.get("error")
            raise DaemonRefused(status, error if isinstance(error, dict) else {})
        return answer

    def post(
        self, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a body; return the status, headers and body of the response."""
        sent = {**self._headers("application/json"), "Content-Type": "application/json", **headers}
        try:
            self._ensure_connected()
            self._connection.request("POST", self._parts.path + path, body, sent)
            response = self._connection.getresponse()
            event = {name.lower(): value for name, value in response.getheaders()}
            return response.status, event, response.read()
        except (OSError, HTTPException, ValueError) as error:
            self._connection.close()
            raise Unavailable(_unavailable_text(self.url, error)) from error

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
        except (OSError, HTTPException, ValueError, TypeError) as error:
            raise Unavailable(_unavailable_text(self.url, error)) from error
        finally:
            self._connection.close()
        if left:
            raise Unavailable(f"the daemon at {self.url} closed the connection: try again")

    def follow(self, path: str, last: str | None) -> Iterator[ServerSentEvent]:
        """Yield events after a cursor, until the daemon ends the stream."""
        headers = self._headers("text/event-stream")
        if last is not None:
            headers["Last-Event-ID"] = last
        try:
            response = self._get(path, headers)
            if response.status >= REFUSED:
                raise DaemonRefused(response.status, _read(response).get("error") or {})
            yield from _parse_events(response)
        except (OSError, HTTPException, ValueError) as error:
            raise Unavailable(_unavailable_text(self.url, error)) from error
        finally:
            self._connection.close()

    def _headers(self, accept: str) -> dict[str, str]:
        key = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        return {"Accept": accept, **key}

    def answers(self) -> bool:
        """Whether the daemon responds within a short time."""
        connection = self._connect(CONNECT_SECONDS)
        try:
            connection.request("GET", HEALTH)
            response = connection.getresponse()
            return response.status < REFUSED and _read(response) == {"status": "ok"}
        except (OSError, HTTPException, ValueError):
            return False
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection."""
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
            self._ensure_connected()
            with suppress(BrokenPipeError, ConnectionResetError):
                # a request refused in the middle of its body still has a response
                self._connection.request(method, self._parts.path + path, body, headers)
                sent = True
            response = self._connection.getresponse()
            return response.status, _read(response)
        except (OSError, HTTPException, ValueError) as error:
            self._connection.close()
            doubt = "; the request may have been executed" if sent else ""
            raise Unavailable(_unavailable_text(self.url, error) + doubt) from error

    def _get(self, path: str, headers: dict[str, str]) -> HTTPResponse:
        """Send a GET request; retry if a reused connection was closed."""
        reused = self._ensure_connected()
        try:
            self._connection.request("GET", self._parts.path + path, None, headers)
            return self._connection.getresponse()
        except ConnectionError:
            self._connection.close()
            if not reused:
                raise
        return self._get(path, headers)

    def _ensure_connected(self) -> bool:
        """Connect if needed, and return whether the connection is reused."""
        connection = self._connection
        if connection.sock is not None and select([connection.sock], [], [], 0)[0]:
            connection.close()  # readable without a request: the daemon has closed it
        reused = connection.sock is not None
        if not reused:
            connection.connect()
            self._check_identity()
        return reused

    def _check_identity(self) -> None:
        """Check that the daemon of the home has the port, before a key is sent there."""
        if self._home is None:
            return
        address = find_daemon_address(self._home)
        if address is None or address.url != self.url:
            self._connection.close()
            message = (
                f"the daemon of {self._home} has stopped: another program responds at {self.url}"
            )
            raise Unavailable(message)


def find_daemon(home: Path, key: str | None = None) -> HttpClient | None:
    """Return a client of the daemon of a home folder, if it responds."""
    address = find_daemon_address(home)
    if address is None:
        return None
    found = HttpClient(address.url, key or read_key(home), home)
    return found if found.answers() else None


def read_key(home: Path) -> str | None:
    """Return the admin key of a home folder, if this user may read it."""
    try:
        return (home / ADMIN_KEY).read_text().strip() or None
    except (OSError, ValueError):
        return None


def is_local(url: str) -> bool:
    """Whether an address is on this machine, so that the key of the home may be sent there."""
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


def _unavailable_text(url: str, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"the daemon at {url} does not respond: {reason.lower()}"


def _parse_events(lines: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """Parse server-sent events; one without data only moves the cursor."""
    event = ServerSentEvent("", "", None)
    for raw in lines:
        name, _, value = raw.decode().rstrip("\r\n").partition(": ")
        if name == "id":
            event = event._replace(id=value)
        elif name == "event":
            event = event._replace(name=value)
        elif name == "data":
            event = event._replace(data=json.loads(value))
        elif not name and event.id:
            yield event
            event = ServerSentEvent("", "", None)


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
    message = "not a response of Rota"
    raise ValueError(message)
