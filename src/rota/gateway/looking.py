"""Looking at the gateway of a home from outside: whether one is there, since when, and for whom."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rota.gateway.folder import CONTROL, LOCK, VERSION

PATIENCE_SECONDS = 5.0
LONGEST_ANSWER = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A gateway that is there; `attempts` may ask it, and None is one that does not answer."""

    pid: int
    since: datetime
    socket: str
    attempts: int | None = None
    current: bool = True


def look(folder: Path) -> Seen | None:
    """Return the gateway of a folder, if there is one; nothing is started and nothing is changed.

    It wrote its number into its lock when it began.
    """
    try:
        pid = int((folder / LOCK).read_text())
        since = datetime.fromtimestamp((folder / LOCK).stat().st_mtime, UTC)
    except (OSError, ValueError):
        return None
    place = str(folder / CONTROL)
    with suppress(OSError, ValueError, KeyError, TypeError):
        told = _asked(folder)
        return Seen(
            pid=int(told["pid"]),
            since=since,
            socket=place,
            attempts=len(told["permits"]),
            current=told["version"] == VERSION,
        )
    return Seen(pid=pid, since=since, socket=place) if _is_gateway(pid) else None


def _asked(folder: Path) -> dict[str, Any]:
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(PATIENCE_SECONDS)
            line.connect(f"/proc/self/fd/{held}/{CONTROL}")
            line.sendall(b'{"do": "hello"}\n')
            with line.makefile("rb") as answers:
                told: dict[str, Any] = json.loads(answers.readline(LONGEST_ANSWER))
    finally:
        os.close(held)
    return told


def _is_gateway(pid: int) -> bool:
    """Whether a process is a gateway, and not another one that has its number now."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"rota.gateway.process" in words
