"""The passes of a home: its secret, and where its desk is found from inside."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

from rota.errors import Unavailable
from rota.executors.kit.executor import Outlet
from rota.model.runs import Lease
from rota.model.sites import Site
from rota.ports.passes import Way
from rota.ports.store import Store
from rota.rules.passes import is_pass, make_pass, read_pass
from rota.rules.sites import has_own_loopback

log = logging.getLogger(__name__)

KEY_FILE = "desk.key"
FOLDER = "desk"
SOCKET = "mcp.sock"
PATH = "/mcp"
PORT_INSIDE = 7684
"""Where programs behind walls find the desk, on their own 127.0.0.1."""
LONGEST_SOCKET = 107
SECRET_BYTES = 32
PRIVATE = 0o600


class HomePasses:
    """Makes and reads passes; `url` is where the desk is while a daemon has it open."""

    def __init__(self, home: Path, store: Store) -> None:
        self._secret = home_secret(home)
        self._store = store
        self.url: str | None = None
        self.socket_open = False

    def way(self, lease: Lease, site: Site) -> Way | None:
        """Return the way of an attempt: over the network it has, or by a socket through walls."""
        token = make_pass(self._secret, self._store.incarnation, lease.run_id, lease.epoch)
        if not has_own_loopback(site):
            return None if self.url is None else Way(self.url, token)
        url = f"http://127.0.0.1:{PORT_INSIDE}{PATH}"
        return Way(url, token, socket=True) if self.socket_open else None

    def read(self, token: str) -> tuple[int, int] | None:
        """Return the run and epoch of a pass; None if it is not of this home."""
        return read_pass(self._secret, self._store.incarnation, token)

    def is_one(self, token: str) -> bool:
        """Tell whether a token looks like a pass."""
        return is_pass(token)


def desk_socket(home: Path) -> Outlet | None:
    """Return the socket that programs behind walls reach the desk by; None if its path is too long.

    They are handed its folder, for a daemon that starts again makes a new socket there.
    """
    path = home.absolute() / FOLDER / SOCKET
    if len(os.fsencode(path)) > LONGEST_SOCKET:
        return None
    return Outlet(socket=str(path), port=PORT_INSIDE, alone=True)


def home_secret(home: Path) -> bytes:
    """Return the secret of a home, which is made the first time."""
    path = home / KEY_FILE
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    begun = path.with_name(f".{KEY_FILE}.{os.getpid()}")
    try:
        begun.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(begun, flags, PRIVATE), "w") as file:
            file.write(secrets.token_hex(SECRET_BYTES))
        try:
            os.link(begun, path)
        except FileExistsError:
            log.debug("desk.secret_made_meanwhile")
        finally:
            begun.unlink()
        return _read(path)
    except OSError as fault:
        message = f"cannot write {path}: {(fault.strerror or str(fault)).lower()}"
        raise Unavailable(message) from fault


def _read(path: Path) -> bytes:
    try:
        found = bytes.fromhex(path.read_text())
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as fault:
        raise Unavailable(f"cannot read {path}: delete it to have a new one made") from fault
    if len(found) != SECRET_BYTES:
        raise Unavailable(f"cannot read {path}: delete it to have a new one made")
    return found
