"""Sealed secrets: a file that can only be read with the key beside it.

This keeps secrets out of the database, its backups, and tools that copy or show single files. It
does not protect them from anyone who can read the whole folder.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rota.errors import NotFound, Unavailable

PRIVATE = 0o600
FOLDER = 0o700
OTHERS_MASK = 0o077
STORE, KEY, LOCK = "sealed.json", "key", "lock"
MISSING = (
    "stored secrets need the package cryptography: pip install 'rota[secrets]'; "
    "secrets from the environment and from files do not"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSecret:
    """One secret, decrypted."""

    name: str
    value: str
    set_at: str
    set_by: str


class SealedSecrets:
    """The sealed secrets of a home; writers are serialized by a lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def version(self) -> object:
        """A value that changes with the files or their permissions."""
        return _file_version(self._folder / STORE), _file_version(self._folder / KEY)

    def read_all(self) -> list[SealedSecret]:
        """Return all secrets, decrypted."""
        found = self._read()
        if not found:
            return []
        box = _box(self._key(make=False))
        return [_decrypt(box, name, entry) for name, entry in sorted(found.items())]

    def put(self, name: str, value: str, *, at: str, by: str) -> None:
        """Store or replace a secret."""
        with self._write_lock():
            found = self._read()
            sealed = _box(self._key(make=not found)).encrypt(json.dumps([name, value]).encode())
            found[name] = {"sealed": sealed.decode(), "set_at": at, "set_by": by}
            self._write(STORE, json.dumps(found, indent=1).encode())

    def remove(self, name: str) -> None:
        """Remove a secret."""
        with self._write_lock():
            found = self._read()
            if found.pop(name, None) is None:
                raise NotFound("secret", name, "only those of `rota secret set` can be removed")
            self._write(STORE, json.dumps(found, indent=1).encode())

    def _read(self) -> dict[str, Any]:
        path = self._folder / STORE
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise Unavailable(f"cannot read {path}: restore it from a copy") from error
        return found

    def _key(self, *, make: bool) -> bytes:
        path = self._folder / KEY
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & OTHERS_MASK:
                    message = f"others may read {path}: chmod 600 {path}, or rota doctor --fix"
                    raise Unavailable(message)
                return file.read().strip()
        except FileNotFoundError:
            if not make:
                message = f"the key of the secrets is missing: restore {path}, or set them again"
                raise Unavailable(message) from None
        key: bytes = _fernet().Fernet.generate_key()
        self._write(KEY, key)
        return key

    @contextmanager
    def _write_lock(self) -> Iterator[None]:
        _fernet()
        try:
            self._folder.mkdir(mode=FOLDER, parents=True, exist_ok=True)
            lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        except OSError as error:
            raise Unavailable(f"cannot write to {self._folder}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, name: str, data: bytes) -> None:
        """Replace a file atomically and durably."""
        path = self._folder / name
        begun = path.with_name(f".{name}.{os.getpid()}")
        try:
            begun.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(begun, flags, PRIVATE), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            begun.replace(path)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise Unavailable(f"cannot write {path}: {error.strerror}") from error


def _file_version(path: Path) -> tuple[int, ...] | None:
    try:
        facts = path.stat()
    except FileNotFoundError:
        return None
    return facts.st_mtime_ns, facts.st_ino, facts.st_size, facts.st_mode


def _fernet() -> Any:  # noqa: ANN401 - a module that may not be there
    try:
        return import_module("cryptography.fernet")
    except ImportError:
        raise Unavailable(MISSING) from None


def _box(key: bytes) -> Any:  # noqa: ANN401 - of a module that may not be there
    try:
        return _fernet().Fernet(key)
    except ValueError:
        raise Unavailable("the key of the secrets is damaged: restore it from a copy") from None


def _decrypt(box: Any, name: str, entry: dict[str, Any]) -> SealedSecret:  # noqa: ANN401
    try:
        known, value = json.loads(box.decrypt(entry["sealed"].encode()))
    except (_fernet().InvalidToken, KeyError, TypeError, ValueError):
        known, value = None, ""
    if known != name:
        message = f"the secret {name!r} cannot be decrypted with this home's key: set it again"
        raise Unavailable(message)
    return SealedSecret(
        name=name,
        value=value,
        set_at=str(entry.get("set_at", "")),
        set_by=str(entry.get("set_by", "")),
    )
