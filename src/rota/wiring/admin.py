"""The admin key of a home folder: what the owner of the machine opens the door with."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from rota.errors import Unavailable
from rota.flow.define.keys import create_key
from rota.model.keys import EVERY_SCOPE
from rota.model.spaces import Role
from rota.ports.store import Store
from rota.rules.permission import LOCAL, OWNER
from rota.rules.tokens import SECRET_BYTES, digest_of_token, token_of

FILE_NAME = "admin.key"
PRIVATE = 0o600


async def ensure_admin_key(store: Store, home: Path) -> None:
    """Make sure that the home folder has a key that opens everything, and only its owner has it."""
    path = home / FILE_NAME
    token = _read(path)
    digest = None if token is None else digest_of_token(token)
    found = None if digest is None else await store.find_key(digest)
    if found is not None and found.revoked_at is None:
        return
    secret = secrets.token_bytes(SECRET_BYTES)
    await create_key(store, LOCAL, OWNER, secret, role=Role.MAIN, scopes=EVERY_SCOPE)
    _write(path, token_of(secret))


def _read(path: Path) -> str | None:
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
