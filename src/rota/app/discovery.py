"""The address file of a daemon, by which commands find it.

A process number may belong to another process, and another program may answer at the address. A
lock ends with its process, so while it is held, the address is that of the daemon.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from rota.errors import Unavailable

PLACE = "api.json"
PRIVATE = 0o600
WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class DaemonAddress(NamedTuple):
    """Address and process of a daemon."""

    url: str
    pid: int


@contextmanager
def announce(home: Path, url: str) -> Iterator[None]:
    """Announce a daemon in its home within the block."""
    path = home / PLACE
    text = json.dumps({"url": url, "pid": os.getpid()}) + "\n"
    try:
        file = _left(path, text)
    except OSError as fault:
        message = f"cannot write {path}: {(fault.strerror or str(fault)).lower()}"
        raise Unavailable(message) from fault
    try:
        yield
    finally:
        with suppress(OSError):
            if path.read_text() == text:
                path.unlink()
        os.close(file)


def _left(path: Path, text: str) -> int:
    """Write a file that is locked before it is visible, and return its descriptor."""
    begun = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(begun, WRITE, PRIVATE)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(file, text.encode())
        begun.replace(path)
    except OSError:
        os.close(file)
        raise
    return file


def find_daemon_address(home: Path) -> DaemonAddress | None:
    """Return the address of a running daemon of a home, or None."""
    try:
        with (home / PLACE).open("rb") as file:
            if _is_held(file.fileno()):
                said = json.load(file)
                return DaemonAddress(str(said["url"]), int(said["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _is_held(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
