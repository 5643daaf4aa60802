"""The environment of an agent: chosen by name from what is offered, nothing inherited."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from rota.ports.agent import Room

PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"})
ANYWHERE = PROXIES | {"TZ", "NO_PROXY", "no_proxy"}
EVERYBODY = ANYWHERE | {
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
}  # fmt: skip
"""An image has paths and languages of its own: there they are given only to whom names them."""
SCHEME = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?")
PATH = "/usr/local/bin:/usr/bin:/bin"


def environment(room: Room, names: Collection[str], fixed: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment; what Rota sets wins over what is offered."""
    everybody = ANYWHERE if room.in_image else EVERYBODY
    chosen = {
        name: _without_login(value) if name in PROXIES else value
        for name, value in room.offered.items()
        if (name in everybody or name in names) and "\x00" not in value
    }
    standard = {} if room.in_image else {"PATH": PATH, "LANG": "C.UTF-8"}
    return {**standard, **chosen, **room.ids, **fixed, "HOME": room.home}


def _without_login(address: str) -> str:
    """Return the address of a proxy without the name and the password that may stand in it."""
    found = SCHEME.match(address)
    scheme = "" if found is None else found[0]
    return scheme + address[len(scheme) :].rpartition("@")[2]
