"""Upstreams: where the gateway speaks to, what may be asked there, and what it shows for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from rota.errors import Invalid
from rota.gateway.hosts import address_in, fault_in_host, is_public

NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}", re.ASCII)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
READS = frozenset({"GET", "HEAD"})
"""Methods that change nothing."""
PLAIN = re.compile(r"/[!-~]*", re.ASCII)
PATTERN = re.compile(r"(?:/(?:[A-Za-z0-9._~:@-]+|\*))*(?:/\*\*)?", re.ASCII)
NOT_IN_PATHS = re.compile(
    r"//|/\.{1,2}(?:/|$)|[\\;#?]|%(?:2e|2f|5c|3b|25|[01][0-9a-f]|7f)", re.IGNORECASE
)
"""What one server reads otherwise than another."""
CREDENTIALS = frozenset(
    {"key", "api_key", "apikey", "api-key", "access_token", "token", "auth", "authorization"}
)
"""Names in a query under which some servers take a key as well."""
PORTS = {"https": 443, "http": 80}
HIGHEST_PORT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A place outside; `headers` hold the real key, and this is told to nobody but the gateway.

    `local` allows addresses that are not public, and plain HTTP; `effects` says that what is
    written there cannot be taken back. `allow` has pairs of a method and
    a pattern of paths, in which `*` stands for one step and `**` for all that follow.
    """

    name: str
    scheme: str
    host: str
    port: int
    base: str = ""
    allow: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    passed: tuple[str, ...] = ()
    secret: str | None = None
    local: bool = False
    effects: bool = False

    def record(self) -> dict[str, Any]:
        """Return what the gateway is told of it."""
        return asdict(self)

    @property
    def authority(self) -> str:
        """The host as it is written in a request."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def is_write(self, method: str) -> bool:
        """Whether a request does something that cannot be taken back."""
        return self.effects and method not in READS

    def allows(self, method: str, path: str) -> bool:
        """Whether something may be asked for; a path that can be read in two ways never."""
        if NOT_IN_PATHS.search(path):
            return False
        return any(method == allowed and _matches(pattern, path) for allowed, pattern in self.allow)


def upstream_in(record: Mapping[str, Any]) -> Upstream:
    """Return an upstream as the gateway was told of it."""
    pairs = {
        name: tuple((str(first), str(second)) for first, second in record[name])
        for name in ("allow", "headers")
    }
    return Upstream(**{**record, **pairs, "passed": tuple(record["passed"])})


def address_of(name: str, url: str, *, local: bool) -> tuple[str, str, int, str]:
    """Return scheme, host, port and path of an address, or refuse it in a sentence."""
    field_name = f"upstreams.{name}.url"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Invalid(field_name, url, "write https://host or https://host/path") from None
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise Invalid(field_name, url, "use plain letters, and no space")
    if parts.scheme not in PORTS or parts.query or parts.fragment or "@" in parts.netloc:
        raise Invalid(field_name, url, "write https://host or https://host/path, and no more")
    host = parts.netloc.removesuffix(f":{port}") if port is not None else parts.netloc
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    wrong = fault_in_host(host)
    if wrong is not None:
        raise Invalid(field_name, url, wrong)
    literal = address_in(host)
    if not local and (parts.scheme != "https" or (literal is not None and not is_public(literal))):
        advice = "use https and a public address, or say local = true if it is your own"
        raise Invalid(field_name, url, advice)
    if port is not None and not 0 < port <= HIGHEST_PORT:
        raise Invalid(field_name, url, "a port is a number from 1 to 65535")
    path = parts.path.rstrip("/")
    if path and (NOT_IN_PATHS.search(path) or not PLAIN.fullmatch(path)):
        raise Invalid(field_name, url, "its path must have one reading: leave out . and //")
    return parts.scheme, host, port or PORTS[parts.scheme], path


def allowed_in(name: str, said: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return what a list of `METHOD /path` allows."""
    found = []
    for text in said:
        method, _, pattern = text.partition(" ")
        plain = PATTERN.fullmatch(pattern) and not NOT_IN_PATHS.search(pattern)
        if method not in METHODS or not pattern or not plain:
            advice = "write METHOD /path, with * for one step of it and ** at its end for the rest"
            raise Invalid(f"upstreams.{name}.allow", text, advice)
        found.append((method, pattern))
    return tuple(found)


def clean_query(query: str) -> str:
    """Return a query without the names under which a key could stand in it."""
    kept = []
    for part in query.split("&"):
        name = unquote(part.partition("=")[0].replace("+", " ")).strip().lower()
        read = [key.strip().lower() for key, _ in parse_qsl(part, keep_blank_values=True)]
        if name not in CREDENTIALS and not CREDENTIALS.intersection(read):
            kept.append(part)
    return "&".join(kept)


def _matches(pattern: str, path: str) -> bool:
    wanted, steps = pattern.split("/"), path.split("/")
    if wanted[-1] == "**":
        wanted.pop()
        if len(steps) <= len(wanted):
            return False
        steps = steps[: len(wanted)]
    return len(wanted) == len(steps) and all(
        want in {"*", step} and (want != "*" or step != "")
        for want, step in zip(wanted, steps, strict=True)
    )
