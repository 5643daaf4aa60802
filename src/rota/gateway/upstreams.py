"""Upstreams: allowed hosts, paths and methods, and the checks of addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from rota.errors import Invalid

NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}", re.ASCII)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
READS = frozenset({"GET", "HEAD"})
"""Methods without effects."""
PLAIN = re.compile(r"/[!-~]*", re.ASCII)
PATTERN = re.compile(r"(?:/(?:[A-Za-z0-9._~:@-]+|\*))*(?:/\*\*)?", re.ASCII)
AMBIGUOUS_PATH = re.compile(
    r"//|/\.{1,2}(?:/|$)|[\\;#?]|%(?:2e|2f|5c|3b|25|[01][0-9a-f]|7f)", re.IGNORECASE
)
"""Paths that servers interpret differently."""
CREDENTIALS = frozenset(
    {"key", "api_key", "apikey", "api-key", "access_token", "token", "auth", "authorization"}
)
"""Names of query parameters that some servers accept as credentials."""
PORTS = {"https": 443, "http": 80}
MAX_PORT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """An outside service; `headers` hold its key, so this is only sent to the gateway.

    `local` allows addresses that are not public, and plain HTTP; with `effects`, writes cannot be
    undone. `allow` holds pairs of a method and a pattern of paths, in which `*` stands for one step
    and `**` for all steps that follow.
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
        """Return the upstream as JSON for the gateway."""
        return asdict(self)

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def is_write(self, method: str) -> bool:
        """Whether a request has effects that cannot be undone."""
        return self.effects and method not in READS

    def allows(self, method: str, path: str) -> bool:
        """Whether a request is allowed; ambiguous paths never are."""
        if AMBIGUOUS_PATH.search(path):
            return False
        return any(method == allowed and _matches(pattern, path) for allowed, pattern in self.allow)


def upstream_from_record(record: Mapping[str, Any]) -> Upstream:
    """Return an upstream from its record."""
    pairs = {
        name: tuple((str(first), str(second)) for first, second in record[name])
        for name in ("allow", "headers")
    }
    return Upstream(**{**record, **pairs, "passed": tuple(record["passed"])})


def parse_url(name: str, url: str, *, local: bool) -> tuple[str, str, int, str]:
    """Parse a base URL into scheme, host, port and path; raise Invalid if it is not allowed."""
    field_name = f"upstreams.{name}.url"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Invalid(field_name, url, "write https://host or https://host/path") from None
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise Invalid(field_name, url, "use ASCII without spaces")
    if parts.scheme not in PORTS or parts.query or parts.fragment or "@" in parts.netloc:
        raise Invalid(field_name, url, "write only https://host or https://host/path")
    host = parts.netloc.removesuffix(f":{port}") if port is not None else parts.netloc
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    problem = host_error(host)
    if problem is not None:
        raise Invalid(field_name, url, problem)
    literal = literal_address(host)
    if not local and (parts.scheme != "https" or (literal is not None and not is_public(literal))):
        advice = "use https and a public address, or set local = true if it is your own"
        raise Invalid(field_name, url, advice)
    if port is not None and not 0 < port <= MAX_PORT:
        raise Invalid(field_name, url, "a port is a number from 1 to 65535")
    path = parts.path.rstrip("/")
    if path and (AMBIGUOUS_PATH.search(path) or not PLAIN.fullmatch(path)):
        raise Invalid(field_name, url, "its path is ambiguous: remove . and //")
    return parts.scheme, host, port or PORTS[parts.scheme], path


def parse_allow(name: str, lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Parse a list of `METHOD /path`."""
    found = []
    for text in lines:
        method, _, pattern = text.partition(" ")
        plain = PATTERN.fullmatch(pattern) and not AMBIGUOUS_PATH.search(pattern)
        if method not in METHODS or not pattern or not plain:
            advice = "write METHOD /path, with * for one step and ** at the end for the rest"
            raise Invalid(f"upstreams.{name}.allow", text, advice)
        found.append((method, pattern))
    return tuple(found)


def clean_query(query: str) -> str:
    """Return a query without parameters that may carry a key."""
    kept = []
    for part in query.split("&"):
        name = unquote(part.partition("=")[0].replace("+", " ")).strip().lower()
        read = [key.strip().lower() for key, _ in parse_qsl(part, keep_blank_values=True)]
        if name not in CREDENTIALS and not CREDENTIALS.intersection(read):
            kept.append(part)
    return "&".join(kept)


def _matches(pattern: str, path: str) -> bool:
    parts, steps = pattern.split("/"), path.split("/")
    if parts[-1] == "**":
        parts.pop()
        if len(steps) <= len(parts):
            return False
        steps = steps[: len(parts)]
    return len(parts) == len(steps) and all(
        part in {"*", step} and (part != "*" or step != "")
        for part, step in zip(parts, steps, strict=True)
    )


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_HOST = 253
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_EMBEDDED_V4 = tuple(
    (ipaddress.ip_network(network), shift)
    for network, shift in (("::ffff:0:0/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80))
)
"""IPv6 networks whose addresses contain an IPv4 address, and at which bit."""
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
        *("::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20"),
        *("5f00::/16", "fc00::/7", "fe80::/9", "ff00::/8"),
    )
)
"""Networks that are not public; listed here, because Python's opinion varies with its version."""


def host_error(host: str) -> str | None:
    """Return what is wrong with a host name, or None; only the canonical spelling is accepted."""
    if not host or len(host) > MAX_HOST:
        return "give the name of a host"
    if literal_address(host) is not None:
        return None
    labels = host.split(".")
    if any(_LABEL.fullmatch(label) is None for label in labels):
        return "write the host in lower case, with a-z, 0-9, - and single dots"
    if any(label.startswith("xn--") for label in labels):
        return "international names are not allowed: they can look like others"
    if labels[-1].isdigit() or labels[-1].startswith("0x"):
        return "write an address as four numbers from 0 to 255, or a name"
    return None


def literal_address(host: str) -> Address | None:
    """Return the IP address of a host that is one, in canonical spelling."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return address if str(address) == host else None


def is_public(address: Address) -> bool:
    """Whether an address is public, also if it contains an IPv4 address."""
    if isinstance(address, ipaddress.IPv6Address):
        for network, shift in _EMBEDDED_V4:
            if address in network:
                return is_public(ipaddress.IPv4Address((int(address) >> shift) & 0xFFFFFFFF))
        if address.scope_id is not None:
            return False
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast


def addresses_error(found: Iterable[str]) -> str | None:
    """Return what is wrong with resolved addresses, or None if all are public."""
    addresses = list(found)
    if not addresses:
        return "it does not resolve"
    for text in addresses:
        try:
            public = is_public(ipaddress.ip_address(text))
        except ValueError:
            public = False
        if not public:
            return f"it resolves to {text}, which is not a public address"
    return None
