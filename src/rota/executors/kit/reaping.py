"""Reaping: a keeper that this process has started is waited for when its attempt is over."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path

from rota.executors.kit.keeper.processes import program_name
from rota.executors.kit.keeper.words import read_file

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
