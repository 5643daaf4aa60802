"""What can be seen of an attempt without disturbing it: nothing here locks, judges or ends it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rota.executors.kit.keeper.processes import descendants, start_time
from rota.executors.kit.keeper.words import read_file
from rota.executors.kit.keeping import Identity
from rota.executors.kit.probing import glance, state_of
from rota.model.beats import Sign
from rota.model.keeping import Kept

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MOST_PROCESSES = 1_000
WAITS_FOR_A_DISK = b"D"


class Usage(NamedTuple):
    """What the processes below a keeper use together; memory they share counts for each."""

    processes: int
    cpu_seconds: float
    memory_bytes: int


def sign_of(kept: Kept, folder: Path, identity: Identity, rang: int, pane: str | None) -> Sign:
    """Return what can be seen of an attempt that last rang then, and what its pane shows if any.

    A keeper whose disk takes no beat rings instead.
    """
    seen = glance(folder, identity)
    alive = is_alive(seen.pid, seen.pid_started)
    used = usage_below(seen.pid) if alive else None
    return Sign(
        run_id=kept.run_id,
        epoch=kept.epoch,
        alive=alive,
        state=state_of(seen, alive=alive),
        pid=seen.pid if alive else None,
        processes=None if used is None else used.processes,
        cpu_seconds=None if used is None else used.cpu_seconds,
        memory_bytes=None if used is None else used.memory_bytes,
        output_at=wrote_at(folder),
        pane=pane,
        beat=None if seen.beat is None else max(seen.beat.at, rang),
    )


def usage_below(keeper: int) -> Usage:
    """Return what a keeper's tree uses, ended and buried processes included in its time."""
    count, ticks, pages = 0, 0, 0
    for pid in descendants(keeper)[:MOST_PROCESSES]:
        fields = _stat(pid)
        if len(fields) > RSS:
            count += 1
            ticks += sum(int(fields[n]) for n in TIMES)
            pages += int(fields[RSS])
    return Usage(count, ticks / TICKS, pages * PAGE)


def wrote_at(folder: Path) -> datetime | None:
    """Return when a program last wrote something that is in its spools."""
    times = []
    for name in ("out", "err"):
        try:
            found = (folder / name).stat()
        except FileNotFoundError:
            continue
        if found.st_size:
            times.append(found.st_mtime_ns)
    return datetime.fromtimestamp(max(times) / 1e9, UTC) if times else None


def is_alive(pid: int, began: int) -> bool:
    """Return whether a process lives that is the one that began then."""
    return began > 0 and start_time(pid) == began


def waits_for_a_disk(pid: int) -> bool:
    """Return whether a process sleeps in the kernel and can do nothing about it."""
    return _stat(pid)[:1] == [WAITS_FOR_A_DISK]


TIMES = (11, 12, 13, 14)
"""Fields of a process's own time and of its buried children's, counted behind its name."""
RSS = 21


def _stat(pid: int) -> list[bytes]:
    return read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()
