"""Asking an address without letting it lead inside.

The name is resolved once, every answer is judged, and the connection goes to the address that was
judged: a name that changes its mind in between changes nothing. A redirect is a new address. The
socket is cut at the deadline, however slowly the other side talks.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from rota.errors import shown
from rota.ports.checking import Observed

MOST_BYTES = 1024 * 1024
MOST_REDIRECTS = 3
REDIRECTS = frozenset({301, 302, 303, 307, 308})
GOOD = range(200, 300)
PORTS = {"http": 80, "https": 443}
EMBEDS = tuple(
    ipaddress.ip_network(network)
    for network in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)
"""Addresses of IPv6 that stand for one of IPv4, which may be any."""


class Refusal(Exception):
    """Why an address is not asked."""


class _Answer(NamedTuple):
    status: int
    location: str | None
    body: bytes


def ask(url: str, contains: str | None, seconds: float, *, inside: bool) -> Observed:
    """Return whether an address answers well and contains a text; takes at most so long.

    With `inside`, addresses of this machine and of its networks may be asked as well.
    """
    return Asking(seconds, inside=inside).ask(url, contains)


class Asking:
    """Asks one address, in a thread; another one may cut it short."""

    def __init__(self, seconds: float, *, inside: bool) -> None:
        self._seconds = seconds
        self._inside = inside
        self._until = time.monotonic() + seconds
        self._line: _Line | None = None

    def cut(self) -> None:
        """End whatever is going on."""
        self._until = 0.0
        if self._line is not None:
            self._line.cut()

    def ask(self, url: str, contains: str | None) -> Observed:
        """Return whether an address answers well and contains a text."""
        timer = threading.Timer(self._seconds, self.cut)
        timer.daemon = True
        timer.start()
        try:
            return self._followed(url, contains)
        except Refusal as refusal:
            return Observed(passed=False, evidence=str(refusal))
        except (OSError, ValueError, http.client.HTTPException) as fault:
            late = time.monotonic() >= self._until
            told = f"it did not answer within {self._seconds:g} s" if late else _why(fault)
            return Observed(passed=False, evidence=told)
        finally:
            timer.cancel()

    def _followed(self, url: str, contains: str | None) -> Observed:
        for _ in range(MOST_REDIRECTS + 1):
            answer = self._get(urlsplit(url))
            if answer.status not in REDIRECTS or not answer.location:
                return _judged(answer, contains)
            url = urljoin(url, answer.location)
        told = f"it leads elsewhere more than {MOST_REDIRECTS} times"
        return Observed(passed=False, evidence=told)

    def _get(self, parts: SplitResult) -> _Answer:
        host = parts.hostname
        if parts.scheme not in PORTS or not host or parts.username is not None:
            raise Refusal(f"{shown(parts.geturl())} is no address that a check may ask")
        port = parts.port or PORTS[parts.scheme]
        self._line = line = _Line(host, _resolved(host, port, inside=self._inside), port)
        try:
            path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
            line.open(self._until - time.monotonic(), secure=parts.scheme == "https")
            line.request("GET", path, headers={"User-Agent": "rota-check", "Accept": "*/*"})
            answer = line.getresponse()
            body = b"" if answer.status in REDIRECTS else answer.read(MOST_BYTES)
            if time.monotonic() >= self._until:
                raise TimeoutError
            return _Answer(answer.status, answer.getheader("Location"), body)
        finally:
            line.close()


def _judged(answer: _Answer, contains: str | None) -> Observed:
    if answer.status not in GOOD:
        return Observed(passed=False, evidence=f"it answered {answer.status}")
    if contains is None or contains in answer.body.decode("utf-8", "replace"):
        return Observed(passed=True, evidence=f"it answered {answer.status}")
    told = f"it answered {answer.status} without {shown(contains)}"
    return Observed(passed=False, evidence=f"{told} in its first {len(answer.body)} bytes")


def _why(fault: Exception) -> str:
    reason = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
    return f"it cannot be asked: {shown(reason)}"


class _Line(http.client.HTTPConnection):
    """A connection to an address that was judged, whatever its name would lead to by now."""

    def __init__(self, host: str, address: str, port: int) -> None:
        super().__init__(host, port)
        self._address = address
        self._raw: socket.socket | None = None
        self._late = False

    def open(self, left: float, *, secure: bool) -> None:
        """Connect within so many seconds, and shake hands where that is wanted."""
        if left <= 0 or self._late:
            raise TimeoutError
        self._raw = socket.create_connection((self._address, self.port), timeout=left)
        if secure:
            wrapped = ssl.create_default_context().wrap_socket(
                self._raw, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.sock = wrapped  # from here on it can be cut
            wrapped.do_handshake()
        else:
            self.sock = self._raw

    def cut(self) -> None:
        """End whatever is going on, from another thread."""
        self._late = True
        for held in filter(None, (self._raw, self.sock)):
            with suppress(OSError):
                socket.socket.shutdown(held, socket.SHUT_RDWR)


def _resolved(host: str, port: int, *, inside: bool) -> str:
    """Return an address of a host; refused if any of its addresses lies inside."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]).partition("%")[0] for entry in found]
    strange = next((one for one in addresses if not is_outside(one)), None)
    if strange is not None and not inside:
        raise Refusal(
            f"{shown(host)} is at {strange}, inside of this network: "
            "let checks go there with the setting check_inside"
        )
    return addresses[0]


def is_outside(address: str) -> bool:
    """Whether an address belongs to the public network alone."""
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return is_outside(str(found.ipv4_mapped))
        if any(found in network for network in EMBEDS):
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved
