"""Upstreams: allowed hosts, paths and methods."""

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
MAX_PORT = 65_535


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
    if port is not None and not 0 < port <= MAX_PORT:
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


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_HOST = 253
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_HIDDEN_V4 = tuple(
    (ipaddress.ip_network(network), shift)
    for network, shift in (("::ffff:0:0/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80))
)
"""Networks of IPv6 whose addresses mean one of IPv4, and where in them it stands."""
_NEVER = tuple(
    ipaddress.ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
        *("::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20"),
        *("5f00::/16", "fc00::/7", "fe80::/9", "ff00::/8"),
    )
)
"""What is not public: named here, because what Python thinks of it changes with its versions."""


def fault_in_host(host: str) -> str | None:
    """Return what is wrong with the name of a host, or None; only one spelling is right."""
    if not host or len(host) > MAX_HOST:
        return "give the name of a host"
    if address_in(host) is not None:
        return None
    labels = host.split(".")
    if any(_LABEL.fullmatch(label) is None for label in labels):
        return "write it in lower case, with a-z, 0-9, - and single dots, and nothing around it"
    if any(label.startswith("xn--") for label in labels):
        return "names in other scripts are not spoken to: they can look like one that is"
    if labels[-1].isdigit() or labels[-1].startswith("0x"):
        return "write an address as four numbers from 0 to 255, or a name"
    return None


def address_in(host: str) -> Address | None:
    """Return the address that a host is, if it is one in its only right spelling."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return address if str(address) == host else None


def is_public(address: Address) -> bool:
    """Whether an address is one of the public network, also if it hides one of IPv4."""
    if isinstance(address, ipaddress.IPv6Address):
        for network, shift in _HIDDEN_V4:
            if address in network:
                return is_public(ipaddress.IPv4Address((int(address) >> shift) & 0xFFFFFFFF))
        if address.scope_id is not None:
            return False
    if any(address in network for network in _NEVER if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast


def fault_in_addresses(found: Iterable[str]) -> str | None:
    """Return what is wrong with what a name has led to, or None if all of it is public."""
    addresses = list(found)
    if not addresses:
        return "it leads nowhere"
    for text in addresses:
        try:
            public = is_public(ipaddress.ip_address(text))
        except ValueError:
            public = False
        if not public:
            return f"it leads to {text}, which is not a public address"
    return None
