"""Whether a file of a task's folder was written since its attempt began.

No clock is asked, because every file system has its own, and any of them may be set meanwhile: how
a file was is noted before anything of the attempt begins, in the home, and compared at its end.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from rota.errors import NotPermitted
from rota.executors.kit.beneath import open_beneath
from rota.ports.checking import Seen

TICK_SECONDS = 0.02
"""Longer than the times of files stand still; a second write within it may leave them as they are.
"""


def note(notes: Path, work: Path, folder: str | None, paths: Sequence[str], *, anew: bool) -> None:
    """Note how files are now; what was noted before stays, unless the attempt begins anew."""
    if notes.exists() and not anew:
        return
    noted = {_below(folder, path): _settled(work, _below(folder, path)) for path in paths}
    unfinished = notes.with_suffix(".new")
    unfinished.write_text(json.dumps(noted), encoding="utf-8")
    unfinished.replace(notes)


def look(notes: Path, work: Path, folder: str | None, path: str) -> Seen | str:
    """Return what is known of a plain file, or why it is not one."""
    below = _below(folder, path)
    facts = _facts(work, below)
    if isinstance(facts, str):
        return facts
    try:
        was = json.loads(notes.read_text(encoding="utf-8"))[below]
    except (FileNotFoundError, KeyError, ValueError):
        changed = None
    else:
        changed = was != _stamp(facts)
    # The kernel's own time of the last change bounds the one that a program can set at will.
    written = max(0, min(facts.st_mtime_ns, facts.st_ctime_ns))
    return Seen(written // 1_000, facts.st_size, changed)


def _below(folder: str | None, path: str) -> str:
    return f"{folder}/{path}" if folder else path


def _stamp(facts: os.stat_result) -> list[int]:
    return [facts.st_ino, facts.st_mtime_ns, facts.st_size]


def _settled(work: Path, below: str) -> list[int] | None:
    """Return the stamp of a file that every later write changes, None if there is no plain file."""
    facts = _facts(work, below)
    if isinstance(facts, str):
        return None
    if abs(time.time_ns() - facts.st_mtime_ns) < TICK_SECONDS * 1e9:
        time.sleep(TICK_SECONDS)
        facts = _facts(work, below)
    return None if isinstance(facts, str) else _stamp(facts)


def _facts(work: Path, below: str) -> os.stat_result | str:
    """Return the facts of a plain file; every step is taken from the folder already held."""
    root = str(work)
    try:
        held = open_beneath(root, f"{root}/{below}")
    except NotPermitted as fault:
        gone = isinstance(fault.__cause__, FileNotFoundError)
        return "there is no file of this path" if gone else str(fault)
    try:
        facts = os.fstat(held)
    finally:
        os.close(held)
    return facts if stat.S_ISREG(facts.st_mode) else "it is no plain file"
