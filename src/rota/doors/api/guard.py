"""What stands before every route: who may speak to this host, how much, and in whose name.

Everything is decided by headers alone, before a body is read and before a route is looked for.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from rota.doors.api.asgi import App, Message, Receive, Reply, Scope, Send
from rota.doors.api.backoff import Backoff
from rota.doors.api.bodies import (
    AGAIN_SECONDS,
    LONGER_SCOPE,
    LONGEST_BODY,
    Bodies,
    TooMany,
    longest,
)
from rota.doors.api.entrance import Entrance, Over
from rota.doors.api.refusals import note_refusal
from rota.doors.kit.faults import fault_record, told
from rota.doors.kit.office import Answers
from rota.errors import RotaError, Unknown
from rota.model.spaces import Role
from rota.rules.permission import Caller, check_scope

HEALTH = "/healthz"
METRICS = "/metrics"
OPEN_TO_ALL = frozenset({HEALTH, "/readyz"})
NO_ROUTE = "-"
NO_SPACE = ""
FORWARDED = frozenset({b"x-forwarded-for", b"forwarded", b"via"})
"""What a proxy adds: then a request comes from elsewhere."""
MOST_HEADERS = 100
LONGEST_HEADERS = 16 << 10
LONGEST_PATH = 8 << 10
LONGEST_NUMBER = 15
"""Digits of a Content-Length; Python reads no number of thousands."""
BODY_SECONDS = 30.0
MOST_OF_SPACE = 500
"""Requests of one member space that are under way at once, streams among them."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
BODIES = frozenset({"POST", "PUT", "PATCH"})
ALONE = frozenset(
    b"host authorization content-length content-type origin transfer-encoding idempotency-key "
    b"if-match rota-dry-run last-event-id".split()
)
"""Headers of which a request may have one."""
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:@/\[\]]+)(?::[0-9]{1,5})?")
EVERY_ANSWER = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)


Entrances = Mapping[str, Callable[[str | None], Awaitable[Caller]]]
"""What tells who comes in, at the paths that have an entrance of their own."""


