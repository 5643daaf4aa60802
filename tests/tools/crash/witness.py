"""The witness: what the outside saw, in a file that outlives every process it tells about.

A process that is killed inside a write may leave half a line. Each line therefore begins with a
break of its own, and a half one is passed over: what was not written down was not acknowledged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

FILE = "witness.jsonl"
"""In the folder of a case, which is also the working folder of its processes."""


def note(what: str, folder: str = ".", *, sure: bool = False, **facts: object) -> None:
    """Append a line with one write; with `sure`, return when it is on disk."""
    line = "\n" + json.dumps({"what": what, "pid": os.getpid(), **facts}) + "\n"
    file = os.open(Path(folder, FILE), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
        if sure:
            os.fsync(file)
    finally:
        os.close(file)


def noted(folder: Path) -> list[dict[str, Any]]:
    """Return every line in the order it was written."""
    path = folder / FILE
    return list(_records(path)) if path.exists() else []


def _records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            with suppress(json.JSONDecodeError):
                yield json.loads(line)


def messages(folder: Path) -> Iterator[str]:
    """Yield the messages the log channel took, read from what daemons wrote to their logs."""
    for log in sorted(folder.glob("daemon-*.log")):
        for record in _records(log):
            if record["event"] == "message.sent":
                yield record["body"]
