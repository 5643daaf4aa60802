"""Furnishing: the image of lobbies, empty but for the names of the host's folders."""

from __future__ import annotations

import fcntl
import hashlib
import io
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.errors import Unavailable
from rota.executors.kit.system import System

IMAGE = "localhost/rota-lobby"
TAG = 12
PATIENCE = 60.0


def packed(system: System) -> tuple[str, bytes]:
    """Return the name of the image of lobbies, which says what is in it, and its content."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as image:
        for target, link in system.links:
            entry = tarfile.TarInfo(link.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            image.addfile(entry)
        for folder in (*system.folders, "/run", "/etc"):
            entry = tarfile.TarInfo(folder.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            image.addfile(entry)
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    return f"{IMAGE}:{digest[:TAG]}", content.getvalue()


def furnish(engine: Sequence[str], env: Mapping[str, str]) -> bool:
    """Hand an engine the image of lobbies, unless it has it; true if it was handed over."""
    name, content = packed(System.here())
    with Path(__file__).open("rb") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if _asked(env, *engine, "image", "inspect", name).returncode == 0:
            return False
        done = _asked(env, *engine, "import", "-", name, given=content)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise Unavailable(f"the engine does not take the image {name}: {said}")
    return True


def _asked(
    env: Mapping[str, str], *words: str, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(  # noqa: S603
            words, input=given, capture_output=True, env=dict(env), timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise Unavailable(f"{words[0]} does not answer: {fault}") from fault
