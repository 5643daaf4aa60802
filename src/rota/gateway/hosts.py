"""Hosts: which names may be written down, and which addresses may be spoken to."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

LONGEST_HOST = 253
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
    if not host or len(host) > LONGEST_HOST:
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
