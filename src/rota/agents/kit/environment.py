"""The environment of an agent: chosen by name from what is offered, nothing inherited."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rota.ports.agent import Room

EVERYBODY = frozenset(
    {
        "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
        "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
    }
)  # fmt: skip
PATH = "/usr/local/bin:/usr/bin:/bin"


def environment(room: Room, names: Collection[str], fixed: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment; what Rota sets wins over what is offered."""
    chosen = {
        name: value
        for name, value in room.offered.items()
        if (name in EVERYBODY or name in names) and "\x00" not in value
    }
    standard = {"PATH": PATH, "LANG": "C.UTF-8"}
    return {**standard, **chosen, **room.ids, **fixed, "HOME": room.home}
