"""Checks before routing: host names, authentication, login backoff, body sizes.

A body is held in memory while its command runs. Small bodies are limited by the number of requests.
Larger ones are limited in total bytes for each space, and long ones, which few commands accept, in
total. A body without a length counts with its maximum. Larger bodies are parsed one after the
other, because parsing blocks the event loop.

All these decisions use only the headers, before the body is read and the route is found.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from rota.api.asgi import App, HttpResponse, Message, Receive, Scope, Send
from rota.api.authentication import KeyAuthenticator, KeyRevoked
from rota.api.refusals import note_refusal
from rota.commands.context import Answers
from rota.commands.errors import error_code, error_record
from rota.commands.json_size import MOST_VALUES, has_too_many_values
from rota.errors import Invalid, RotaError, Unknown
from rota.model.keys import KeyScope
from rota.model.spaces import SpaceRole
from rota.rules.permissions import Caller, check_scope
from rota.runtime.event_loop import release_memory

HEALTH = "/healthz"
METRICS = "/metrics"
OPEN_TO_ALL = frozenset({HEALTH, "/readyz"})
NO_ROUTE = "-"
NO_SPACE = ""
FORWARDED = frozenset({b"x-forwarded-for", b"forwarded", b"via"})
"""Headers that a proxy adds; with one of them, a request comes from another machine."""
MAX_HEADERS = 100
LONGEST_HEADERS = 16 << 10
LONGEST_PATH = 8 << 10
MAX_NUMBER = 15
"""Maximum digits of a Content-Length, because Python parses long numbers slowly."""
BODY_SECONDS = 30.0
MAX_REQUESTS_OF_SPACE = 500
"""Simultaneous requests of one member space, including streams."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
BODIES = frozenset({"POST", "PUT", "PATCH"})
ALONE = frozenset(
    b"host authorization content-length content-type origin transfer-encoding idempotency-key "
    b"if-match rota-dry-run last-event-id".split()
)
"""Headers that may occur only once."""
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:@/\[\]]+)(?::[0-9]{1,5})?")
EVERY_ANSWER = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)


Entrances = Mapping[str, Callable[[str | None], Awaitable[Caller]]]
"""Authenticators for paths that do not use API keys alone."""


