"""The heads of requests and answers in HTTP/1.1: read strictly, written anew.

What two programs could read in two ways is refused, so that nothing is smuggled past the list of
what may be asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LONGEST_HEAD = 64 * 1024
MOST_HEADERS = 128
LONGEST_NUMBER = 15

_REQUEST = re.compile(rb"([A-Z]{3,10}) ([!-~]{1,8192}) HTTP/1\.([01])")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t -~\x80-\xff]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_HOST = re.compile(r"(?:127\.0\.0\.1|localhost)(?::[0-9]{1,5})?", re.ASCII)

Headers = tuple[tuple[str, str], ...]

EFFECT = "rota-effect"
"""By what a program names a write that is to happen once; between it and the gateway alone."""
HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length"),
        EFFECT,
    }
)
PASSED = frozenset(
    {
        *("accept", "accept-encoding", "accept-language", "content-type", "content-encoding"),
        *("idempotency-key", "if-match", "if-none-match", "if-modified-since", "range"),
        *("user-agent", "x-app", "x-client-request-id", "x-request-id", "x-goog-api-client"),
        *("openai-beta", "originator", "session_id", "conversation_id"),
    }
)
PASSED_KINDS = ("anthropic-", "x-stainless-", "x-claude-", "x-codex-")
"""All that an upstream hears of what a program says about itself; no key can stand there."""
_WHOSE = re.compile("key|token|auth|secret|credential|organization|workspace")
"""What a header of those kinds is called that may say in whose name is asked; that is said here."""
KEPT_BACK = frozenset({"set-cookie", "alt-svc", "strict-transport-security", "server-timing"})


class BadHead(Exception):
    """What was sent is no request, or could be two."""


@dataclass(frozen=True, slots=True)
class Body:
    """How long a body is: so many bytes, in chunks, or until the end of the connection."""

    length: int | None = 0
    chunked: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is none."""
        return self.length == 0 and not self.chunked


NO_BODY = Body()


@dataclass(frozen=True, slots=True)
class Asking:
    """The head of a request."""

    method: str
    target: str
    headers: Headers
    body: Body
    stays: bool
    """Whether the connection may be used again."""

    def all(self, name: str) -> Iterator[str]:
        """Yield every value of a header."""
        return (value for known, value in self.headers if known == name)


@dataclass(frozen=True, slots=True)
class Answering:
    """The head of an answer."""

    status: int
    headers: Headers
    body: Body
    stays: bool


def read_asking(head: bytes) -> Asking:
    """Return the head of a request."""
    first, headers = _split(head)
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise BadHead("the first line is no request of HTTP/1.1")
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:
        raise BadHead("the host is 127.0.0.1, and nothing else is to be reached by its name")
    body = _body_of(headers)
    if body is None:
        body = NO_BODY
    stays = found[3] == b"1" and "close" not in _listed(headers, "connection")
    return Asking(found[1].decode(), found[2].decode(), headers, body, stays)


def read_answering(head: bytes, method: str) -> Answering:
    """Return the head of an answer to a method."""
    first, headers = _split(head)
    found = _STATUS.fullmatch(first)
    if found is None:
        raise BadHead("the first line is no answer of HTTP/1.1")
    status = int(found[2])
    body = _body_of(headers) or Body(length=None)
    if method == "HEAD" or status in {204, 304} or status < 200:  # noqa: PLR2004
        body = NO_BODY
    ends = body.length is None and not body.chunked
    stays = found[1] == b"1" and not ends and "close" not in _listed(headers, "connection")
    return Answering(status, headers, body, stays)


def passed_on(asking: Asking, also: Iterable[str], own: Headers) -> Headers:
    """Return what an upstream is told: what may be said to it, and what is said for a program."""
    more = frozenset(also)
    taken = {name.lower() for name, _ in own}
    told = [
        (name, value)
        for name, value in asking.headers
        if (name in PASSED or name in more or _is_of_a_kind(name))
        and name not in taken
        and name not in HOP_BY_HOP
    ]
    return (*told, *own)


def _is_of_a_kind(name: str) -> bool:
    return name.startswith(PASSED_KINDS) and _WHOSE.search(name) is None


def handed_back(answering: Answering) -> Headers:
    """Return what a program is told of an answer."""
    named = _listed(answering.headers, "connection")
    left_out = HOP_BY_HOP | KEPT_BACK | frozenset(named)
    return tuple(pair for pair in answering.headers if pair[0] not in left_out)


def framed(body: Body) -> Headers:
    """Return the header that says how long a body is."""
    if body.chunked or body.length is None:
        return (("transfer-encoding", "chunked"),)
    return (("content-length", str(body.length)),)


def written(first: str, headers: Headers) -> bytes:
    """Return a head as it is sent."""
    lines = [first, *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _split(head: bytes) -> tuple[bytes, Headers]:
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if len(lines) > MOST_HEADERS:
        raise BadHead(f"there are more than {MOST_HEADERS} headers")
    headers = []
    for line in lines[1:]:
        found = _FIELD.fullmatch(line)
        if found is None:
            raise BadHead("a header is not as it must be")
        headers.append((found[1].decode().lower(), found[2].strip(b" \t").decode("latin-1")))
    return lines[0], tuple(headers)


def _body_of(headers: Headers) -> Body | None:
    """Return how long a body is; None if nothing says so."""
    lengths = [value for name, value in headers if name == "content-length"]
    codings = [value.lower() for name, value in headers if name == "transfer-encoding"]
    if codings:
        if codings != ["chunked"] or lengths:
            raise BadHead("how long the body is can be read in two ways")
        return Body(length=None, chunked=True)
    if not lengths:
        return None
    text = lengths[0]
    if len(lengths) > 1 or not (text.isascii() and text.isdigit()) or len(text) > LONGEST_NUMBER:
        raise BadHead("how long the body is can be read in two ways")
    return Body(length=int(text))


def _listed(headers: Headers, name: str) -> list[str]:
    said = ",".join(value for known, value in headers if known == name)
    return [word.strip().lower() for word in said.split(",")]
