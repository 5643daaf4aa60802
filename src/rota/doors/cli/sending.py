"""Files that people send: read from this machine, no more of them than may be sent."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from rota.errors import Invalid
from rota.model.messages import LARGEST_FILES, MOST_FILES

LOOK = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Waits for nobody: what turns out to be no plain file is not read."""


def files_at(paths: Sequence[str]) -> list[dict[str, str]]:
    """Return files as they are sent, or refuse what cannot be."""
    if len(paths) > MOST_FILES:
        raise Invalid("file", len(paths), f"send at most {MOST_FILES} with a message")
    sent, left = [], LARGEST_FILES
    for path in paths:
        content = _read(path, left)
        left -= len(content)
        data = base64.b64encode(content).decode()
        sent.append({"name": Path(path).name, "data": data})
    return sent


def _read(path: str, most: int) -> bytes:
    try:
        file = os.open(path, LOOK)
    except (OSError, ValueError) as fault:
        why = (fault.strerror if isinstance(fault, OSError) else None) or str(fault)
        raise Invalid("file", path, f"cannot be read: {why.lower()}") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Invalid("file", path, "name a plain file: no folder, pipe or device")
        with os.fdopen(file, "rb", closefd=False) as reading:
            content = reading.read(most + 1)
    except OSError as fault:
        why = (fault.strerror or str(fault)).lower()
        raise Invalid("file", path, f"cannot be read: {why}") from None
    finally:
        os.close(file)
    if len(content) > most:
        advice = f"the files of a message have {LARGEST_FILES >> 20} MiB together at most"
        raise Invalid("file", path, advice)
    return content