class RequestRejected(RotaError):
    """A request that the middleware rejects."""

    def __init__(
        self, status: int, code: str, message: str, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = tuple(headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedHosts:
    """The accepted host names, and the proxies whose forwarded addresses are trusted."""

    hosts: frozenset[str] = LOOPBACK
    proxies: frozenset[str] = field(default_factory=frozenset)
    metrics_open: bool = False
    """Whether metrics are available without a key on this machine."""


class Middleware:
    """An ASGI application that wraps another one."""

    def __init__(
        self,
        app: App,
        entrance: KeyAuthenticator,
        trust: TrustedHosts,
        backoff: LoginBackoff,
        answers: Answers | None = None,
        *,
        body_seconds: float = BODY_SECONDS,
        requests_of_space: int = MAX_REQUESTS_OF_SPACE,
        inside: Entrances | None = None,
    ) -> None:
        self.answers: Answers = Counter() if answers is None else answers
        self._app = app
        self._entrance = entrance
        self._trust = trust
        self._backoff = backoff
        self._body_seconds = body_seconds
        self._inside = inside or {}
        self._most_of_space = requests_of_space
        self._under_way: Counter[str] = Counter()
        self.bodies = BodyLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on or reject it with an error."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            return
        send = self._noting(scope, send)
        space = NO_SPACE
        try:
            headers = _headers(scope)
            self._check(scope, headers)
            if scope["path"] == HEALTH:
                await HttpResponse.record(200, {"status": "ok"}).send(send)
                return
            if scope["path"] not in OPEN_TO_ALL and not self._may_scrape(scope, headers):
                scope["caller"] = known = await self._caller(scope, headers)
                space = known.space
                scope["allowed"] = partial(self._way_in(scope), _authorization(headers))
            size = _size(headers)
            if size > LONGEST_BODY:
                check_scope(scope["caller"], LONGER_SCOPE)
            self._check_room(space, size, scope)
        except RotaError as fault:
            await _turn_away(scope, send, fault)
            return
        with self.bodies.holding(space, size), self._counting(space):
            bounded = _bounded(receive, self._body_seconds, max(size, LONGEST_BODY))
            await self._app(scope, bounded, send)

    def _crowd(self, scope: Scope) -> BodyLimitReached | None:
        """Return an error if the member space has too many requests in progress."""
        caller: Caller | None = scope.get("caller")
        if caller is None or caller.role is SpaceRole.MAIN:
            return None
        if self._under_way[caller.space] < self._most_of_space:
            return None
        message = (
            f"{self._most_of_space} requests of your space are in progress: wait for some to finish"
        )
        return BodyLimitReached(429, "too_many_requests", message)

    @contextmanager
    def _counting(self, space: str) -> Iterator[None]:
        """Count a request as in progress within the block."""
        self._under_way[space] += 1
        try:
            yield
        finally:
            self._under_way[space] -= 1
            if not self._under_way[space]:
                del self._under_way[space]

    def _check_room(self, space: str, size: int, scope: Scope) -> None:
        refused = self.bodies.refusal(space, size) or self._crowd(scope)
        if refused is not None:
            raise RequestRejected(*refused, [("retry-after", str(AGAIN_SECONDS))])

    def _noting(self, scope: Scope, send: Send) -> Send:
        """Add the common response headers and count the response by route."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *EVERY_ANSWER]
                self.answers[scope.get("route", NO_ROUTE), message["status"]] += 1
            await send(message)

        return sending

    def _may_scrape(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        """Return whether a request may read metrics without a key."""
        if scope["path"] != METRICS or not self._trust.metrics_open:
            return False
        address = str((scope.get("client") or ("",))[0])
        near = address.startswith("127.") or address == "::1"
        return near and not any(name in headers for name in FORWARDED | {b"authorization"})

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if _name_of(host) not in self._trust.hosts:
            raise RequestRejected(421, "wrong_host", "unknown host name")
        self._check_origin(headers, host)
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise RequestRejected(
                400,
                "bad_request",
                "a request cannot have both Content-Length and Transfer-Encoding",
            )
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise RequestRejected(415, "unsupported_media", "Content-Encoding is not supported")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise RequestRejected(400, "bad_request", "Content-Length must be a number")
        most = longest(scope["method"], scope["path"])
        if len(length) > MAX_NUMBER or int(length) > most:
            raise RequestRejected(413, "too_large", f"a body has at most {most} bytes here")
        sends = length != b"0" or b"transfer-encoding" in headers
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if sends and scope["method"] in BODIES and kind != b"application/json":
            raise RequestRejected(
                415, "unsupported_media", "send JSON: `Content-Type: application/json`"
            )

    def _check_origin(self, headers: dict[bytes, bytes], host: str) -> None:
        """Reject a cross-origin request of a browser."""
        origin = headers.get(b"origin")
        if origin is not None and _host_of(origin) != host:
            raise RequestRejected(403, "wrong_origin", "cross-origin requests are not allowed")
        if headers.get(b"sec-fetch-site", b"none") not in {b"none", b"same-origin"}:
            raise RequestRejected(403, "wrong_origin", "cross-origin requests are not allowed")

    async def _caller(self, scope: Scope, headers: dict[bytes, bytes]) -> Caller:
        address = self._address(scope, headers)
        given = _authorization(headers)
        try:
            return await self._way_in(scope)(given)
        except Unknown as fault:
            guessed = given is not None and not isinstance(fault, KeyRevoked)
            wait = self._backoff.waits(address) if guessed else 0
            if wait > 0:
                again = [("retry-after", str(math.ceil(wait)))]
                message = f"too many wrong keys: wait {math.ceil(wait)} s"
                raise RequestRejected(429, "too_many_guesses", message, again) from None
            if guessed:
                self._backoff.failed(address)
            raise RequestRejected(
                401, fault.code, str(fault), [("www-authenticate", "Bearer")]
            ) from None

    def _way_in(self, scope: Scope) -> Callable[[str | None], Awaitable[Caller]]:
        """Return the authenticator of a path."""
        return self._inside.get(scope["path"], self._entrance.caller_of)

    def _address(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        """Return the client address; only trusted proxies may forward another one."""
        client = scope.get("client")
        address = str(client[0]) if client else ""
        forwarded = headers.get(b"x-forwarded-for")
        if forwarded is None or address not in self._trust.proxies:
            return address
        return forwarded.decode("latin-1").rpartition(",")[2].strip() or address


def _headers(scope: Scope) -> dict[bytes, bytes]:
    given = scope["headers"]
    if len(given) > MAX_HEADERS or sum(len(n) + len(v) for n, v in given) > LONGEST_HEADERS:
        raise RequestRejected(431, "too_large", "the request has too many or too long headers")
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST_PATH:
        raise RequestRejected(414, "too_large", "the address is too long")
    found: dict[bytes, bytes] = {}
    for name, value in given:
        if name in found and name in ALONE:
            raise RequestRejected(400, "bad_request", f"give {name.decode('latin-1')} once")
        found[name] = value
    return found


def _size(headers: dict[bytes, bytes]) -> int:
    """Return the maximum body size of a request from its headers."""
    if b"transfer-encoding" in headers:
        return LONGEST_BODY
    return int(headers.get(b"content-length", b"0"))


def _authorization(headers: dict[bytes, bytes]) -> str | None:
    given = headers.get(b"authorization")
    return None if given is None else given.decode("latin-1")


def _host_of(origin: bytes) -> str:
    """Return host and port of an Origin header."""
    try:
        return urlsplit(origin.decode("latin-1").lower()).netloc
    except ValueError:
        raise RequestRejected(
            400, "bad_request", "Origin must be a scheme, a host and a port"
        ) from None


def _name_of(host: str) -> str:
    """Return the name in a Host header, or an empty text if it is invalid."""
    match = _HOST.fullmatch(host)
    return "" if match is None else match[1]


def _bounded(receive: Receive, seconds: float, most: int) -> Receive:
    """Wrap `receive` with limits on time and bytes."""
    size = 0
    done = False
    until: float | None = None

    async def receiving() -> Message:
        nonlocal size, done, until
        if done:
            return await receive()
        if until is None:
            until = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise RequestRejected(
                408, "too_slow", f"a body must arrive within {seconds:g} s"
            ) from None
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            done = not message.get("more_body", False)
            if size > most:
                advice = f"a body without a Content-Length has at most {most} bytes"
                raise RequestRejected(413, "too_large", advice)
        return message

    return receiving


async def _turn_away(scope: Scope, send: Send, fault: RotaError) -> None:
    status = fault.status if isinstance(fault, RequestRejected) else error_code(fault).status
    note_refusal(scope, status, fault.code)
    headers = fault.headers if isinstance(fault, RequestRejected) else ()
    await HttpResponse.record(
        status, error_record(fault), [("connection", "close"), *headers]
    ).send(send)


FREE_GUESSES = 10
LONGEST_SECONDS = 60.0
FORGOTTEN_SECONDS = 600.0
MAX_PLACES = 10_000
PREFIX = 64
"""Networks of IPv6 are counted as one client, because a client has many addresses."""


class LoginBackoff:
    """Counts invalid keys by client; a valid key is never delayed."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._places: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def waits(self, address: str) -> float:
        """Return the seconds until the next attempt of a client is allowed."""
        count, last = self._places.get(place_of(address), (0, 0.0))
        if count < FREE_GUESSES:
            return 0.0
        wait = min(2.0 ** (count - FREE_GUESSES), LONGEST_SECONDS)
        return max(0.0, last + wait - self._monotonic())

    def failed(self, address: str) -> None:
        """Count an invalid key."""
        now = self._monotonic()
        place = place_of(address)
        count, last = self._places.pop(place, (0, now))
        count = 0 if now - last > FORGOTTEN_SECONDS else count
        self._places[place] = (min(count + 1, FREE_GUESSES + 16), now)
        while len(self._places) > MAX_PLACES:
            self._places.popitem(last=False)


def place_of(address: str) -> str:
    """Return the unit that is counted: an IPv4 address or an IPv6 network."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return f"{int(found) >> (128 - PREFIX):x}/{PREFIX}"
    return str(found)


SMALL_BODY = 64 << 10
LONGEST_BODY = 1 << 20
LONGER = {("POST", "/v1/threads/{thread_key}/messages"): 14 << 20}
"""Commands with longer bodies: 10 MiB of files are 13.4 MiB in base64, plus a text."""
LONGER_SCOPE = KeyScope.RUN
"""Scope for longer bodies; without it a request is rejected before its body is read."""
LONGEST_OF_ALL = max(LONGER.values())
MAX_HELD = 2 * LONGEST_OF_ALL
"""Total bytes of long bodies in memory."""
MAX_BODY_BYTES_OF_SPACE = LONGEST_OF_ALL
"""Total bytes of larger bodies in memory for one space."""
AGAIN_SECONDS = 2
_FIELD = re.compile(r"\\{\w+\\}")
_LONGER = [
    (method, re.compile(_FIELD.sub("[^/]+", re.escape(path))), most)
    for (method, path), most in LONGER.items()
]

Read = TypeVar("Read")


class BodyLimitReached(NamedTuple):
    """A body is rejected because too many bytes are in memory."""

    status: int
    code: str
    message: str


def longest(method: str, path: str) -> int:
    """Return the maximum body size of a route."""
    for known, pattern, most in _LONGER:
        if known == method and pattern.fullmatch(path):
            return most
    return LONGEST_BODY


class BodyLimiter:
    """The larger bodies in memory, by space."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._long = 0

    @property
    def held(self) -> int:
        """The total number of bytes."""
        return self._held.total()

    def refusal(self, space: str, size: int) -> BodyLimitReached | None:
        """Return why a body cannot be accepted now, or None."""
        if size <= SMALL_BODY:
            return None
        if self._held[space] + size > MAX_BODY_BYTES_OF_SPACE:
            message = (
                f"too many long requests of your space at once: try again in {AGAIN_SECONDS} s"
            )
            return BodyLimitReached(429, "too_many_bodies", message)
        if size > LONGEST_BODY and self._long + size > MAX_HELD:
            message = f"too many long requests at once: try again in {AGAIN_SECONDS} s"
            return BodyLimitReached(503, "too_many_bodies", message)
        return None

    @contextmanager
    def holding(self, space: str, size: int) -> Iterator[None]:
        """Count a body within the block."""
        if size <= SMALL_BODY:
            yield
            return
        long = size if size > LONGEST_BODY else 0
        self._held[space] += size
        self._long += long
        try:
            yield
        finally:
            self._held[space] -= size
            self._long -= long
            if self._held[space] <= 0:
                del self._held[space]
            if long and not self._long:
                release_memory()


class Reading:
    """Parses larger bodies one after the other, with a pause as long as each took.

    A thread would not help, because the parser does not release the interpreter lock.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def read(self, body: bytes, how: Callable[[bytes], Read]) -> Read:
        """Parse a body unless it has too many values."""
        if len(body) <= SMALL_BODY:
            return how(body)
        if has_too_many_values(body):
            raise Invalid("body", "", f"give at most {MOST_VALUES} values")
        async with self._turn:
            began = time.monotonic()
            try:
                return how(body)
            finally:
                await asyncio.sleep(time.monotonic() - began)
