"""The admin key of a home, and the tokens of attempts."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

from rota.agent_api.mcp import MCP_PATH
from rota.errors import Unavailable
from rota.flow.define.keys import create_key
from rota.model.keys import EVERY_SCOPE
from rota.model.programs import Site
from rota.model.runs import Lease
from rota.model.spaces import SpaceRole
from rota.ports.executor import EgressSocket
from rota.ports.host import AgentApiAddress
from rota.rules.permissions import LOCAL, OWNER
from rota.rules.tokens import (
    SECRET_BYTES,
    is_attempt_token,
    key_token,
    make_attempt_token,
    read_attempt_token,
    token_digest,
)
from rota.store.keys import find_key
from rota.store.store import Store

log = logging.getLogger(__name__)

KEY_FILE = "desk.key"
FOLDER = "desk"
SOCKET = "mcp.sock"
PORT_INSIDE = 7684
"""Port of 127.0.0.1 at which isolated programs reach the agent API."""
MAX_SOCKET_PATH = 107
SIGNING_KEY_BYTES = 32
PRIVATE = 0o600


class LocalAttemptTokens:
    """Creates and verifies attempt tokens; `url` is the agent API while a daemon serves it."""

    def __init__(self, home: Path, store: Store) -> None:
        self._secret = home_secret(home)
        self._store = store
        self.url: str | None = None
        self.socket_open = False

    def address_for(self, lease: Lease, site: Site) -> AgentApiAddress | None:
        """Return the address for an attempt: over its network, or by a socket."""
        token = make_attempt_token(
            self._secret, self._store.database.incarnation, lease.run_id, lease.epoch
        )
        if not site.own_loopback:
            return None if self.url is None else AgentApiAddress(self.url, token)
        url = f"http://127.0.0.1:{PORT_INSIDE}{MCP_PATH}"
        return AgentApiAddress(url, token, socket=True) if self.socket_open else None

    def read(self, token: str) -> tuple[int, int] | None:
        """Return the run and epoch of an attempt token; None if another home issued it."""
        return read_attempt_token(self._secret, self._store.database.incarnation, token)

    def is_one(self, token: str) -> bool:
        """Return whether a token has the form of an attempt token."""
        return is_attempt_token(token)


def agent_api_socket(home: Path) -> EgressSocket | None:
    """Return the socket for isolated programs; None if its path is too long.

    The sandbox shows its folder, because a restarted daemon creates a new socket there.
    """
    path = home.absolute() / FOLDER / SOCKET
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        return None
    return EgressSocket(socket=str(path), port=PORT_INSIDE, alone=True)


def home_secret(home: Path) -> bytes:
    """Return the secret of a home, which is created at first use."""
    path = home / KEY_FILE
    try:
        return _read_secret(path)
    except FileNotFoundError:
        pass
    begun = path.with_name(f".{KEY_FILE}.{os.getpid()}")
    try:
        begun.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(begun, flags, PRIVATE), "w") as file:
            file.write(secrets.token_hex(SIGNING_KEY_BYTES))
        try:
            os.link(begun, path)
        except FileExistsError:
            log.debug("agent_api.secret_created_meanwhile")
        finally:
            begun.unlink()
        return _read_secret(path)
    except OSError as fault:
        message = f"cannot write {path}: {(fault.strerror or str(fault)).lower()}"
        raise Unavailable(message) from fault


def _read_secret(path: Path) -> bytes:
    try:
        found = bytes.fromhex(path.read_text())
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as fault:
        raise Unavailable(f"cannot read {path}: delete it to have a new one made") from fault
    if len(found) != SIGNING_KEY_BYTES:
        raise Unavailable(f"cannot read {path}: delete it to have a new one made")
    return found


ADMIN_KEY = "admin.key"


async def ensure_admin_key(store: Store, home: Path) -> None:
    """Make sure that the home folder has an admin key that only its owner can read."""
    path = home / ADMIN_KEY
    token = _read_key(path)
    digest = None if token is None else token_digest(token)
    found = None if digest is None else await store.read(find_key, digest)
    if found is not None and found.revoked_at is None:
        return
    secret = secrets.token_bytes(SECRET_BYTES)
    await create_key(store, LOCAL, OWNER, secret, role=SpaceRole.MAIN, scopes=EVERY_SCOPE)
    _write(path, key_token(secret))


def _read_key(path: Path) -> str | None:
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(PRIVATE)
        return path.read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as fault:
        message = f"cannot read {path}: {fault}"
        raise Unavailable(message) from fault


def _write(path: Path, token: str) -> None:
    begun = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        begun.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(begun, flags, PRIVATE), "w") as file:
            file.write(f"{token}\n")
        begun.replace(path)
    except OSError as fault:
        message = f"cannot write {path}: {(fault.strerror or str(fault)).lower()}"
        raise Unavailable(message) from fault
