"""Samples of attempts, and wake-ups when a keeper writes."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rota.keeper.client import KeeperIdentity, boot_time, peek, state_of
from rota.keeper.linux import descendants, start_time
from rota.keeper.protocol import read_file
from rota.model.attempts import KeptAttempt
from rota.model.heartbeats import AttemptSample

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MAX_PROCESSES = 1_000
WAITS_FOR_A_DISK = b"D"


class ProcessUsage(NamedTuple):
    """What the processes below a keeper use together; memory they share counts for each."""

    processes: int
    cpu_seconds: float
    memory_bytes: int


def take_sample(
    kept: KeptAttempt, folder: Path, identity: KeeperIdentity, rang: int, pane: str | None
) -> AttemptSample:
    """Return what can be seen of an attempt that last rang then, and what its pane shows if any.

    A keeper whose disk takes no beat rings instead.
    """
    seen = peek(folder, identity)
    alive = is_alive(seen.pid, seen.pid_started)
    used = usage_below(seen.pid) if alive else None
    return AttemptSample(
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


def usage_below(keeper: int) -> ProcessUsage:
    """Return what a keeper's tree uses, ended and buried processes included in its time."""
    count, ticks, pages = 0, 0, 0
    for pid in descendants(keeper)[:MAX_PROCESSES]:
        fields = _stat(pid)
        if len(fields) > RSS:
            count += 1
            ticks += sum(int(fields[n]) for n in TIMES)
            pages += int(fields[RSS])
    return ProcessUsage(count, ticks / TICKS, pages * PAGE)


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


MAX_WATCHED = 256
"""Each takes a descriptor of this process."""
UNWATCHED_SECONDS = 1.0
"""How often the others are looked at."""


class KeeperEvents:
    """The bells of a home's attempts, by their names."""

    def __init__(self) -> None:
        self._bells: dict[str, asyncio.Event] = {}
        self._rang: dict[str, int] = {}
        self._watched: dict[str, int] = {}

    def hang(self, name: str) -> None:
        """Keep what is rung from now on for whoever waits later."""
        self._bells.setdefault(name, asyncio.Event())

    def ring(self, name: str) -> None:
        """Wake whoever waits for an attempt."""
        if name in self._bells:
            self._rang[name] = boot_time()
            self._bells[name].set()

    def rang(self, name: str) -> int:
        """Return when an attempt last rang, in nanoseconds of boot time; 0 if never."""
        return self._rang.get(name, 0)

    def watches(self, name: str) -> bool:
        """Whether the end of a keeper rings."""
        return name in self._watched

    def watch(self, name: str, pid: int, began: int) -> bool:
        """Let the end of a keeper ring; false if the one that began then does not live."""
        if not began or len(self._watched) >= MAX_WATCHED:
            return False
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return False
        if start_time(pid) != began:
            os.close(handle)
            return False
        self._watched[name] = handle
        asyncio.get_running_loop().add_reader(handle, self._ended, name)
        return True

    async def rung(self, name: str, seconds: float) -> None:
        """Wait until an attempt's bell rings, at most so long."""
        self.hang(name)
        bell = self._bells[name]
        try:
            async with asyncio.timeout(seconds):
                await bell.wait()
        except TimeoutError:
            return
        bell.clear()

    def take_down(self, name: str) -> None:
        """Forget an attempt; whoever still waits for it is woken."""
        self.ring(name)
        self._bells.pop(name, None)
        self._rang.pop(name, None)
        self._unwatch(name)

    def close(self) -> None:
        """Watch nobody any more."""
        for name in tuple(self._watched):
            self._unwatch(name)

    def _ended(self, name: str) -> None:
        self._unwatch(name)
        self.ring(name)

    def _unwatch(self, name: str) -> None:
        handle = self._watched.pop(name, None)
        if handle is not None:
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)
