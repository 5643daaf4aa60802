"""Removes what ended attempts leave: processes, markers and folders.

Marked processes are only searched for after both the keeper and the guard of a tree were killed. A
process with an environment of its own carries no marker and is found only as a descendant of one
that does, so this cannot prove that nothing is left.

The file `unswept` in an attempt's folder stays until its executor has cleaned up what may outlive
the process tree; nothing else records that this is still to be done.
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
    delete_tree,
    egress_name,
    parse_attempt_folder,
)
from rota.model.attempts import KeptAttempt

EXIT_SECONDS = 0.1
"""A keeper exits a moment after it has written its exit record."""
KEEPER_NAMES = ("rota-keeper", "python")
"""Until it sets its own name it has that of its interpreter."""


def reap_keeper(folder: Path, seconds: float = EXIT_SECONDS) -> bool:
    """Wait for the keeper of an ended attempt, if this process has started it.

    Returns false if `seconds` is 0 and it has not exited yet; then call it again.
    """
    lock = folder / "lock"
    text = read_file(str(lock)).decode(errors="replace")
    if not text.isdigit():
        return True
    pid = int(text)
    try:
        if not _has_ended(pid, seconds) and not seconds:
            return False
        if program_name(pid).startswith(KEEPER_NAMES):
            os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass  # another process started it
    with suppress(OSError):  # the file is deleted already, or the disk is read-only
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
QUIET_LOOKS = 2  # during execve(2) a process shows no environment
MAX_ENVIRONMENT = 1 << 22


def marked_processes(name: str) -> list[int]:
    """Return the processes that carry an attempt's marker, except this one's ancestors."""
    spared = _ancestors()
    return [pid for pid in all_pids() if pid not in spared and _has_marker(pid, name)]


def kill_marked(name: str, seconds: float = SWEEP_SECONDS) -> int:
    """Kill all processes that carry a marker, with their descendants; return their number.

    They are stopped until no new one appears, then killed. Raises TimeoutError if one remains.
    """
    spared = _ancestors()
    frozen: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    try:
        quiet = 0
        while quiet < QUIET_LOOKS and time.monotonic() < deadline:
            fresh = [pid for pid in _marked_tree(name) if pid not in frozen and pid not in spared]
            frozen.update(_stop_processes(fresh, name, {*frozen, *fresh}))
            quiet = 0 if fresh else quiet + 1
            if not fresh:
                time.sleep(LOOK_SECONDS)
        for handle in frozen.values():
            _send_signal(handle, signal.SIGKILL)
        _wait_for([handle for handle in frozen.values() if handle >= 0], deadline)
    finally:
        for handle in frozen.values():
            if handle >= 0:
                os.close(handle)
    return sum(handle >= 0 for handle in frozen.values())


def _marked_tree(name: str) -> list[int]:
    found = dict.fromkeys(marked_processes(name))
    for pid in tuple(found):
        found.update(dict.fromkeys(descendants(pid)))
    return list(found)


def _has_marker(pid: int, name: str) -> bool:
    environment = read_file(f"/proc/{pid}/environ", MAX_ENVIRONMENT)
    return f"{MARKER}={name}".encode() in environment.split(b"\0")


def _stop_processes(pids: list[int], name: str, family: set[int]) -> dict[int, int]:
    """Stop processes and return a pidfd for each; -1 if it is gone or its id was reused."""
    handles: dict[int, int] = {}
    for pid in pids:
        handles[pid] = -1
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        if parent(pid) in family or _has_marker(pid, name):
            handles[pid] = handle
            _send_signal(handle, signal.SIGSTOP)
        else:
            os.close(handle)
    return handles


def _send_signal(handle: int, number: int) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return  # it is gone, or this user may not signal it: then waiting for it times out


def _ancestors() -> set[int]:
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
RETENTION_SECONDS = 3600.0
"""How long unknown folders are kept."""


def remove_old_folders(keepers: Path, known: Sequence[KeptAttempt], claims: FolderLocks) -> None:
    """Delete folders of attempts that ended long ago and are not known to the store."""
    names = {attempt_folder_name(kept) for kept in known}
    rooms = {egress_name(kept.run_id, kept.epoch) for kept in known}
    before = (keepers / "lease").stat().st_mtime - RETENTION_SECONDS
    for folder in (keepers / "attempts").iterdir():
        if folder.name in names or (folder / UNSWEPT).exists():
            continue
        if _is_older(folder / "exit", before):
            shutil.rmtree(folder, ignore_errors=True)
    for place, drop in (("rooms", claims.release), ("mailboxes", delete_tree)):
        for folder in (keepers / place).iterdir():
            if folder.name not in rooms and _is_older(folder, before):
                drop(folder)


def find_uncleaned(keepers: Path, home: str, known: Sequence[KeptAttempt]) -> list[KeptAttempt]:
    """Return ended attempts unknown to the store whose executor has not cleaned up."""
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


KEEPER_EXIT_SECONDS = 5.0
"""How long a keeper may run after its exit record: it repeats its wake-up for a second."""


class CleanupThread:
    """Kills marked processes and reaps keepers in threads; calls `on_done` when a kill is done."""

    def __init__(
        self, on_done: Callable[[str], None], kill: Callable[[str], int] = kill_marked
    ) -> None:
        self._on_done = on_done
        self._kill_marked = kill
        self._running: dict[str, asyncio.Future[int]] = {}

    def kill_marked(self, name: str) -> int | None:
        """Return the result of killing marked processes, or None while that runs in a thread."""
        found = self._running.get(name)
        if found is None:
            found = asyncio.get_running_loop().run_in_executor(None, self._kill_marked, name)
            found.add_done_callback(lambda _: self._on_done(name))
            self._running[name] = found
        return self._running.pop(name).result() if found.done() else None

    def reap_keeper(self, folder: Path) -> None:
        """Reap the keeper of an ended attempt, in a thread if it has not exited yet."""
        if not reap_keeper(folder, seconds=0):
            asyncio.get_running_loop().run_in_executor(
                None, reap_keeper, folder, KEEPER_EXIT_SECONDS
            )
