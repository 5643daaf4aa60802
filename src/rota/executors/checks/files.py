"""When a file of a task's folder was written; every step is taken from the folder already held."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from rota.errors import NotPermitted
from rota.executors.kit.beneath import open_beneath
from rota.ports.checking import Seen


def look(work: Path, folder: str | None, path: str) -> Seen | str:
    """Return what is known of a plain file, or why it is not one.

    The kernel's own time of the last change bounds the one that a program can set at will.
    """
    root = str(work)
    below = f"{root}/{folder}/{path}" if folder else f"{root}/{path}"
    try:
        held = open_beneath(root, below)
    except NotPermitted as fault:
        gone = isinstance(fault.__cause__, FileNotFoundError)
        return "there is no file of this path" if gone else str(fault)
    try:
        facts = os.fstat(held)
    finally:
        os.close(held)
    if not stat.S_ISREG(facts.st_mode):
        return "it is no plain file"
    written = max(0, min(facts.st_mtime_ns, facts.st_ctime_ns))
    return Seen(written // 1_000, facts.st_size)