class Turned(RotaError):
    """A request that gets no further than the guard."""

    def __init__(
        self, status: int, code: str, message: str, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = tuple(headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Which names this host goes by, and whose word about a client's address is believed."""

    hosts: frozenset[str] = LOOPBACK
    proxies: frozenset[str] = field(default_factory=frozenset)
    metrics_open: bool = False
    """Whether figures are shown without a key to whoever asks from this machine."""


class Guard:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: App,
        entrance: Entrance,
        trust: Trust,
        backoff: Backoff,
        answers: Answers | None = None,
        *,
        body_seconds: float = BODY_SECONDS,
        requests_of_space: int = MOST_OF_SPACE,
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
        self.bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or turn it away with one sentence."""
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
                await Reply.record(200, {"status": "ok"}).send(send)
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

    def _crowd(self, scope: Scope) -> TooMany | None:
        """Return why a member's request is not let in beside those that its space has under way."""
        caller: Caller | None = scope.get("caller")
        if caller is None or caller.role is Role.MAIN:
            return None
        if self._under_way[caller.space] < self._most_of_space:
            return None
        message = f"{self._most_of_space} requests of your space are under way: let some end first"
        return TooMany(429, "too_many_requests", message)

    @contextmanager
    def _counting(self, space: str) -> Iterator[None]:
        """Count a request as under way until the block is left."""
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
            raise Turned(*refused, [("retry-after", str(AGAIN_SECONDS))])

    def _noting(self, scope: Scope, send: Send) -> Send:
        """Add what every answer says, and count it by its route."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *EVERY_ANSWER]
                self.answers[scope.get("route", NO_ROUTE), message["status"]] += 1
            await send(message)

        return sending

    def _may_scrape(self, scope: Scope, headers: dict[bytes, bytes]) -> bool:
        """Whether figures may be shown without a key."""
        if scope["path"] != METRICS or not self._trust.metrics_open:
            return False
        address = str((scope.get("client") or ("",))[0])
        near = address.startswith("127.") or address == "::1"
        return near and not any(name in headers for name in FORWARDED | {b"authorization"})

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if _name_of(host) not in self._trust.hosts:
            raise Turned(421, "wrong_host", "this host does not go by that name")
        self._check_origin(headers, host)
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise Turned(400, "bad_request", "a body has one length: drop Transfer-Encoding")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Turned(415, "unsupported_media", "send the body as it is, without an encoding")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise Turned(400, "bad_request", "Content-Length must be a number")
        most = longest(scope["method"], scope["path"])
        if len(length) > LONGEST_NUMBER or int(length) > most:
            raise Turned(413, "too_large", f"a body has at most {most} bytes here")
        sends = length != b"0" or b"transfer-encoding" in headers
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if sends and scope["method"] in BODIES and kind != b"application/json":
            raise Turned(415, "unsupported_media", "send JSON: `Content-Type: application/json`")

    def _check_origin(self, headers: dict[bytes, bytes], host: str) -> None:
        """Refuse what a browser sends for a page of somebody else."""
        origin = headers.get(b"origin")
        if origin is not None and _host_of(origin) != host:
            raise Turned(403, "wrong_origin", "a page of another site may not ask this one")
        if headers.get(b"sec-fetch-site", b"none") not in {b"none", b"same-origin"}:
            raise Turned(403, "wrong_origin", "a page of another site may not ask this one")

    async def _caller(self, scope: Scope, headers: dict[bytes, bytes]) -> Caller:
        address = self._address(scope, headers)
        given = _authorization(headers)
        try:
            return await self._way_in(scope)(given)
        except Unknown as fault:
            guessed = given is not None and not isinstance(fault, Over)
            wait = self._backoff.waits(address) if guessed else 0
            if wait > 0:
                again = [("retry-after", str(math.ceil(wait)))]
                message = f"too many wrong keys: wait {math.ceil(wait)} s"
                raise Turned(429, "too_many_guesses", message, again) from None
            if guessed:
                self._backoff.failed(address)
            raise Turned(401, fault.code, str(fault), [("www-authenticate", "Bearer")]) from None

    def _way_in(self, scope: Scope) -> Callable[[str | None], Awaitable[Caller]]:
        """Return what tells who comes in at a path."""
        return self._inside.get(scope["path"], self._entrance.caller_of)

    def _address(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        """Return where a request comes from; only a trusted proxy may say that it is elsewhere."""
        client = scope.get("client")
        address = str(client[0]) if client else ""
        forwarded = headers.get(b"x-forwarded-for")
        if forwarded is None or address not in self._trust.proxies:
            return address
        return forwarded.decode("latin-1").rpartition(",")[2].strip() or address


def _headers(scope: Scope) -> dict[bytes, bytes]:
    given = scope["headers"]
    if len(given) > MOST_HEADERS or sum(len(n) + len(v) for n, v in given) > LONGEST_HEADERS:
        raise Turned(431, "too_large", "the request has too many or too long headers")
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST_PATH:
        raise Turned(414, "too_large", "the address is too long")
    found: dict[bytes, bytes] = {}
    for name, value in given:
        if name in found and name in ALONE:
            raise Turned(400, "bad_request", f"give {name.decode('latin-1')} once")
        found[name] = value
    return found


def _size(headers: dict[bytes, bytes]) -> int:
    """Return how long a body may be, by the head of its request."""
    if b"transfer-encoding" in headers:
        return LONGEST_BODY
    return int(headers.get(b"content-length", b"0"))


def _authorization(headers: dict[bytes, bytes]) -> str | None:
    given = headers.get(b"authorization")
    return None if given is None else given.decode("latin-1")


def _host_of(origin: bytes) -> str:
    """Return the host and port that an Origin header names."""
    try:
        return urlsplit(origin.decode("latin-1").lower()).netloc
    except ValueError:
        raise Turned(400, "bad_request", "Origin must be a scheme, a host and a port") from None


def _name_of(host: str) -> str:
    """Return the name in a Host header, or nothing if it is not a name and a port."""
    match = _HOST.fullmatch(host)
    return "" if match is None else match[1]


def _bounded(receive: Receive, seconds: float, most: int) -> Receive:
    """Read a body no longer, in bytes and in time, than any sound one is."""
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
            raise Turned(408, "too_slow", f"a body comes within {seconds:g} s") from None
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            done = not message.get("more_body", False)
            if size > most:
                advice = f"a body that does not say how long it is has at most {most} bytes"
                raise Turned(413, "too_large", advice)
        return message

    return receiving


async def _turn_away(scope: Scope, send: Send, fault: RotaError) -> None:
    status = fault.status if isinstance(fault, Turned) else told(fault).status
    note_refusal(scope, status, fault.code)
    headers = fault.headers if isinstance(fault, Turned) else ()
    await Reply.record(status, fault_record(fault), [("connection", "close"), *headers]).send(send)
