"""Removes what ended attempts leave: processes, markers and folders.

This is for what nobody holds any more: a guarded tree whose keeper and guard were both killed. A
process that was started with an environment of its own carries no marker; it is found only as a
descendant of one that does. So a sweep ends what it finds, and proves nothing.

One stays until its executor has ended what may outlive its tree: it is all that tells of that.
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rota.keeper.linux import all_pids, descendants, parent, program_name
from rota.keeper.protocol import MARKER, read_file
from rota.keeper.workspace import (
    FolderLocks,
    attempt_folder_name,
    delete,
    egress_name,
    parse_attempt_folder,
)
from rota.model.attempts import KeptAttempt

EXIT_SECONDS = 0.1
"""A keeper lives a moment longer than its ending."""
KEEPER_NAMES = ("rota-keeper", "python")
"""Before it has said its own name it has that of its interpreter."""


def reap(folder: Path, seconds: float = EXIT_SECONDS) -> bool:
    """Wait, once, for the keeper of an attempt that is over, if this process has started it.

    With no time to wait it may be too early, which is said, and it can be waited for again.
    """
    lock = folder / "lock"
    told = read_file(str(lock)).decode(errors="replace")
    if not told.isdigit():
        return True
    pid = int(told)
    try:
        if not _has_ended(pid, seconds) and not seconds:
            return False
        if program_name(pid).startswith(KEEPER_NAMES):
            os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass  # another process has started it
    with suppress(OSError):  # it is deleted already, or on a disk that takes nothing
        os.truncate(lock, 0)
    return True


def _has_ended(pid: int, seconds: float) -> bool:
    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
        return True
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(handle)


SWEEP_SECONDS = 5.0
LOOK_SECONDS = 0.005
QUIET_LOOKS = 2  # a process that is just becoming another program shows no environment
MAX_ENVIRONMENT = 1 << 22


def marked(name: str) -> list[int]:
    """Return the living processes that carry an attempt's marker, without this one's ancestors."""
    spared = _line_of_ancestors()
    return [pid for pid in all_pids() if pid not in spared and _carries(pid, name)]


def sweep(name: str, seconds: float = SWEEP_SECONDS) -> int:
    """End everything that carries a marker, with its descendants; return how many were ended.

    They are stopped until no new one appears, then killed. Raises TimeoutError if one stays.
    """
    spared = _line_of_ancestors()
    frozen: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    try:
        quiet = 0
        while quiet < QUIET_LOOKS and time.monotonic() < deadline:
            fresh = [pid for pid in _tree(name) if pid not in frozen and pid not in spared]
            frozen.update(_freeze(fresh, name, {*frozen, *fresh}))
            quiet = 0 if fresh else quiet + 1
            if not fresh:
                time.sleep(LOOK_SECONDS)
        for handle in frozen.values():
            _send(handle, signal.SIGKILL)
        _wait_for([handle for handle in frozen.values() if handle >= 0], deadline)
    finally:
        for handle in frozen.values():
            if handle >= 0:
                os.close(handle)
    return sum(handle >= 0 for handle in frozen.values())


def _tree(name: str) -> list[int]:
    found = dict.fromkeys(marked(name))
    for pid in tuple(found):
        found.update(dict.fromkeys(descendants(pid)))
    return list(found)


def _carries(pid: int, name: str) -> bool:
    environment = read_file(f"/proc/{pid}/environ", MAX_ENVIRONMENT)
    return f"{MARKER}={name}".encode() in environment.split(b"\0")


def _freeze(pids: list[int], name: str, family: set[int]) -> dict[int, int]:
    """Stop processes and return a handle of each, -1 for one that is gone or another by now."""
    handles: dict[int, int] = {}
    for pid in pids:
        handles[pid] = -1
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        if parent(pid) in family or _carries(pid, name):
            handles[pid] = handle
            _send(handle, signal.SIGSTOP)
        else:
            os.close(handle)
    return handles


def _send(handle: int, number: int) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return  # it is gone, or nobody may end it: then it is waited for in vain


def _line_of_ancestors() -> set[int]:
    line, pid = {0, 1}, os.getpid()
    while pid not in line:
        line.add(pid)
        pid = parent(pid)
    return line


def _wait_for(handles: list[int], deadline: float) -> None:
    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        left = max(0.0, deadline - time.monotonic())
        if not poll.poll(left * 1000):
            message = "a process of the attempt does not end"
            raise TimeoutError(message)


UNSWEPT = "unswept"
LEFT_SECONDS = 3600.0
"""How long they are left before they are taken away."""


def remove_old_folders(keepers: Path, known: Sequence[KeptAttempt], claims: FolderLocks) -> None:
    """Delete what has ended long ago in a home's folder of keepers, and is not known."""
    names = {attempt_folder_name(kept) for kept in known}
    rooms = {egress_name(kept.run_id, kept.epoch) for kept in known}
    before = (keepers / "lease").stat().st_mtime - LEFT_SECONDS
    for folder in (keepers / "attempts").iterdir():
        if folder.name in names or (folder / UNSWEPT).exists():
            continue
        if _is_older(folder / "exit", before):
            shutil.rmtree(folder, ignore_errors=True)
    for place, drop in (("rooms", claims.drop), ("mailboxes", delete)):
        for folder in (keepers / place).iterdir():
            if folder.name not in rooms and _is_older(folder, before):
                drop(folder)


def unswept(keepers: Path, home: str, known: Sequence[KeptAttempt]) -> list[KeptAttempt]:
    """Return what has ended, is not known, and may have left something behind."""
    names = {attempt_folder_name(kept) for kept in known}
    left = []
    for folder in (keepers / "attempts").glob("run-*"):
        if folder.name not in names and (folder / "exit").exists():
            executor = read_file(str(folder / UNSWEPT)).decode(errors="replace")
            left += [parse_attempt_folder(folder.name, home, executor)] if executor else []
    return left


def _is_older(path: Path, before: float) -> bool:
    try:
        return path.stat().st_mtime < before
    except FileNotFoundError:
        return False


LAST_SECONDS = 5.0
"""How long a keeper may take to end after its ending: it rings until it is heard, for a second."""


class CleanupThread:
    """Sweeps and reaps for a yard; `swept` is told whose sweep is done, well or not."""

    def __init__(self, swept: Callable[[str], None], sweep: Callable[[str], int] = sweep) -> None:
        self._swept = swept
        self._sweep = sweep
        self._sweeping: dict[str, asyncio.Future[int]] = {}

    def sweep(self, name: str) -> int | None:
        """Return what a sweep has come to, which is begun if there is none; None until then."""
        found = self._sweeping.get(name)
        if found is None:
            found = asyncio.get_running_loop().run_in_executor(None, self._sweep, name)
            found.add_done_callback(lambda _: self._swept(name))
            self._sweeping[name] = found
        return self._sweeping.pop(name).result() if found.done() else None

    def reap(self, folder: Path) -> None:
        """Wait for the keeper of an attempt that is over, which may take a moment longer."""
        if not reap(folder, seconds=0):
            asyncio.get_running_loop().run_in_executor(None, reap, folder, LAST_SECONDS)
