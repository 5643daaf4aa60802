"""Samples of attempts for heartbeats, and waiting for news from keepers."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rota.keeper.client import KeeperIdentity, boot_time, read_keeper, state_of
from rota.keeper.linux import descendants, start_time
from rota.keeper.protocol import read_file
from rota.model.attempts import KeptAttempt
from rota.model.heartbeats import AttemptSample

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MAX_PROCESSES = 1_000
DISK_SLEEP = b"D"


class ProcessUsage(NamedTuple):
    """Resources used by the process tree of a keeper; shared memory counts per process."""

    processes: int
    cpu_seconds: float
    memory_bytes: int


def take_sample(
    kept: KeptAttempt, folder: Path, identity: KeeperIdentity, last_event: int, pane: str | None
) -> AttemptSample:
    """Return a sample of an attempt.

    If the disk of a keeper refuses its progress, its last wake-up counts instead.
    """
    keeper = read_keeper(folder, identity)
    alive = is_alive(keeper.pid, keeper.pid_started)
    usage = tree_usage(keeper.pid) if alive else None
    return AttemptSample(
        run_id=kept.run_id,
        epoch=kept.epoch,
        alive=alive,
        state=state_of(keeper, alive=alive),
        pid=keeper.pid if alive else None,
        processes=None if usage is None else usage.processes,
        cpu_seconds=None if usage is None else usage.cpu_seconds,
        memory_bytes=None if usage is None else usage.memory_bytes,
        output_at=last_output_at(folder),
        pane=pane,
        heartbeat=None if keeper.beat is None else max(keeper.beat.at, last_event),
    )


def tree_usage(keeper: int) -> ProcessUsage:
    """Return the usage of a keeper's tree; CPU time includes reaped processes."""
    count, ticks, pages = 0, 0, 0
    for pid in descendants(keeper)[:MAX_PROCESSES]:
        fields = _stat(pid)
        if len(fields) > RSS:
            count += 1
            ticks += sum(int(fields[n]) for n in TIMES)
            pages += int(fields[RSS])
    return ProcessUsage(count, ticks / TICKS, pages * PAGE)


def last_output_at(folder: Path) -> datetime | None:
    """Return when a program last wrote output that is in its spools."""
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
    """Whether a process with this start time is alive."""
    return began > 0 and start_time(pid) == began


def is_in_disk_sleep(pid: int) -> bool:
    """Whether a process is in uninterruptible sleep."""
    return _stat(pid)[:1] == [DISK_SLEEP]


TIMES = (11, 12, 13, 14)
"""CPU times of a process and of its reaped children in /proc/PID/stat, after the name."""
RSS = 21


def _stat(pid: int) -> list[bytes]:
    return read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()


MAX_WATCHED = 256
"""Keepers watched with a pidfd; each takes a descriptor of this process."""
UNWATCHED_SECONDS = 1.0
"""How often other keepers are checked."""


class KeeperEvents:
    """Wake-ups of the attempts of a home, by name."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}
        self._event_times: dict[str, int] = {}
        self._watched: dict[str, int] = {}

    def register(self, name: str) -> None:
        """Remember wake-ups from now on."""
        self._events.setdefault(name, asyncio.Event())

    def notify(self, name: str) -> None:
        """Record a wake-up, and wake the waiter."""
        if name in self._events:
            self._event_times[name] = boot_time()
            self._events[name].set()

    def last_event_at(self, name: str) -> int:
        """Return the boot time of the last wake-up in nanoseconds; 0 if there was none."""
        return self._event_times.get(name, 0)

    def is_watched(self, name: str) -> bool:
        """Whether the exit of a keeper is watched."""
        return name in self._watched

    def watch(self, name: str, pid: int, began: int) -> bool:
        """Treat the exit of a keeper as a wake-up; false if it is gone or cannot be watched."""
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

    async def wait(self, name: str, seconds: float) -> None:
        """Wait for a wake-up, at most `seconds`."""
        self.register(name)
        bell = self._events[name]
        try:
            async with asyncio.timeout(seconds):
                await bell.wait()
        except TimeoutError:
            return
        bell.clear()

    def unregister(self, name: str) -> None:
        """Forget an attempt, and wake its waiter."""
        self.notify(name)
        self._events.pop(name, None)
        self._event_times.pop(name, None)
        self._unwatch(name)

    def close(self) -> None:
        """Stop watching all keepers."""
        for name in tuple(self._watched):
            self._unwatch(name)

    def _ended(self, name: str) -> None:
        self._unwatch(name)
        self.notify(name)

    def _unwatch(self, name: str) -> None:
        handle = self._watched.pop(name, None)
        if handle is not None:
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)
